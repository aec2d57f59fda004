"""ONES: its operators keep every invariant, and its golden examples hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.core.goodput import linear_batch
from cotenant.core.training import Training
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
