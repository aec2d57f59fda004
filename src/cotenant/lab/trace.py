"""A workload as a Python object: read or generated, filtered, described, as a data frame and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError
from cotenant.core.workload import Workload
from cotenant.lab.frames import html_table, pandas_of

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


@dataclass(frozen=True, slots=True, repr=False)
class Trace:
    """Jobs of a log or a generator. `work` has them as NumPy columns, `notes` says what the reader did to them.

    >>> trace = Trace.generate("philly-like:jobs=50,seed=1", cluster="2x8")
    >>> trace
    <Trace philly-like:jobs=50,seed=1: 50 jobs, 45.3 h, 653 GPU-hours>
    >>> large = trace.filter("gpus >= 4")
    >>> len(large), large.to_polars().columns[:4]
    (6, ['job_id', 'submit_s', 'num_gpus', 'duration_s'])
    """

    work: Workload

    @classmethod
    def read(cls, path: str | Path, *, format: str | None = None, profile: str | Path | None = None) -> Trace:
        """A log of any format that `cotenant` reads (docs/workloads.md)."""
        from cotenant.workload.readers import read

        return cls(read(path, format=format, profile=profile))

    @classmethod
    def generate(cls, spec: str, cluster: str | Cluster | None = None) -> Trace:
        """A generated workload, `philly-like:jobs=2000,load=0.9`; its load refers to the GPUs of `cluster`."""
        from cotenant.core.spec import Spec
        from cotenant.workload.generators import generate

        gpus = None if cluster is None else cluster_of(cluster).gpus
        return cls(generate(Spec.parse(spec), gpus, None))

    @classmethod
    def from_polars(cls, frame: pl.DataFrame, name: str = "data frame") -> Trace:
        """Jobs from columns `job_id, submit_s, num_gpus, duration_s` and whatever else our CSV knows.

        >>> import polars as pl
        >>> Trace.from_polars(pl.DataFrame({"job_id": ["a"], "submit_s": [0], "num_gpus": [4], "duration_s": [60.0]}))
        <Trace data frame: 1 job, 0 s, 0.0667 GPU-hours>
        """
        from cotenant.workload.readers import own
        from cotenant.workload.readers.table import Table

        missing = [column for column in own.REQUIRED if column not in frame.columns]
        if missing and missing != ["duration_s"]:
            raise InputError(f"{name}: column '{missing[0]}' is missing; it needs {', '.join(own.REQUIRED)}")
        return cls(own.OwnLog().parse(Table(Path(name), frame, np.arange(len(frame))), None))

    @classmethod
    def from_pandas(cls, frame: pd.DataFrame, name: str = "data frame") -> Trace:
        """The same from pandas."""
        import polars as pl

        columns = {str(key): [None if cell != cell else cell for cell in frame[key].tolist()] for key in frame.columns}
        return cls.from_polars(pl.DataFrame(columns, strict=False), name)

    def to_polars(self) -> pl.DataFrame:
        """The jobs with the columns of our CSV."""
        from cotenant.workload.writer import to_frame

        return to_frame(self.work)

    def to_pandas(self) -> pd.DataFrame:
        """The same for pandas."""
        return pandas_of(self.to_polars())

    def write(self, path: str | Path) -> None:
        """Write our CSV (`.csv`, `.gz`) or `.parquet`."""
        from cotenant.workload.writer import write_csv

        write_csv(self.work, path)

    def filter(self, where: str = "", *, since: str | float = "", until: str | float = "") -> Trace:
        """The jobs of which `where` holds, submitted from `since` to before `until`.

        Both may be seconds of the log, lengths of time after its first job ("2d"), or dates where the log has them.

        >>> trace = Trace.generate("philly-like:jobs=50,seed=1", cluster="2x8")
        >>> len(trace.filter("gpus == 1 and duration_s < 3600", until="1d"))
        19
        """
        from cotenant.workload.selecting import select

        return Trace(select(self.work, where, str(since), str(until)))

    def describe(self, cluster: str | Cluster | None = None) -> dict[str, Any]:
        """Counts, sizes, durations, flaws, and for a cluster the offered load."""
        from cotenant.workload.describe import describe

        return describe(self.work, None if cluster is None else cluster_of(cluster).gpus)

    def scaled(self, load: float, cluster: str | Cluster) -> Trace:
        """The same jobs, arriving faster or slower so that the offered load on a cluster is as asked."""
        from cotenant.sim.sweep import scale_load

        return Trace(scale_load(self.work, cluster_of(cluster).gpus, load))

    def renamed(self, name: str) -> Trace:
        """The same under another name, as reports show it."""
        return Trace(replace(self.work, source=name))

    @property
    def name(self) -> str:
        """Where it comes from."""
        return self.work.source

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reader left out, sorted or ignored."""
        return self.work.notes

    def __len__(self) -> int:
        return len(self.work)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.to_polars().iter_rows(named=True)

    def __repr__(self) -> str:
        from cotenant.report.units import significant, unit_for

        unit = unit_for(self.work.span_s)
        span = f"{self.work.span_s / unit.seconds:.1f} days" if unit.name == "d" else _span(self.work.span_s)
        jobs = f"{len(self):,} job{'s' * (len(self) != 1)}"
        return f"<Trace {self.name}: {jobs}, {span}, {significant(self.work.gpu_s / 3600)} GPU-hours>"

    def _repr_html_(self) -> str:
        return html_table(self.to_polars(), repr(self)[1:-1])


def _span(seconds: float) -> str:
    from cotenant.report.units import duration

    return duration(seconds)


def cluster_of(given: str | Path | Cluster) -> Cluster:
    """A cluster as it is, from a spec such as `16x8:h200`, or from a YAML file."""
    from cotenant.workload.cluster_file import load_cluster

    return given if isinstance(given, Cluster) else load_cluster(str(given))


def workload_of(given: str | Path | Trace | Workload, cluster: Cluster) -> Workload:
    """Jobs from a trace, a file or a generator."""
    from cotenant.workload.generators import GENERATORS

    if isinstance(given, Trace):
        return given.work
    if isinstance(given, Workload):
        return given
    text = str(given)
    return (Trace.generate(text, cluster) if text.split(":", 1)[0] in GENERATORS else Trace.read(text)).work
