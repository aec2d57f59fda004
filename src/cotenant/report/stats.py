"""Means over seeds with 95 % confidence intervals (Student's t), grouped by load, policy and placement.

Runs that differ only in their seed are independent samples of the same quantity, a handful at most, so the
interval is mean ± t(0.975, n - 1) · s / √n with s the sample standard deviation (n - 1 in the divisor).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cotenant.report.units import number

METRICS = (
    "avg_jct_s", "p50_jct_s", "p95_jct_s", "p99_jct_s", "avg_queue_s", "wdmr", "value_earned", "makespan_s",
    "gpu_utilization", "goodput", "preemptions", "restarts", "lost_gpu_h", "nodes_asleep", "wakeups_per_day",
    "saved_kwh", "jobs_delayed_by_waking", "fairness_jain", "network_lost_gpu_h",
)  # fmt: skip
"""Columns of a comparison row that are averaged over seeds."""

# Two-sided 95 % quantiles of Student's t for 1..30 degrees of freedom.
_T_975 = (
    12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157, 2.228139,
    2.200985, 2.178813, 2.160369, 2.144787, 2.131450, 2.119905, 2.109816, 2.100922, 2.093024, 2.085963,
    2.079614, 2.073873, 2.068658, 2.063899, 2.059539, 2.055529, 2.051831, 2.048407, 2.045230, 2.042272,
)  # fmt: skip
_Z_975 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over `n` runs and half the width of its 95 % interval; None with fewer than two runs."""

    mean: float
    half_width: float | None
    n: int


def t_quantile_975(degrees: int) -> float:
    """The 97.5 % quantile of Student's t.

    Up to 30 degrees of freedom from a table (error below 5e-7); beyond, the Cornish-Fisher expansion
    around the normal quantile to the third order (Abramowitz and Stegun 26.7.5), error below 1e-6.
    """
    if degrees < 1:
        raise ValueError("Student's t needs at least one degree of freedom")
    if degrees <= len(_T_975):
        return _T_975[degrees - 1]
    z, n = _Z_975, float(degrees)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3


def estimate(values: Iterable[object]) -> Estimate | None:
    """Mean and interval of the values that are numbers; None where there is none."""
    sample = [value for value in map(number, values) if value is not None]
    if not sample:
        return None
    size = len(sample)
    mean = math.fsum(sample) / size
    if size == 1:
        return Estimate(mean, None, 1)
    variance = math.fsum((value - mean) ** 2 for value in sample) / (size - 1)
    return Estimate(mean, t_quantile_975(size - 1) * math.sqrt(variance / size), size)


GROUP = ("load", "policy", "placement", "cluster", "varied")
"""What tells runs apart that are no samples of the same quantity."""


def same_runs(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether several seeds gave one and the same run, so that an interval would be over nothing."""
    return len(rows) > 1 and all(len({repr(row.get(metric)) for row in rows}) == 1 for metric in METRICS)


def aggregate(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per load, policy, placement, cluster and whatever else was varied, from rows of several seeds.

    The result has these, `runs` (1 where all seeds gave the same run), each of `METRICS` as an
    `Estimate` (None where no run has it) and `jct_ratio`: mean JCT over the best mean JCT at that load.
    Groups are sorted by load, then in the order in which they first appear.
    """
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        known = [str(row.get(name) or "") for name in GROUP[1:3]]
        groups.setdefault((number(row.get("load")), *known, *(row.get(name) for name in GROUP[3:])), []).append(row)
    ordered = sorted(groups, key=lambda key: -math.inf if key[0] is None else key[0])
    result: list[dict[str, Any]] = []
    for key in ordered:
        members = groups[key]
        made: dict[str, Any] = dict(zip(GROUP, key, strict=True))
        made["runs"] = 1 if same_runs(members) else len(members)
        members = members[: made["runs"]]
        made.update({metric: estimate(row.get(metric) for row in members) for metric in METRICS})
        result.append(made)
    for row in result:
        peers = [peer["avg_jct_s"].mean for peer in result if _together(peer, row) and peer["avg_jct_s"]]
        best = min(peers, default=0.0)
        own = row["avg_jct_s"]
        row["jct_ratio"] = own.mean / best if own is not None and best > 0 else None
    return result


def _together(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two rows are to be compared with each other."""
    return all(one[name] == other[name] for name in GROUP if name not in ("policy", "placement"))
