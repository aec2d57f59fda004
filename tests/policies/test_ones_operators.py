"""ONES: its operators keep every invariant, and its golden examples hold."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.core.goodput import linear_batch
from cotenant.core.training import Training
from cotenant.policies import make_policy
from cotenant.policies.base import Context
from cotenant.policies.ones.deploy import Deployment
from cotenant.policies.ones.evolution import (
    EMPTY,
    Limits,
    counts_of,
    crossover,
    cut,
    first_population,
    generation,
    mutate,
    order_by_gain,
    order_by_time,
    pad,
    refresh,
    score,
)
from cotenant.policies.ones.evolving import Evolving
from cotenant.policies.ones.predictor import ProgressModel, digamma, features
from cotenant.policies.ones.reorder import shrink
from cotenant.policies.ones.scaling import Sizes, at_least, scaled_down
from cotenant.policies.ones.throughput import Goodputs, sruf, throughputs


@st.composite
def worlds(draw: st.DrawFn) -> tuple[np.ndarray, Limits, np.ndarray, np.random.Generator]:
    jobs, gpus, size = draw(st.integers(1, 12)), draw(st.integers(1, 24)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    genomes = rng.integers(-1, jobs, (size, gpus))
    cap = rng.integers(1, gpus + 1, jobs)
    train = np.maximum(cap, rng.integers(1, gpus + 1, jobs))
    young = rng.random(jobs) < 0.4
    cost = rng.random((jobs, gpus + 1))
    if draw(st.booleans()):
        who, nth = order_by_time(rng.random(jobs), young, cap, train)
    else:
        who, nth = order_by_gain(rng.random((jobs, gpus)) - 0.2, young, cap)
        train = cap
    return genomes, Limits(cap, train, young, who, nth), cost, rng


def _legal(genomes: np.ndarray, jobs: int) -> None:
    assert genomes.min(initial=EMPTY) >= EMPTY
    assert genomes.max(initial=EMPTY) < jobs


@given(worlds())
@settings(max_examples=60, deadline=None)
def test_operators_keep_every_invariant(world: tuple[np.ndarray, Limits, np.ndarray, np.random.Generator]) -> None:
    genomes, limits, cost, rng = world
    jobs = len(limits.cap)
    kept = cut(genomes, limits.cap)
    _legal(kept, jobs)
    assert (counts_of(kept, jobs) == np.minimum(counts_of(genomes, jobs), limits.cap)).all()
    assert ((kept == genomes) | (kept == EMPTY)).all()
    children = crossover(kept, limits.cap, rng)
    _legal(children, jobs)
    assert (counts_of(children, jobs) <= limits.cap).all()
    assert len(children) == 2 * max(len(kept) // 2, 1)
    mutants = mutate(kept, limits.young, rng)
    before, after = counts_of(kept, jobs), counts_of(mutants, jobs)
    assert ((after == before) | (after == 0)).all()
    assert (after[:, limits.young] == before[:, limits.young]).all()
    full = pad(kept, limits)
    _legal(full, jobs)
    assert (full[kept != EMPTY] == kept[kept != EMPTY]).all()
    sizes = counts_of(full, jobs)
    assert (sizes <= np.where(limits.young, np.maximum(limits.cap, 1), np.maximum(limits.train, limits.cap))).all()
    idle = (full == EMPTY).any(axis=1)
    assert (sizes[idle][:, limits.young] >= 1).all()  # no GPU idles while a new job waits
    best = generation(genomes, limits, cost, rng)
    assert best.shape == genomes.shape
    scores = score(best, cost)
    assert (np.diff(scores) >= 0).all()
    assert scores[0] <= score(pad(kept, limits), cost).min() + 1e-12  # the parents compete


@given(worlds())
@settings(max_examples=30, deadline=None)
def test_refresh_forgets_finished_jobs(world: tuple[np.ndarray, Limits, np.ndarray, np.random.Generator]) -> None:
    genomes, limits, _, rng = world
    jobs = len(limits.cap)
    stays = rng.random(jobs) < 0.5
    renumber = np.where(stays, np.cumsum(stays) - 1, EMPTY)
    now = refresh(genomes, renumber, limits.cap[stays])
    _legal(now, int(stays.sum()))
    expected = np.minimum(counts_of(genomes, jobs)[:, stays], limits.cap[stays])
    assert (counts_of(now, int(stays.sum())) == expected).all()


def test_the_first_population_has_each_job_once() -> None:
    genomes = first_population(5, 8, 3, np.random.default_rng(0))
    assert (counts_of(genomes, 3) == 1).all()
    assert (counts_of(first_population(2, 2, 5, np.random.default_rng(0)), 5).sum(axis=1) == 2).all()


@pytest.mark.parametrize(("gpus", "lr", "local"), [(8, 0.004, 32), (16, 0.008, 32), (32, 0.008, 16), (24, 0.008, 21)])
def test_batch_and_learning_rate(gpus: int, lr: float, local: int) -> None:
    found = linear_batch(32, 0.0005, 0.008, gpus)
    assert found == (local, pytest.approx(lr))


def test_throughput_lines_and_score() -> None:
    seen = np.full(9, np.nan)
    seen[[1, 4]] = 600.0, 2000.0
    rate = throughputs(seen, 8)
    assert rate[2] == pytest.approx(600 + 1400 / 3)
    assert rate[8] == pytest.approx(2000 + 4 * 1400 / 3)
    rate[8] = 3000.0
    left = np.array([40_000 * (1 / 0.25 - 1)])
    assert sruf(rate[None, :], left)[0, [0, 1, 4, 8]].tolist() == [0.0, 200.0, 240.0, 320.0]
    assert (throughputs(np.full(4, np.nan), 3) == 0).all()


def test_scale_down() -> None:
    assert scaled_down(32, 3.0, 1.0) == 16
    assert scaled_down(32, 2.0, 1.0) == 22
    assert scaled_down(2, 100.0, 1.0) == 2


def test_progress_is_learned_from_finished_jobs() -> None:
    progress = ProgressModel(0)
    one = np.array([[np.log(1000.0), 2.0, 4.0, 0.5, 0.5]])
    assert progress.draw(one, False)[0] == pytest.approx(0.5)  # before any job: by the fall of the loss
    for job in range(12):
        total = 10.0 + job % 3
        epochs = np.arange(1.0, total)
        share = epochs / total
        x = features(np.full(len(epochs), 1000.0), np.full(len(epochs), 2.0), epochs, 2 * (1 - share), share)
        progress.finish(x, share)
    early, late = progress.draw(np.array([[np.log(1000), 2, 2, 0.18, 0.18], [np.log(1000), 2, 9, 0.82, 0.82]]), False)
    assert early == pytest.approx(0.18, abs=0.12)
    assert late == pytest.approx(0.82, abs=0.12)
    drawn = progress.draw(np.repeat(one, 50, axis=0), True)
    assert ((drawn > 0) & (drawn < 1)).all()
    assert drawn.std() > 0


@pytest.mark.parametrize("name", ["ones", "ones-goodput"])
def test_the_policy_learns_from_the_course_of_a_job_once_it_is_gone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs of 1000 samples, looked at more often than that; it was gone at 4000, so 1000 were a quarter."""
    policy = make_policy(name)
    assert isinstance(policy, Evolving)
    policy.begin(Context())
    learned: list[list[float]] = []
    monkeypatch.setattr(policy.progress, "finish", lambda x, rho: learned.append([*x[:, 2], *rho]))
    for samples in (0.0, 1000.0, 1200.0, 2000.0, 3000.0, 4000.0):
        one = np.array([samples])
        x = features(np.array([1000.0]), np.array([2.0]), one / 1000, np.array([1.0]), np.array([0.5]))
        policy.learn([7], x, one, np.array([1000.0]))
        assert not learned
    policy.learn([], np.zeros((0, 5)), np.zeros(0), np.zeros(0))
    assert learned == [[1.0, 2.0, 3.0, 0.25, 0.5, 0.75]]


def test_a_winner_is_deployed_whole_once_all_whom_it_changes_have_finished_an_epoch() -> None:
    """Six GPUs. Row 1 holds 2 and row 2 holds 4; row 3 has come."""
    deployment = Deployment(1.0)
    ids, none = [1, 2, 3], np.zeros(3, np.int64)
    held = np.array([2, 4, 0])
    final, whole = deployment.sizes(ids, none, held, np.array([3.0, 5.0, 0.0]), 6)
    assert (final.tolist(), whole) == ([2, 4, 0], True)
    winner = np.array([3, 2, 1])
    early, whole = deployment.sizes(ids, held, winner, np.array([4.0, 5.9, 0.0]), 6)
    assert (early.tolist(), whole) == ([2, 4, 0], False)  # row 2 has not finished one: nobody changes
    alone, whole = deployment.sizes(ids, held, np.array([2, 4, 1]), np.array([4.0, 5.9, 0.0]), 7)
    assert (alone.tolist(), whole) == ([2, 4, 1], True)  # an empty GPU needs nobody's leave
    late, whole = deployment.sizes(ids, held, winner, np.array([5.0, 6.9, 1.0]), 6)
    assert (late.tolist(), whole) == ([3, 2, 1], True)  # both have finished one since row 3 started


def test_what_fits_starts_while_the_gate_is_closed() -> None:
    deployment = Deployment(1.0)
    ids, held = [1, 2, 3], np.array([4, 0, 0])
    deployment.sizes(ids, np.zeros(3, np.int64), held, np.zeros(3), 8)
    final, whole = deployment.sizes(ids, held, np.array([2, 5, 1]), np.array([0.5, 0.0, 0.0]), 8)
    assert (final.tolist(), whole) == ([4, 0, 1], False)  # row 2 needs GPUs of row 1
    gone, whole = deployment.sizes(ids, held, np.array([2, 0, 0]), np.array([0.6, 0.0, 0.0]), 3)
    assert (gone.tolist(), whole) == ([2, 0, 0], True)  # rigid jobs have taken what it holds


@pytest.mark.parametrize(("asked", "caps"), [(2, [1, 2, 4, 8, 8]), (16, [1, 2, 4, 8, 16])])
def test_a_job_grows_by_doubling_every_two_epochs(asked: int, caps: list[int]) -> None:
    """A schedule gives it four times what was asked at most; the size that filling may give it goes on doubling."""
    sizes, held, found = Sizes(), np.array([1]), []
    for epoch in range(0, 10, 2):
        view = SimpleNamespace(asked_gpus=np.array([asked]), rows=np.array([7]), attained_s=np.array([9.0 * epoch]))
        if epoch:
            early, _ = sizes.limits(view, np.array([0]), held, np.array([epoch - 0.1]), 64)  # type: ignore[arg-type]
            assert early[0] == held[0]
        cap, train = sizes.limits(view, np.array([0]), held, np.array([float(epoch)]), 64)  # type: ignore[arg-type]
        found.append(int(cap[0]))
        sizes.changed([7], held, train, np.array([float(epoch)]))
        held = train  # filling gave it all
    assert found == caps


def test_digamma_and_shrink() -> None:
    assert digamma(np.array([1.0, 0.5]))[0] == pytest.approx(-0.5772156649, abs=1e-8)
    assert digamma(np.array([0.5]))[0] == pytest.approx(-1.9635100260, abs=1e-8)
    assert shrink(((0, 4), (1, 1)), 3) == ((0, 3),)
    assert shrink(((0, 4), (1, 1)), 9) == ((0, 4), (1, 1))


def test_sizes_never_exceed_what_rigid_jobs_leave() -> None:
    """Jobs that have just changed keep their size, but not against GPUs that are gone."""
    sizes = Sizes()
    ids, held = [7, 8], np.array([4, 2])
    sizes.apply(ids, np.zeros(2, np.int64), held.copy(), np.zeros(2), 6)
    final = sizes.apply(ids, held, np.array([4, 2]), np.array([0.1, 0.1]), 3)
    assert final.sum() == 3
    assert (final <= held).all()


def test_below_its_fewest_a_job_grows_waits_or_keeps_what_it_has() -> None:
    sizes = np.array([1, 1, 1])
    at_least(sizes, np.array([2, 4, 2]), np.array([0, 0, 2]), 5)
    assert sizes.tolist() == [2, 0, 2]


def test_sizes_seen_that_are_not_there_any_more_still_teach() -> None:
    """A kind that was seen only on 4 and 6 GPUs, of which 2 are left: its rates there follow from the fit."""
    ones, seen = np.ones(2), np.full((2, 8), np.nan)
    seen[0, 4], seen[1, 6] = 400.0, 600.0
    kind, batch = np.zeros(2, np.int64), np.full(2, 32.0)
    training = Training(kind, kind + 1, ones, batch, ones, ones, 0 * ones, ones, ones, 0 * ones, np.full(2, 1e12), seen)
    goodputs = Goodputs(8)
    rate, good = goodputs.tables(training, np.arange(2), 2)
    assert rate.shape == good.shape == (2, 3)
    assert 0 < rate[0, 1] < rate[0, 2] < 400
    np.testing.assert_array_equal(goodputs.tables(training, np.arange(2), 2)[0], rate)
    assert goodputs.tables(training, np.arange(2), 6)[0][0, 6] == 600
