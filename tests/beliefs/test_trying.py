"""Which pairs may be tried, and how a speed alone is measured while a neighbour stands still."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from cotenant.beliefs.live_profiles import HEADROOM, LiveKind, LiveProfiles, Seen, Use, veto
from cotenant.beliefs.pairing import LONG_S, VETO_S, WINDOW_S, Pairing
from cotenant.beliefs.speed import SpeedBelief
from cotenant.beliefs.trying import BUSY_LIMIT, MOST_TRIALS, Trying
from cotenant.beliefs.watched import program
from cotenant.core.jobspec import JobSpec

TYPES = {"n0": "gpu"}


@dataclass
class Run:
    gpus: tuple[tuple[str, tuple[int, ...]], ...] = (("n0", (0,)),)
    launched_s: float = 0.0
    level: int = 0


@dataclass
class Job:
    id: str
    order: int
    spec: JobSpec = field(default_factory=lambda: JobSpec("python train.py"))
    tenant: str = "t"
    stop_why: str = ""
    last: Run = field(default_factory=Run)

    @property
    def key(self) -> str:
        return f"{self.id}-1"


@dataclass
class Word:
    """A job that makes steps of a given length, and says so several times a second."""

    step: int | None = 0
    total: int | None = None
    step_time_s: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    marks: list[tuple[float, int]] = field(default_factory=list)
    stages: dict[str, float] = field(default_factory=dict)
    waited_s: float = 0.0
    speed: SpeedBelief = field(default_factory=SpeedBelief)

    def says(self, now_s: float, steps: int, step_s: float) -> None:
        self.step, self.step_time_s = (self.step or 0) + steps, step_s
        self.marks.append((now_s, self.step))
        self.speed.told(step_s, self.step)


class Bench:
    """Two jobs on one GPU; `pace` is how fast each is beside the other."""

    def __init__(self, alone_s: tuple[float, float], pace: tuple[float, float], *, obeys: bool = True) -> None:
        self.pairing, self.now_s = Pairing(), 1000.0
        self.jobs: list[Any] = [Job("1", 1), Job("2", 2)]
        self.words = {job.id: Word() for job in self.jobs}
        self.alone_s, self.pace, self.obeys = alone_s, pace, obeys
        self.still_s = {job.id: -math.inf for job in self.jobs}  # until when it stands still
        self.owed = {job.id: 0.0 for job in self.jobs}
        self.splits: list[Any] = []
        self.pauses: list[Any] = []

    def play(self, seconds: float, running: tuple[int, ...] = (0, 1), tick_s: float = 0.2) -> None:
        until_s = self.now_s + seconds
        while self.now_s < until_s - 1e-9:
            self.now_s += tick_s
            moving = [at for at in running if self.still_s[self.jobs[at].id] < self.now_s]
            for at in moving:
                step_s = self.alone_s[at] / (self.pace[at] if len(moving) > 1 else 1.0)
                self.owed[self.jobs[at].id] += tick_s / step_s
                steps = int(self.owed[self.jobs[at].id] + 1e-6)
                self.owed[self.jobs[at].id] -= steps
                if steps:
                    self.words[self.jobs[at].id].says(self.now_s, steps, step_s)
            jobs = [self.jobs[at] for at in running]
            self.splits += self.pairing.look(jobs, self.words.get, TYPES, self.now_s)  # type: ignore[arg-type]
            for one in self.pairing.standstills():
                self.pauses.append(one)
                if self.obeys:
                    self.still_s[one.job] = self.now_s + one.seconds


@pytest.mark.parametrize("alone_s", [(0.01, 0.05), (0.4, 0.02), (0.9, 0.9)], ids=str)
@pytest.mark.parametrize(("pace", "pays"), [((0.8, 0.7), True), ((0.45, 0.5), False), ((0.95, 0.3), True)], ids=str)
def test_a_pair_is_judged_by_speeds_alone_that_nobody_knew(
    alone_s: tuple[float, float], pace: tuple[float, float], pays: bool
) -> None:
    """The host was alone for a while; for its guest it stands still a moment. Steps may be long or short."""
    bench = Bench(alone_s, pace)
    bench.play(25.0, running=(0,))
    bench.play(90.0)
    assert [one.job for one in bench.pauses] == ["1"], "once"
    assert bool(bench.splits) is not pays
    worth = sum(bench.pairing.paces.values()) if pays else bench.splits[0].worth
    assert worth == pytest.approx(sum(pace), rel=0.12)


def test_nothing_is_judged_while_one_of_them_starts_up() -> None:
    """Beside a guest that imports its libraries a host is as fast as alone, and the guest's first steps are cold."""
    bench = Bench((0.05, 0.05), (0.5, 0.5))
    bench.play(10.0, running=(0,))
    bench.words["2"].step = None
    bench.jobs[1].last = Run(launched_s=bench.now_s)
    silent, bench.pace = bench.pace, (1.0, 1e-9)
    bench.play(20.0)
    assert not bench.pairing.seen.ratios
    bench.pace = silent
    bench.words["2"].step = 0
    bench.play(2 * LONG_S)
    assert [round(split.worth, 1) for split in bench.splits] == [1.0]


def test_fast_steps_count_only_after_some_time() -> None:
    bench = Bench((0.001, 0.001), (0.9, 0.9))
    bench.play(WINDOW_S - 0.5)
    assert not bench.pairing.paces
    bench.play(WINDOW_S)
    assert bench.pauses


@pytest.mark.parametrize(("back_beside", "believed"), [((1,), False), ((0, 1), True)], ids=["alone", "as before"])
def test_who_comes_back_into_other_company_is_seen_anew(back_beside: tuple[int, ...], believed: bool) -> None:
    """The younger one is suspended; what its steps took beside the host says nothing of it once it is alone."""
    bench = Bench((0.05, 0.05), (0.8, 0.7))
    bench.play(25.0)
    bench.play(5.0, running=(0,))
    bench.words["2"].speed.told(0.05 / 0.7, 100)
    bench.play(0.04, running=back_beside, tick_s=0.04)
    assert (bench.words["2"].speed.step_s is not None) is believed
    bench.pairing.forget_but({"1"})
    bench.play(5.0, running=(0,))
    bench.words["2"].speed.told(0.05 / 0.7, 100)
    bench.pairing.forget_but({"1"})  # the attempt is over, and nothing of it is kept
    bench.play(0.04, running=(1,), tick_s=0.04)
    assert bench.words["2"].speed.step_s is not None


def test_a_veto_is_over_some_day_and_survives_a_restart_until_then() -> None:
    bench = Bench((0.05, 0.05), (0.5, 0.5))
    bench.play(10.0, running=(0,))
    bench.play(30.0)
    assert len(bench.splits) == 1
    kept = bench.pairing.keeps()
    again = Pairing()
    again.recall(kept)
    assert again.vetoes == bench.pairing.vetoes
    again.look([], lambda job: None, TYPES, bench.now_s + 0.5 * VETO_S)
    assert again.vetoes
    again.look([], lambda job: None, TYPES, bench.now_s + VETO_S)
    assert not again.vetoes
    assert not again.seen.ratios, "it may be tried anew"
    older = Pairing()
    older.recall({"vetoes": kept["vetoes"]})
    older.look([], lambda job: None, TYPES, bench.now_s + 9 * VETO_S)
    assert older.vetoes, "those of older versions have no end"


def test_no_offer_exceeds_memory_or_breaks_a_veto() -> None:
    chance = random.Random(20261116)
    for _ in range(40):
        room_gib = chance.choice((0.0, 16.0, 80.0))
        profiles = LiveProfiles("none", ["gpu"], {"gpu": room_gib})
        kinds = [
            LiveKind(("", 1), "", chance.choice((0.0, 5.0, 30.0, 60.0)), chance.random() < 0.2, program=f"p{k}")
            for k in range(6)
        ]
        for kind in kinds:
            profiles.kind_of(kind)
        seen = Seen(vetoes=frozenset({veto(kinds[0].learned, kinds[1].learned, "gpu")}))
        for kind in kinds[::2]:
            seen.uses[kind.learned, "gpu"] = Use(chance.random(), chance.choice((2.0, 40.0)))
        Trying().offer(profiles.kinds, profiles.types, seen, ())
        ratio = profiles.together(seen).ratio[:, :, 0]
        for a, one in enumerate(kinds):
            for b, two in enumerate(kinds):
                uses = [seen.uses.get((kind.learned, "gpu")) for kind in (one, two)]
                needs = [max(kind.mem_gib, use.gib if use else 0.0) for kind, use in zip((one, two), uses, strict=True)]
                busy = sum(use.busy if use else 0.5 for use in uses)
                may = min(needs) > 0 and sum(needs) <= HEADROOM * room_gib and not (one.alone or two.alone)
                may = may and any(uses) and busy <= BUSY_LIMIT["time"] and {a, b} != {0, 1}
                assert (ratio[a, b] > 0) == may, (one, two, uses)
                assert ratio[a, b] < 1


def test_only_so_many_kinds_are_tried_at_a_time() -> None:
    profiles = LiveProfiles("none", ["gpu"], {"gpu": 80.0})
    kinds = [LiveKind(("", 1), mem_gib=10.0, program=f"p{k}") for k in range(MOST_TRIALS + 2)]
    seen = Seen()
    for kind in kinds:
        profiles.kind_of(kind)
        seen.uses[kind.learned, "gpu"] = Use(0.3, 10.0)
    trying = Trying()
    trying.offer(profiles.kinds, profiles.types, seen, ())
    tried = {veto(kind.learned, kind.learned, "gpu") for kind in kinds[:MOST_TRIALS]}
    trying.offer(profiles.kinds, profiles.types, seen, tried)
    assert seen.guesses.keys() == tried


def test_programs_by_their_names() -> None:
    cases = {
        "python train.py --lr 1": "train.py", "A=1 /usr/bin/python3 -u x/train.py; sleep 1": "train.py",
        "torchrun -m pkg.main a": "pkg.main", "./run.sh now": "run.sh", "": "",
    }  # fmt: skip
    assert {run: program(run) for run in cases} == cases


@pytest.mark.parametrize(("pace", "parted"), [(0.4, True), (0.8, False)])
def test_of_a_job_that_says_nothing_its_neighbour_tells(pace: float, parted: bool) -> None:
    bench = Bench((0.05, 0.05), (pace, 1e-9))
    bench.play(10.0, running=(0,))
    bench.words["2"].step = None
    bench.play(20.0)
    assert [round(split.worth, 1) for split in bench.splits] == ([2 * pace] if parted else [])
    assert not bench.pauses


@pytest.mark.parametrize("profile", ["none", "h200"])
def test_without_any_job_nothing_is_known_of_stages(profile: str) -> None:
    profiles = LiveProfiles(profile, ["h200"], {})
    assert profiles.stages(np.zeros(0, np.int64), np.zeros(0), Seen()) is None
