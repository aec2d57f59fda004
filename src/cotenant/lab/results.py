"""What runs gave: summaries, jobs, time series and segments as data frames, plots, and how policies differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cotenant.core.errors import unknown
from cotenant.core.outcome import Outcome, Scalar
from cotenant.lab import frames
from cotenant.lab.plots import Plots

if TYPE_CHECKING:
    import polars as pl

SHOWN = ("policy", "seed", "load", "varied", "avg_jct_s", "p50_jct_s", "p99_jct_s", "avg_queue_s", "makespan_s",
         "gpu_utilization", "goodput", "preemptions", "fairness_jain")  # fmt: skip
"""Columns of a summary in notebooks; `summary` has all."""


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """One run. `metrics` is its summary by name; the rest are polars data frames.

    >>> from cotenant import simulate
    >>> result = simulate("philly-like:jobs=50,seed=1", "2x8", "srsf")
    >>> result.metrics["finished"], result.jobs.shape[0], result.timeline.columns
    (50, 50, ['time_s', 'gpus_busy', 'jobs_waiting', 'jobs_running'])
    """

    outcome: Outcome
    notes: tuple[str, ...] = ()

    @property
    def metrics(self) -> dict[str, Scalar]:
        """All fields of docs/simulator.md."""
        return self.outcome.summary

    @property
    def summary(self) -> pl.DataFrame:
        """The same as a data frame of one row."""
        return frames.rows_frame([self.metrics])

    @property
    def jobs(self) -> pl.DataFrame:
        """One row per job."""
        return frames.jobs_frame(self.outcome)

    @property
    def timeline(self) -> pl.DataFrame:
        """GPUs in use and jobs waiting over time."""
        return frames.timeline_frame(self.outcome)

    @property
    def segments(self) -> pl.DataFrame:
        """Who was where, from when to when."""
        return frames.segments_frame(self.outcome)

    @property
    def plot(self) -> Plots:
        """`result.plot.jct()` and others."""
        return Plots([self.outcome])

    @property
    def policy(self) -> str:
        """Its name."""
        return self.outcome.policy

    def __repr__(self) -> str:
        from cotenant.report.units import duration, number

        jct = number(self.metrics.get("avg_jct_s"))
        mean = "" if jct is None else f", average JCT {duration(jct)}"
        return f"<Result {self.policy}: {self.metrics.get('finished')} of {self.metrics.get('jobs')} jobs{mean}>"

    def _repr_html_(self) -> str:
        return frames.html_table(_shown(self.summary), repr(self)[1:-1])


class Results:
    """Runs of one workload under several policies, seeds and loads.

    >>> from cotenant import compare
    >>> found = compare("philly-like:jobs=50,seed=1", "2x8", ["fifo", "srsf"], workers=1)
    >>> found.policies, found["srsf"].policy
    (['fifo', 'srsf'], 'srsf')
    >>> found.differences.select("policy", "baseline", "metric").row(0)
    ('srsf', 'fifo', 'avg_jct_s')
    """

    def __init__(self, runs: list[Result], baseline: str) -> None:
        self.runs, self.baseline = runs, baseline

    @property
    def policies(self) -> list[str]:
        """Names, each once, in order."""
        return list(dict.fromkeys(run.policy for run in self.runs))

    @property
    def outcomes(self) -> list[Outcome]:
        """What the simulator gave, run by run."""
        return [run.outcome for run in self.runs]

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Summaries with what is worked out of them."""
        from cotenant.report.table import comparison_rows

        return comparison_rows(self.outcomes)

    @property
    def summary(self) -> pl.DataFrame:
        """One row per run, all fields."""
        return frames.rows_frame(self.rows)

    @cached_property
    def means(self) -> pl.DataFrame:
        """One row per policy and load: means over seeds, `_ci` being half the width of their 95 % intervals."""
        from cotenant.report.stats import Estimate, aggregate

        made = []
        for row in aggregate(self.rows):
            flat: dict[str, Any] = {}
            for key, value in row.items():
                flat[key] = value.mean if isinstance(value, Estimate) else value
                if isinstance(value, Estimate):
                    flat[f"{key}_ci"] = value.half_width
            made.append(flat)
        return frames.rows_frame(made)

    @cached_property
    def differences(self) -> pl.DataFrame:
        """Per policy and metric: the paired difference to the baseline with its 95 % interval, and how it was made."""
        from cotenant.report.differences import as_data
        from cotenant.report.paired import differences

        return frames.rows_frame(as_data(differences(self.rows, self.outcomes, self.baseline)))

    @property
    def jobs(self) -> pl.DataFrame:
        """All jobs of all runs."""
        return frames.labelled([(run.outcome, run.jobs) for run in self.runs])

    @property
    def timeline(self) -> pl.DataFrame:
        """All time series."""
        return frames.labelled([(run.outcome, run.timeline) for run in self.runs])

    @property
    def segments(self) -> pl.DataFrame:
        """All segments."""
        return frames.labelled([(run.outcome, run.segments) for run in self.runs])

    @property
    def plot(self) -> Plots:
        """`found.plot.jct()` and others."""
        return Plots(self.outcomes, self.baseline)

    def report(self, path: str | Path, title: str = "") -> None:
        """Write the same self-contained HTML file as `cotenant compare --html`."""
        from cotenant.report.html import write_html
        from cotenant.report.paired import differences, doubts
        from cotenant.report.table import FIELDS, aggregate

        several = len(self.runs) > len(self.policies)
        better = {field.key: field.better for field in FIELDS}
        write_html(
            self.outcomes, path, title=title or f"{len(self.policies)} policies", command="cotenant.compare(...)",
            rows=self.rows, aggregates=aggregate(self.rows) if several else None,
            lines=differences(self.rows, self.outcomes, self.baseline),
            doubts=doubts(self.rows, self.outcomes, better),
        )  # fmt: skip

    def __getitem__(self, policy: str) -> Result:
        """The first run of a policy."""
        for run in self.runs:
            if run.policy == policy:
                return run
        raise unknown("policy in this comparison", policy, self.policies)

    def __iter__(self) -> Iterator[Result]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def __repr__(self) -> str:
        return f"<Results of {', '.join(self.policies)}: {len(self)} runs>"

    def _repr_html_(self) -> str:
        return frames.html_table(_shown(self.summary), repr(self)[1:-1])


def _shown(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select([column for column in SHOWN if column in frame.columns])
