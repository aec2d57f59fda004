"""Beliefs about pairs: known, guessed, or learned by watching; and what they change in decisions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.core import columns as col
from cotenant.core.errors import InputError
from cotenant.core.together import Together
from cotenant.policies.beliefs import WATCH_S, PairBeliefs
from cotenant.sim.driver import Simulation
from cotenant.testing.sharing import shared_run, sharing

TRUTH = np.array([[0.6, 0.5], [0.8, 0.6]])


def guessed(truth: np.ndarray, guess: float | np.ndarray, **more: object) -> Together:
    table = sharing(truth, **more)  # type: ignore[arg-type]
    return replace(table, guess=np.where(table.ratio > 0, np.broadcast_to(guess, truth.shape)[:, :, None], 0.0))


def believed(run: Simulation) -> np.ndarray:
    pairs: PairBeliefs = run.policy._pairs  # type: ignore[attr-defined]
    return pairs.slowdown(run.engine.view(float(run.state.t[col.NOW])))[:, :, 0].copy()


@pytest.mark.parametrize("name", ["oracle", "formula", "learned"])
def test_what_each_believes_before_and_after_a_pair_has_run(name: str) -> None:
    """Kinds 0 and 1 share from 1 s on; somebody comes after half a minute and after a hundred seconds."""
    rows = [(0.0, 1, 900.0), (1.0, 1, 900.0), (WATCH_S / 2, 1, 5.0), (100.0, 1, 5.0)]
    run = shared_run(rows, guessed(TRUTH, 0.9), "1x1", f"sjf-bsbf:pairs={name}", kinds=[0, 1, 0, 0])
    run.advance(WATCH_S / 2)
    start = np.full((2, 2), 1 / 0.9) if name != "oracle" else 1 / TRUTH
    assert believed(run) == pytest.approx(start)
    run.advance(100.0)
    if name == "learned":
        start[0, 1], start[1, 0] = 2.0, 1.25  # both directions; a kind beside itself has not been seen
    assert believed(run) == pytest.approx(start)


def test_one_model_on_other_gpu_counts_is_learned_with_it() -> None:
    """Kind 2 is kind 0 on another GPU count: what 0 does beside 1 holds for it; memory keeps 2 from 2."""
    truth = np.array([[0.6, 0.5, 0.6], [0.8, 0.6, 0.8], [0.6, 0.5, 0.0]])
    table = replace(guessed(truth, 0.9), alike=np.array([0, 1, 0]))
    rows = [(0.0, 1, 900.0), (1.0, 1, 900.0), (100.0, 1, 5.0)]
    run = shared_run(rows, table, "1x1", "sjf-bsbf:pairs=learned", kinds=[0, 1, 2])
    run.advance(100.0)
    found = believed(run)
    assert found[[0, 2], 1] == pytest.approx([2.0, 2.0])
    assert found[1, [0, 2]] == pytest.approx([1.25, 1.25])
    assert np.isinf(found[2, 2])


def test_a_crowd_teaches_nothing() -> None:
    """Three on a GPU: it is not clear who slows whom."""
    table = guessed(np.full((3, 3), 0.8), 0.5, busy=[0.1] * 3)
    rows = [(0.0, 1, 900.0)] * 3 + [(100.0, 1, 5.0)]
    run = shared_run(rows, table, "1x1", "horus:pairs=learned", kinds=[0, 1, 2, 0])
    run.advance(100.0)
    assert int((run.state.gpu[0] >= 0).sum()) == 3
    assert believed(run) == pytest.approx(np.full((3, 3), 2.0))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 400), st.sampled_from([1, 1, 2, 4]), st.integers(50, 900)), min_size=3, max_size=9
    ),
    st.integers(0, 10_000),
)
def test_whatever_has_been_seen_is_the_truth_and_the_rest_is_the_guess(
    jobs: list[tuple[int, int, int]], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    truth, guess = rng.uniform(0.4, 1.0, (2, 3, 3))
    table = guessed(truth, guess, memory_gib=[6, 8, 10], gpu_gib=16, pace=(1.0, 0.8, 0.6))
    rows = sorted((float(at), gpus, float(lasts)) for at, gpus, lasts in jobs)
    run = shared_run(rows, table, "2x2", "sjf-bsbf:pairs=learned", kinds=[k % 3 for k in range(len(rows))])
    run.advance(np.inf)
    pairs: PairBeliefs = run.policy._pairs  # type: ignore[attr-defined]
    expected = np.where(pairs._seen[:, :, 0], 1 / truth, 1 / guess)
    assert believed(run) == pytest.approx(expected, rel=1e-9)


def test_learning_does_not_make_the_same_mistake_twice() -> None:
    """A pair is believed harmless and is not: the table never makes it, the guess always, the learner once."""
    truth = np.array([[1.0, 0.1], [0.1, 1.0]])
    rows = [(0.0, 1, 2000.0), (10.0, 1, 150.0), (100.0, 1, 5.0), (1600.0, 1, 150.0)]
    made = {}
    for name in ("oracle", "formula", "learned"):
        run = shared_run(
            rows, guessed(truth, 0.95), "1x1", f"sjf-bsbf:pairs={name},queue_aware=false", kinds=[0, 1, 1, 1]
        )
        run.advance(np.inf)
        begun = run.state.f[:, col.FIRST]
        made[name] = [bool(begun[k] == rows[k][0]) for k in (1, 3)]
    assert made == {"oracle": [False, False], "formula": [True, True], "learned": [True, False]}


def test_gandiva_tries_only_what_is_believed_to_pay() -> None:
    """Two jobs that are slower together than in turns: tried and undone, tried never, tried on a wrong guess."""
    truth = np.full((2, 2), 0.4)
    counts = {}
    for name in ("none", "oracle", "formula", "learned"):
        rows = [(0.0, 1, 4000.0), (0.0, 1, 4000.0), (1000.0, 1, 4000.0), (1000.0, 1, 4000.0)]
        table = guessed(truth, 0.9, busy=[0.5, 0.5])
        run = shared_run(rows, table, "1x1", f"gandiva:pairs={name},migration=false", kinds=[0, 1, 0, 1])
        run.advance(4000.0)
        counts[name] = run.policy.counts["packed"]  # type: ignore[attr-defined]
    assert counts["oracle"] == 0
    assert counts["none"] == counts["formula"] > counts["learned"] > 0


def test_antman_spares_those_who_would_suffer() -> None:
    """An opportunistic job goes beside the guaranteed one that it hurts least, whoever is less busy."""
    truth = np.array([[1.0, 1.0, 0.3], [1.0, 1.0, 0.9], [0.9, 0.9, 1.0]])
    places = {}
    for name in ("none", "oracle"):
        rows = [(0.0, 1, 900.0), (0.0, 1, 900.0), (1.0, 1, 900.0)]
        table = guessed(truth, 0.5, busy=[0.3, 0.5, 0.5])
        run = shared_run(rows, table, "1x2", f"antman:pairs={name}", priority=[0, 0, -1])
        run.advance(1.0)
        places[name] = next(set(jobs) - {2, -1} for jobs in run.state.gpu.tolist() if 2 in jobs)
    assert places == {"none": {0}, "oracle": {1}}


@pytest.mark.parametrize("policy", ["sjf-bsbf", "sjf-ffs", "horus", "horus+", "gandiva", "antman"])
def test_an_unknown_belief_is_one_line(policy: str) -> None:
    with pytest.raises(InputError, match=f"pairs of policy '{policy.replace('+', '.')}'"):
        shared_run([(0.0, 1, 1.0)], sharing([[1.0]]), "1x1", f"{policy}:pairs=orcale")
