"""Gavel's `pairs=online` in the service: pairs that neither the profile knows nor anybody has seen, completed.

What the profile knows and what was measured stand for the profiling of the simulator: kinds that are known in all pairs
among themselves are the references, and what is known of another kind places it among them (`pair_estimator`). A kind
of which nothing is known is as the references are on average.
"""

from __future__ import annotations

import numpy as np

from cotenant.beliefs.pair_estimator import Block
from cotenant.core.spec import Spec
from cotenant.core.workload import Floats, Ints

FEWEST = 2  # references, from which anything can be told


def completes(belief: str) -> bool:
    """Whether a policy that believes this of pairs wants the rest completed."""
    return Spec.parse(belief).name == "online" if belief else False


def completed(ratio: Floats, gpus: Ints, belief: str) -> Floats:
    """`ratio[kind, other, type]` with what is NaN completed, among kinds of one GPU count; NaN where nothing can be."""
    params = Spec.parse(belief).params
    rule, most = str(params.get("rule", "mixture")), int(str(params.get("references", 16)))
    found = ratio.copy()
    for size in np.unique(gpus).tolist():
        rows = np.flatnonzero(gpus == size)
        for column in range(ratio.shape[2]):
            measured = ratio[np.ix_(rows, rows)][:, :, column : column + 1]
            references = _references(~np.isnan(measured[:, :, 0]))[:most]
            if len(references) >= FEWEST:
                found[np.ix_(rows, rows, [column])] = Block(measured.copy(), references, rule).table()
    return found


def _references(known: np.ndarray) -> Ints:
    """Kinds that are known beside each other and themselves, whoever is known best first."""
    chosen: list[int] = []
    for kind in np.argsort(-(known & known.T).sum(axis=1), kind="stable").tolist():
        if known[kind, kind] and all(known[kind, other] and known[other, kind] for other in chosen):
            chosen.append(kind)
    return np.sort(np.array(chosen, np.int64))
