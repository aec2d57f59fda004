"""Differences against a baseline, taken pair by pair, with 95 % intervals: what is the same for both cancels out.

* Over seeds: each seed gives one difference of two runs of the same workload; the mean, and how far its interval
  reaches on either side (`bootstrap_t`; Student's t with fewer than five seeds).
* The change in percent is the ratio R of the two means, less 1; its interval is that of the residuals x - R b over the
  mean of b (the delta method), so that it narrows where a policy is better by the same factor each time.
* Over one log: each job gives one difference. Neighbours share their congestion, so jobs are drawn in runs of
  neighbours (moving block bootstrap, circular, Künsch 1989; Politis and Romano 1992). The interval is the mean ±
  t(k - 1) · √(k / (k - 1)) · the standard deviation over draws, where k is the number of blocks in the log: few blocks
  mean a wide interval. It tells how far the mean would move had other jobs like these come in another order; it knows
  nothing of loads, clusters or users that the log has not seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cotenant.core.outcome import Outcome
from cotenant.core.workload import Floats
from cotenant.report.bootstrap_t import FEWEST, FEWEST_DRAWN, reach
from cotenant.report.stats import t_quantile_975
from cotenant.report.units import number

DRAWS = 1000
FEWEST_BLOCKS = 8
PER_JOB = {"avg_jct_s": "jct_s", "avg_queue_s": "queue_s"}
"""Metrics that are means over jobs, for which a log gives intervals too."""
GROUP = ("load", "placement", "cluster", "varied")


@dataclass(frozen=True, slots=True)
class Difference:
    """How one policy differs from the baseline in one metric. `half_width` is None where nothing can be said."""

    policy: str
    metric: str
    baseline: float
    mean: float
    half_width: float | None
    n: int
    method: str
    change_half: float | None = None  # of the relative change, as a share of the baseline
    shift: float = 0.0  # from the mean to the middle of the interval
    change_shift: float = 0.0

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.mean + self.shift - (self.half_width or 0.0)

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.mean + self.shift + (self.half_width or 0.0)

    @property
    def change_ends(self) -> tuple[float, float] | None:
        """Both ends of the interval of the relative change; None where there is none."""
        if self.change is None or self.change_half is None:
            return None
        middle = self.change + self.change_shift
        return max(middle - self.change_half, -1.0), middle + self.change_half  # nothing takes less than no time

    @property
    def change(self) -> float | None:
        """The difference as a share of the baseline: -0.05 is five percent less."""
        return self.mean / self.baseline if self.baseline else None

    @property
    def clear(self) -> bool:
        """Whether there is an interval that leaves no doubt about the sign."""
        if self.change_ends is None:
            return self.half_width is not None and not self.low <= 0.0 <= self.high
        low, high = self.change_ends
        return not low <= 0.0 <= high


def over_seeds(
    rows: Sequence[Mapping[str, Any]], baseline: str, metric: str, group: Mapping[str, Any] | None = None
) -> dict[str, Difference]:
    """By policy: mean difference to the baseline over the seeds that both have, within one group of rows."""
    of: dict[str, dict[Any, float]] = {}
    for row in rows:
        value = number(row.get(metric))
        if value is not None and all(row.get(key) == wanted for key, wanted in (group or {}).items()):
            of.setdefault(str(row["policy"]), {})[row.get("seed")] = value
    base = of.get(baseline, {})
    found = {}
    for policy, values in of.items():
        seeds = [seed for seed in values if seed in base]
        if policy == baseline or not seeds:
            continue
        ours, theirs = (np.array([of[seed] for seed in seeds], np.float64) for of in (values, base))
        found[policy] = _over_seeds(policy, metric, ours, theirs)
    return found


def _over_seeds(policy: str, metric: str, ours: Floats, theirs: Floats) -> Difference:
    """The difference of two policies, seed by seed."""
    count, each = len(ours), ours - theirs
    mean, level = math.fsum(each) / count, math.fsum(theirs) / count
    way = "bootstrap-t" if count >= FEWEST_DRAWN else "t for skewed values" if count >= FEWEST else "t"
    method = f"paired {way} over {count} seeds"
    if lopsided(each.tolist()):
        method += " (lopsided: a few seeds make the difference, and the interval may be too narrow; take more)"
    if count < 2 or same_runs(theirs.tolist()):
        return Difference(policy, metric, level, mean, None, count, method)
    below, above = reach(each)
    made = Difference(
        policy, metric, level, mean, (below + above) / 2, count, method, shift=(above - below) / 2
    )  # fmt: skip
    if not level:
        return made
    below, above = reach(ours - (1.0 + mean / level) * theirs)
    return replace(made, change_half=(below + above) / 2 / abs(level), change_shift=(above - below) / 2 / abs(level))


def lopsided(values: Sequence[float]) -> bool:
    """Whether a mean over these is far from normal: skewness above 1.5, with enough values to tell."""
    array = np.asarray(values, np.float64)
    spread = float(array.std())
    return len(array) >= 5 and spread > 0 and abs(float(((array - array.mean()) ** 3).mean())) > 1.5 * spread**3


def same_runs(values: Sequence[float]) -> bool:
    """Whether several seeds gave one and the same number, so that there is nothing to be uncertain about."""
    return len(values) > 1 and min(values) == max(values)


def over_jobs(outcome: Outcome, baseline: Outcome, metric: str = "avg_jct_s", seed: int = 0) -> Difference | None:
    """The difference of one run to another of the same log; None where they did not finish the same jobs."""
    column = PER_JOB[metric]
    both = outcome.finished & baseline.finished if len(outcome.measured) == len(baseline.measured) else None
    if both is None or not both.any() or (outcome.workload.job_id != baseline.workload.job_id).any():
        return None
    ours, theirs = getattr(outcome, column)[both], getattr(baseline, column)[both]
    mean, half, length = block_bootstrap(ours - theirs, seed=seed)
    method = f"moving block bootstrap over {len(ours)} jobs in blocks of {length}, {DRAWS} draws"
    level, change_half = float(theirs.mean()), None
    if half is not None and level:
        rest = block_bootstrap(ours - (1.0 + mean / level) * theirs, seed=seed, length=length)[1]
        change_half = None if rest is None else rest / level
    return Difference(outcome.policy, metric, level, mean, half, len(ours), method, change_half)


def block_bootstrap(
    values: Floats, draws: int = DRAWS, seed: int = 0, length: int = 0
) -> tuple[float, float | None, int]:
    """Mean, half width of its interval, and length of the blocks; no interval with too few values or no variance.

    Blocks are long enough that what is left of the correlation between neighbours is small: twice the lag at which it
    falls below 0.1, but at least the square root of the count, and at most an eighth of it.
    """
    count = len(values)
    mean = float(values.mean())
    if count < 3 * FEWEST_BLOCKS or float(values.std()) == 0.0:
        return mean, None, max(count, 1)
    length = length or block_length(values)
    blocks = math.ceil(count / length)
    sums = np.concatenate([[0.0], np.cumsum(np.concatenate([values, values[:length]]))])
    of_start = (sums[length:] - sums[:-length])[:count] / length
    starts = np.random.default_rng(seed).integers(0, count, (draws, blocks))
    spread = float(of_start[starts].mean(axis=1).std(ddof=1)) * math.sqrt(blocks / (blocks - 1))
    return mean, t_quantile_975(blocks - 1) * spread, length


def block_length(values: Floats) -> int:
    """How many neighbours are drawn together."""
    count = len(values)
    least, most = max(round(count**0.5), 1), max(count // FEWEST_BLOCKS, 1)
    centred = values - values.mean()
    size = 1 << (2 * count - 1).bit_length()
    power = np.abs(np.fft.rfft(centred, size)) ** 2
    correlation = np.fft.irfft(power, size)[:most]
    below = np.flatnonzero(correlation < 0.1 * correlation[0])
    lag = int(below[0]) if len(below) else most
    return int(min(max(2 * lag, least), most))


def differences(
    rows: Sequence[Mapping[str, Any]],
    outcomes: Sequence[Outcome],
    baseline: str,
    metrics: Sequence[str] = ("avg_jct_s", "p95_jct_s", "p99_jct_s", "avg_queue_s", "makespan_s"),
) -> list[dict[str, Any]]:
    """One row per group and policy: `policy`, `load`, ..., and a `Difference` per metric, where one can be said."""
    found = []
    for group in groups_of(rows):
        here = [i for i, row in enumerate(rows) if all(row.get(key) == value for key, value in group.items())]
        several = len({rows[i].get("seed") for i in here}) > 1
        by_metric = {metric: over_seeds(rows, baseline, metric, group) for metric in metrics}
        base = next((outcomes[i] for i in here if rows[i]["policy"] == baseline), None)
        for policy in dict.fromkeys(str(rows[i]["policy"]) for i in here):
            if policy == baseline or base is None:
                continue
            line: dict[str, Any] = {"policy": policy, "baseline": baseline, **group}
            own = next(outcomes[i] for i in here if rows[i]["policy"] == policy)
            for metric in metrics:
                made = by_metric[metric].get(policy)
                if made is not None and metric in PER_JOB and (not several or made.half_width is None):
                    made = over_jobs(own, base, metric) or made
                line[metric] = made
            found.append(line)
    return found


def groups_of(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What tells apart the rows that are not to be compared with each other, in order of first appearance."""
    keys = [key for key in GROUP if any(row.get(key) is not None for row in rows)]
    return [dict(group) for group in dict.fromkeys(tuple((key, row.get(key)) for key in keys) for row in rows)]


Doubts = dict[tuple[str, tuple[tuple[str, Any], ...]], set[str]]


def doubts(rows: Sequence[Mapping[str, Any]], outcomes: Sequence[Outcome], better: Mapping[str, int]) -> Doubts:
    """By metric and group: who cannot be told from the best one. `better`: metric -> 1 (more) or -1 (less)."""
    found: Doubts = {}
    for group in groups_of(rows):
        here = [i for i, row in enumerate(rows) if all(row.get(key) == value for key, value in group.items())]
        for metric, sign in better.items():
            of: dict[str, list[float]] = {}
            for i in here:
                value = number(rows[i].get(metric))
                if value is not None:
                    of.setdefault(str(rows[i]["policy"]), []).append(value)
            if len(of) < 2 or not sign:
                continue
            means = {policy: math.fsum(values) / len(values) for policy, values in of.items()}
            best = max(means, key=lambda policy: sign * means[policy])
            lines = differences([rows[i] for i in here], [outcomes[i] for i in here], best, (metric,))
            found[metric, tuple(group.items())] = {line["policy"] for line in lines if _in_doubt(line[metric])}
    return found


def _in_doubt(difference: Difference | None) -> bool:
    return difference is not None and difference.half_width is not None and not difference.clear
