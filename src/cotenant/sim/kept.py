"""Outcomes on disk, by what they are outcomes of: a sweep that was interrupted goes on where it was.

A file is named by a digest of everything that decides a run: jobs, cluster, policy (and its file), options and version.
Inside are plain arrays and JSON, so reading one runs nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cotenant._version import __version__
from cotenant.core.errors import InputError
from cotenant.core.outcome import COLUMNS, Outcome, Segments, Series
from cotenant.core.workload import Codes, Workload
from cotenant.sim.experiment import Experiment

_NOT_PART = ("workload", "notes", "made", "compiled", "check_invariants", "transitions", "services")


class KeptRuns:
    """Outcomes in a folder."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--keep '{folder}': the folder cannot be made ({error.strerror})") from None
        self._folder = folder

    def load(self, experiment: Experiment) -> Outcome | None:
        """The outcome of this very experiment, if it was kept; a file that is cut off counts as none."""
        try:
            with np.load(self._path(experiment), allow_pickle=False) as data:
                about = json.loads(str(data["about"]))
                rows = data["rows"]
                whole = len(rows) == len(experiment.workload)
                return Outcome(
                    policy=experiment.policy, placement=experiment.placement, cluster=experiment.cluster.spec,
                    cluster_gpus=experiment.cluster.gpus,
                    workload=experiment.workload if whole else experiment.workload.take(rows),
                    series=Series(*data["series"]), segments=Segments(*(data[f"segments_{at}"] for at in range(5))),
                    summary=about["summary"], tenants=about["tenants"], **{name: data[name] for name in COLUMNS},
                )  # fmt: skip
        except (OSError, KeyError, ValueError, zipfile.BadZipFile):
            return None

    def save(self, experiment: Experiment, outcome: Outcome) -> None:
        """Keep it: written beside, then renamed, so that nobody reads half of it."""
        ids = {str(name): row for row, name in enumerate(experiment.workload.job_id.tolist())}
        rows = np.array([ids[str(name)] for name in outcome.workload.job_id.tolist()], np.int64)
        about = json.dumps({"summary": outcome.summary, "tenants": outcome.tenants}, default=float)
        segments = {f"segments_{at}": getattr(outcome.segments, part.name) for at, part in enumerate(fields(Segments))}
        series = np.array([getattr(outcome.series, part.name) for part in fields(Series)])
        columns = {name: getattr(outcome, name) for name in COLUMNS}
        target = self._path(experiment)
        fresh = target.with_suffix(f".{os.getpid()}")
        with fresh.open("wb") as file:
            np.savez_compressed(file, about=np.array(about), rows=rows, series=series, **segments, **columns)
        fresh.replace(target)

    def _path(self, experiment: Experiment) -> Path:
        return self._folder / f"{digest(experiment)}.npz"


def digest(experiment: Experiment) -> str:
    """Of everything that decides a run."""
    made = hashlib.sha256(__version__.encode())
    for part in fields(Experiment):
        if part.name not in _NOT_PART:
            made.update(f"{part.name}={getattr(experiment, part.name)!r};".encode())
    _feed(made, experiment.services)
    path = Path(experiment.policy.split(":", 1)[0])
    if path.suffix == ".py" and path.is_file():
        made.update(path.read_bytes())
    for part in fields(Workload):
        if part.name != "notes":
            _feed(made, getattr(experiment.workload, part.name))
    return made.hexdigest()[:32]


def _feed(made: Any, value: Any) -> None:
    if isinstance(value, Codes):
        _feed(made, value.code)
        made.update(repr(value.names).encode())
    elif isinstance(value, np.ndarray):
        made.update(repr(value.tolist()).encode() if value.dtype == object else np.ascontiguousarray(value).tobytes())
    elif isinstance(value, tuple):
        for item in value:
            _feed(made, item)
    elif is_dataclass(value):
        for part in fields(value):
            _feed(made, getattr(value, part.name))
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            made.update(repr(key).encode())
            _feed(made, value[key])
    else:
        made.update(repr(value).encode())
