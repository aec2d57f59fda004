"""POP: split jobs and GPUs into parts, solve the parts, put the answers together (Narayanan et al., SOSP'21).

For space sharing among too many classes of jobs for one program. Jobs of a class are dealt out in turn, so that all
parts look alike; every part gets the same share of every type. What that costs is bounded by prices: nobody can do
better than if every job found its best partner everywhere for half of the GPUs, which separates by job again.
"""

from __future__ import annotations

import numpy as np

from cotenant.solvers import kinds, prices
from cotenant.solvers.answer import Answer, Floats, Instance, Ints, relative_gap
from cotenant.solvers.errors import Budget
from cotenant.solvers.need import Need

MOST_CLASSES = 160
"""Classes that one program takes in about a second; beyond, it is split."""


def parts_for(inst: Instance, kind: Ints) -> int:
    """Into how many parts the jobs should be split."""
    count = len(kinds.classes(kind, inst.gangs, inst.rates).first)
    return max(1, -(-count // MOST_CLASSES))


def solve(
    inst: Instance, need: Need, kind: Ints, pair: Floats, parts: int, *, budget: Budget | None = None, seed: int = 0
) -> Answer:
    """Best theta of the split problem; `bound` is the unsplit one's, as far as known, and `gap` the loss."""
    budget = budget or Budget()
    if parts <= 1:
        return kinds.solve(inst, need, kind, pair, budget=budget)
    order = np.random.default_rng(seed).permutation(len(kind))
    order = order[np.lexsort((kind[order], inst.gangs[order]))]
    x = np.zeros(inst.rates.shape)
    pairs, pair_x, values, left_out = [], [], [], []
    for part in range(parts):
        rows = np.sort(order[part::parts])
        share = Instance(inst.rates[rows], inst.gangs[rows], inst.capacity / parts, inst.best[rows])
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
        x,
        value,
        bound,
        np.zeros(len(inst.capacity)),
        f"POP in {parts} parts",
        budget.spent_s,
        relative_gap(value, bound),
        np.concatenate(left_out),
        np.concatenate(pairs),
        np.concatenate(pair_x),
    )


def _bound(inst: Instance, need: Need, kind: Ints, pair: Floats) -> float:
    """What nobody can beat, with or without parts."""
    best = np.zeros((len(pair), len(inst.capacity)))
    present = np.unique(kind)
    best[present] = pair[np.ix_(present, present)].max(axis=1, initial=0.0)
    return prices.bound_with_sharing(inst, need, best[kind])
