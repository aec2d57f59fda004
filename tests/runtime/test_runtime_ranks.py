"""A job of several processes: rank 0 leads, the others do the same at the same step."""

from __future__ import annotations

import importlib.util
import math
import os
from collections import deque
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant import runtime
from cotenant.runtime.protocol import Set, Settings, Stop


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("COTENANT_"):
            monkeypatch.delenv(name)


class Pair:
    """Two ranks in one process, called one after the other; the second hears what the first has said."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WORLD_SIZE", "2")
        self.jobs = []
        self._said: deque[list[float]] = deque()
        for rank in (0, 1):
            monkeypatch.setenv("RANK", str(rank))
            self.jobs.append(runtime.job(checkpoint_dir=folder, checkpoint_interval_s=1e9, batch_size=5))
        self.leader, self.follower = self.jobs
        self.leader.follow_leader(self._say)
        self.follower.follow_leader(lambda values: self._said.popleft())
        self.saves: list[int] = []
        for job in self.jobs:
            job.save(lambda path, rank=job.rank: self.saves.append(rank))

    def _say(self, values: list[float]) -> list[float]:
        self._said.append(values)
        return values

    def boundary(self, done: int) -> None:
        for job in self.jobs:
            job.boundary(done, 100)

    def codes(self, done: int) -> list[object]:
        """How both leave at this boundary."""
        found = []
        for job in self.jobs:
            with pytest.raises(SystemExit) as left:
                job.boundary(done, 100)
            found.append(left.value.code)
        return found


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    both = Pair(tmp_path, monkeypatch)
    yield both
    for job in both.jobs:
        job._sigterm.release()


def test_settings_take_hold_at_the_leaders_step(pair: Pair) -> None:
    pair.follower._receive(Set(batch_size=64))  # heard early: waits for the leader
    pair.boundary(1)
    assert [job.batch_size for job in pair.jobs] == [5, 5]
    pair.leader._receive(Set(batch_size=9, throttle_s=1e-6))
    pair.boundary(2)
    assert [(job.batch_size, job.throttle_s) for job in pair.jobs] == [(9, 1e-6)] * 2
    assert [job.local_batch for job in pair.jobs] == [5, 4]


def test_both_stop_where_the_leader_does_and_only_the_leader_saves(pair: Pair, tmp_path: Path) -> None:
    pair.follower._receive(Stop(9.0))
    pair.boundary(1)
    pair.leader._receive(Stop(9.0))
    assert pair.codes(2) == [runtime.EXIT_PREEMPTED] * 2
    assert pair.saves == [0]
    newest = runtime.CheckpointStore(tmp_path).newest()
    assert newest is not None
    assert newest.step == 2


def test_where_the_leader_cannot_save_both_go_on(pair: Pair) -> None:
    def full(path: Path) -> None:
        raise OSError("no space left")

    pair.leader.save(full)
    for job in pair.jobs:
        job._receive(Stop(9.0))
    pair.boundary(1)
    pair.boundary(2)
    assert [job.step for job in pair.jobs] == [2, 2]


def test_sigterm_ends_both_even_unsaved(pair: Pair) -> None:
    for job in pair.jobs:
        job._save_fn = None
    pair.boundary(1)
    pair.leader._sigterm.came = True
    assert pair.codes(2) == [runtime.EXIT_TERMINATED] * 2


@given(
    st.builds(
        Settings,
        st.none() | st.integers(1, 10**9),
        st.none() | st.integers(1, 10**9),
        st.none() | st.integers(0, 10**9),
        st.none() | st.integers(0, 10**9),
        st.none() | st.floats(0, 1e9),
        st.none() | st.floats(0, 1e9, exclude_min=True),
        st.none() | st.floats(0, 1e9, exclude_min=True),
    )
)
def test_settings_survive_being_handed_on_as_numbers(settings: Settings) -> None:
    numbers = settings.numbers()
    assert Settings.from_numbers(numbers) == settings
    assert sum(map(math.isnan, numbers)) == 7 - len(settings.given())


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
class TestTorch:
    @pytest.mark.parametrize(("samples", "batch", "ranks"), [(20, 8, 1), (20, 8, 2), (21, 8, 3), (17, 8, 4)])
    def test_the_ranks_parts_make_up_each_global_batch(
        self, monkeypatch: pytest.MonkeyPatch, samples: int, batch: int, ranks: int
    ) -> None:
        from cotenant.runtime import torch as runtime_torch

        def epoch(rank: int, of: int) -> list[list[int]]:
            monkeypatch.setenv("RANK", str(rank))
            monkeypatch.setenv("WORLD_SIZE", str(of))
            loader = runtime_torch.Loader(runtime.job(batch_size=batch), list(range(samples)), seed=3)
            return [part.tolist() for part in loader]

        whole = epoch(0, 1)
        together = [list(chain(*parts)) for parts in zip(*(epoch(rank, ranks) for rank in range(ranks)), strict=True)]
        full = samples // batch
        assert together[:full] == whole[:full]
        assert set(together[-1]) == set(whole[-1])
        assert len(together[-1]) == max(len(whole[-1]), ranks)  # nobody is left without a sample

    def test_without_a_process_group_the_ranks_are_told_what_to_do(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from cotenant.runtime import torch as runtime_torch

        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
        with pytest.raises(RuntimeError, match=r"rank 1 of 2: call torch\.distributed\.init_process_group"):
            runtime_torch.attach(runtime.job())
