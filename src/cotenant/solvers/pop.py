"""POP: split jobs and GPUs into parts, solve the parts, put the answers together (Narayanan et al., SOSP'21).

For space sharing among too many classes of jobs for one program. Whole classes are dealt out at random, so that a part
has few of them; if there are few anyway, their members are, so that all parts look alike. Every part gets of every type
what its jobs ask for among all. What that costs is bounded by prices: nobody can do
better than if every job found its best partner everywhere for half of the GPUs, which separates by job again.
"""

from __future__ import annotations

import numpy as np

from cotenant.solvers import kinds, prices
from cotenant.solvers.answer import Answer, Floats, Instance, Ints, relative_gap
from cotenant.solvers.errors import SolverBudget
from cotenant.solvers.need import Need

MOST_CLASSES = 100
"""Classes that one program takes in about half a second; beyond, it is split."""


def parts_for(inst: Instance, kind: Ints) -> int:
    """Into how many parts the jobs should be split."""
    count = len(kinds.classes(kind, inst.gangs, inst.rates).first)
    return max(1, -(-count // MOST_CLASSES))


def solve(
    inst: Instance, need: Need, kind: Ints, pair: Floats, parts: int, *, budget: SolverBudget | None = None,
    seed: int = 0,
) -> Answer:  # fmt: skip
    """Best theta of the split problem; `bound` is the unsplit one's, as far as known, and `gap` the loss."""
    budget = budget or SolverBudget()
    if parts <= 1:
        return kinds.solve(inst, need, kind, pair, budget=budget)
    part_of = _deal(inst, kind, parts, seed)
    total = float(inst.gangs.sum())
    x = np.zeros(inst.rates.shape)
    pairs, pair_x, values, left_out = [], [], [], []
    for part in range(parts):
        rows = np.flatnonzero(part_of == part)
        room = inst.capacity * (inst.gangs[rows].sum() / total)
        share = Instance(inst.rates[rows], inst.gangs[rows], room, inst.best[rows])
        found = kinds.solve(share, need.take(rows), kind[rows], pair, budget=budget)
        x[rows] = found.x
        pairs.append(rows[found.pairs])
        pair_x.append(found.pair_x)
        values.append(found.value)
        left_out.append(rows[found.left_out])
    value = max(values) if need.falling else min(values)
    bound = _bound(inst, need, kind, pair)
    bound = min(bound, value) if need.falling else max(bound, value)
    return Answer(
        x, value, bound, np.zeros(len(inst.capacity)), f"POP in {parts} parts", budget.spent_s,
        relative_gap(value, bound), np.concatenate(left_out), np.concatenate(pairs), np.concatenate(pair_x),
    )  # fmt: skip


def _deal(inst: Instance, kind: Ints, parts: int, seed: int) -> Ints:
    """Part of every job. Gangs of one size are dealt in turn, so that every part has its share of each."""
    rng = np.random.default_rng(seed)
    groups = kinds.classes(kind, inst.gangs, inst.rates)
    count = len(groups.first)
    turn = rng.permutation(len(kind))
    if count <= MOST_CLASSES:
        order = turn[np.lexsort((groups.of[turn], inst.gangs[turn]))]
        part_of = np.zeros(len(kind), dtype=np.int64)
        part_of[order] = np.arange(len(kind)) % parts
        return part_of
    turn = rng.permutation(count)
    order = turn[np.lexsort((-groups.counts[turn], inst.gangs[groups.first[turn]]))]
    part_of_class = np.zeros(count, dtype=np.int64)
    part_of_class[order] = np.arange(count) % parts
    return np.asarray(part_of_class[groups.of])


def _bound(inst: Instance, need: Need, kind: Ints, pair: Floats) -> float:
    """What nobody can beat, with or without parts."""
    best = np.zeros((len(pair), len(inst.capacity)))
    present = np.unique(kind)
    best[present] = pair[np.ix_(present, present)].max(axis=1, initial=0.0)
    return prices.bound_with_sharing(inst, need, best[kind])
