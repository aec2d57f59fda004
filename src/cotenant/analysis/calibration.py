"""How well policies explain what a log says happened: waits as simulated against waits as logged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cotenant.core.outcome import Outcome
from cotenant.core.workload import Floats

CLOSE_S, CLOSE_FACTOR = 300.0, 2.0


@dataclass(frozen=True, slots=True)
class Explained:
    """One policy against the log, over the jobs that finished in both. Ranks are Spearman's correlation of waits."""

    policy: str
    jobs: int
    logged_wait_s: float
    wait_s: float
    median_error_s: float
    close: float
    rank: float | None
    jct_error: float

    def as_dict(self) -> dict[str, object]:
        """Plain data."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def explain_log(logged: Outcome, runs: Sequence[Outcome]) -> list[Explained]:
    """Every run against the log, the best explanation first: by the share of jobs whose wait is close."""
    found = []
    row_of = {str(name): row for row, name in enumerate(logged.workload.job_id.tolist())}
    for run in runs:
        rows = np.array([row_of[str(name)] for name in run.workload.job_id.tolist()], np.int64)
        both = run.finished & logged.finished[rows]
        ours, theirs = run.queue_s[both], logged.queue_s[rows][both]
        error = np.abs(ours - theirs)
        far = np.maximum(ours, theirs) > CLOSE_FACTOR * np.minimum(ours, theirs)
        jct, logged_jct = run.jct_s[both].mean(), logged.jct_s[rows][both].mean()
        found.append(
            Explained(
                run.policy, int(both.sum()), float(theirs.mean()), float(ours.mean()), float(np.median(error)),
                float(((error <= CLOSE_S) | ~far).mean()), _rank_correlation(ours, theirs), float(jct / logged_jct - 1),
            )
        )  # fmt: skip
    return sorted(found, key=lambda one: -one.close)


def _rank_correlation(ours: Floats, theirs: Floats) -> float | None:
    """Spearman's, over the jobs that waited a minute in either; None where too few did."""
    waited = (ours > 60) | (theirs > 60)
    if waited.sum() < 3:
        return None
    a, b = _ranks(ours[waited]), _ranks(theirs[waited])
    if a.std() == 0 or b.std() == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def _ranks(values: Floats) -> Floats:
    """Ranks, equal values sharing their mean."""
    order = np.argsort(values, kind="stable")
    ranks = np.empty(len(values))
    ranks[order] = np.arange(len(values))
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    sums = np.bincount(inverse, ranks)
    return np.asarray((sums / counts)[inverse], np.float64)


def verdict(found: Sequence[Explained]) -> str:
    """What that means for a what-if, in words."""
    best = found[0]
    off = 100 * abs(best.jct_error)
    share = f"{100 * best.close:.0f} % of the waits are within 5 minutes or a factor of 2"
    told = f"'{best.policy}' explains the log best: {share}"
    if best.close < 0.5:
        return (
            f"{told}. That is little: something else decided (limits, reservations, nodes that were down, partitions),"
            " and a what-if from here says how policies compare, not what would have happened"
        )
    return (
        f"{told}, and the average completion time is {off:.0f} % off. Take differences of a what-if that are smaller"
        " than that for nothing, and compare with the row of this policy rather than with the log"
    )
