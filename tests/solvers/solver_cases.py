"""Random small instances for the solver tests, and the rules of an answer written out once more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from cotenant.solvers import Answer, Instance, instance
from cotenant.solvers.lp_reference import PairRates


@dataclass
class Case:
    """One random instance with all that any policy asks for."""

    inst: Instance
    weights: np.ndarray
    work: np.ndarray
    elapsed: np.ndarray
    fair: np.ndarray
    kind: np.ndarray
    pair: np.ndarray


def make_case(seed: int, *, jobs: int = 9, types: int = 5, kinds: int = 4) -> Case:
    rng = np.random.default_rng(seed)
    n, k, a = int(rng.integers(1, jobs + 1)), int(rng.integers(1, types + 1)), int(rng.integers(1, kinds + 1))
    rates = rng.lognormal(0, 1, (a, k)) * (rng.random((a, k)) < 0.85)
    gangs = rng.choice([1, 1, 2, 4], a)
    pair = rates[:, None, :] * rng.uniform(0.3, 1.05, (a, a, k)) * (rng.random((a, a, 1)) < 0.8)
    kind = rng.integers(0, a, n)
    capacity = rng.integers(0, 5, k)
    return Case(
        instance(rates[kind], gangs[kind], capacity),
        rng.choice([1.0, 2.0, 5.0], n),
        rng.lognormal(2, 1, n),
        rng.uniform(0, 20, n),
        rng.uniform(5, 50, n),
        kind,
        pair,
    )


def distinct_case(seed: int, *, jobs: int = 10, types: int = 5) -> Case:
    """As `make_case`, with other rates for every job."""
    case = make_case(seed, jobs=jobs, types=types)
    rng = np.random.default_rng(seed + 1)
    rates = case.inst.rates * rng.uniform(0.3, 3.0, case.inst.rates.shape)
    case.inst = instance(rates, case.inst.gangs, case.inst.capacity)
    return case


seeds = st.integers(0, 2**31)


def job_pairs(case: Case) -> PairRates:
    """Every pair of jobs, as the plain program wants them."""
    i, j = np.triu_indices(len(case.kind), 1)
    a, b = case.kind[i], case.kind[j]
    return PairRates(np.column_stack([i, j]), np.stack([case.pair[a, b], case.pair[b, a]], axis=1))


def delivered(inst: Instance, found: Answer, kind: np.ndarray | None = None, pair: np.ndarray | None = None) -> Any:
    """Rate of every job, counted anew from the answer."""
    rate = (inst.rates * found.x).sum(axis=1)
    if kind is not None and pair is not None:
        for side in (0, 1):
            mine, other = found.pairs[:, side], found.pairs[:, 1 - side]
            part = (pair[kind[mine], kind[other]] * found.pair_x).sum(axis=1)
            rate += np.bincount(mine, part, len(rate))
    return rate


def assert_feasible(inst: Instance, found: Answer) -> None:
    """The rules, written out once more and without repair."""
    assert (found.x >= 0).all()
    assert (found.pair_x >= 0).all()
    assert (found.x[inst.rates <= 0] == 0).all()
    time = found.x.sum(axis=1)
    used = inst.gangs @ found.x
    if len(found.pairs):
        assert (found.pairs[:, 0] < found.pairs[:, 1]).all()
        assert (inst.gangs[found.pairs[:, 0]] == inst.gangs[found.pairs[:, 1]]).all()
        time = time + np.bincount(found.pairs.ravel(), np.repeat(found.pair_x.sum(axis=1), 2), len(time))
        used = used + inst.gangs[found.pairs[:, 0]] @ found.pair_x
    assert time.max(initial=0.0) <= 1 + 1e-9
    assert (used <= inst.capacity * (1 + 1e-9)).all()
