"""How long a job of Pollux' workloads (OSDI'21) runs as it was asked for, from the profiles released with them.

A folder per application: `validation-M.csv` (one row per epoch at batch M, with the iterations so far),
`placements.csv` and `scalability.csv` (seconds of a step, and of its synchronisation, by GPUs and samples per GPU, on
nodes of 4 GPUs). A job is taken to do all epochs of the profile at its own batch on as few nodes as it needs; between
measured batches and sample counts lines are drawn. What Pollux itself would do, another batch or other GPUs, is not
in it.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np

from cotenant.core.errors import InputError

PER_NODE = 4


def duration_s(folder: Path, application: str, replicas: int, batch: float) -> float:
    """Seconds of one job on so many GPUs."""
    home = folder / application
    if not home.is_dir():
        known = ", ".join(sorted(one.name for one in folder.iterdir() if one.is_dir()))
        raise InputError(f"{folder}: has no profile of '{application}'; there are: {known or 'none'}")
    return _iterations(home, batch) * _step_s(home, replicas, batch / replicas)


def _iterations(home: Path, batch: float) -> float:
    """Until the last epoch, at this batch: a line between measured batches, both on log scales."""
    found = {}
    for path in home.glob("validation-*.csv"):
        size = path.stem.partition("-")[2]
        if size.isdigit():
            found[int(size)] = float(_rows(path, ("iteration",))[-1]["iteration"])
    if not found:
        raise InputError(f"{home}: has no validation-BATCH.csv")
    sizes = sorted(found)
    return math.exp(np.interp(math.log(batch), np.log(sizes), np.log([found[size] for size in sizes])))


def _step_s(home: Path, replicas: int, samples: float) -> float:
    """One step of a batch; more samples than a GPU holds are taken in several passes, of which one synchronises."""
    nodes = -(-replicas // PER_NODE)
    name, columns = (
        ("placements.csv", ("placement",)) if nodes <= 4 else ("scalability.csv", ("num_nodes", "num_replicas"))
    )
    rows = _rows(home / name, (*columns, "local_bsz", "step_time", "sync_time"))
    if nodes <= 4:
        packed = f"{replicas % PER_NODE or ''}{str(PER_NODE) * (replicas // PER_NODE)}"
        mine = [row for row in rows if row["placement"] == packed]
    else:
        fits = [row for row in rows if int(row["num_replicas"]) == replicas and int(row["num_nodes"]) >= nodes]
        least = min((int(row["num_nodes"]) for row in fits), default=0)
        mine = [row for row in fits if int(row["num_nodes"]) == least]
    if not mine:
        raise InputError(f"{home / name}: has no row for {replicas} GPUs on {nodes} nodes of {PER_NODE}")
    table = np.array(
        sorted((float(row["local_bsz"]), float(row["step_time"]), float(row["sync_time"])) for row in mine)
    )
    passes = math.ceil(samples / table[-1, 0])
    step, sync = (float(np.interp(samples / passes, table[:, 0], table[:, at])) for at in (1, 2))
    return passes * step - (passes - 1) * sync


def _rows(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    lacking = [column for column in columns if not rows or not rows[0].get(column)]
    if lacking:
        raise InputError(f"{path} line 1: column is missing: '{lacking[0]}'")
    return rows
