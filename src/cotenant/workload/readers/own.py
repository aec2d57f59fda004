"""Cotenant's own CSV: `job_id,submit_s,num_gpus,duration_s` and what else is known of a job.

Seconds, GiB and whole GPUs. `vc` is read as tenant. `attempts` lists the seconds of the attempts that failed
before the last one, joined by `;`; they are part of `duration_s`. A strict deadline is a moment in `deadline_s`, on the
clock of `submit_s`; a soft one is a list of steps in `deadlines`, `3600:1.0;7200:0.5`: seconds after submission, and
what ending by then is worth. A job has one or the other, or none. A job with `min_gpus` or `max_gpus` is elastic: it
runs on so many GPUs at least (1 if empty) and at most (any number if empty), and `duration_s` is what it takes on
`num_gpus`. With `steps` a job may leave `duration_s` empty: it then takes so many steps at the speed of its `model` in
the profile. `batch` names the batch size of the model where it is not the profile's own: `gpt2 (batch size 16)`.
`weight` is a job's share of the time against others with whom it takes turns (1 if empty), and a job whose `movable`
is 0 is not moved while it runs. `slice` is the part of its one GPU that a job asks for: `2g`, or `2/7`. `gpu_mem` is
what a job needs of the memory of each of its GPUs at its peak, GiB, `gpu_mem_min` what it can do with (all of it if
empty), and `gpu_mem_speeds` how fast it is in between, `10:0.6;13:0.9`: GiB, and speed against its peak. On a cluster
with a network a job sends `gradient_mb` in a step, which takes `step_s` without that. What a cluster wrote down of how
jobs went (`submit_time`, `wait_s`, `failure`, ...) is for `cotenant analyze` alone.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cotenant.core.deadlines import STRICT_VALUE
from cotenant.core.declared import DECLARED, parse_speeds
from cotenant.core.errors import InputError, unknown
from cotenant.core.network import TOLD
from cotenant.core.workload import Codes, Floats, Ints, Workload
from cotenant.workload.elastic import BY_NAME, LIMITS
from cotenant.workload.readers.base import STATUS_OF, Reader, build, facts, keep_gpu_rows, status_word, statuses
from cotenant.workload.readers.table import Table

LONGEST_S = 100 * 366 * 86400.0
REQUIRED = ("job_id", "submit_s", "num_gpus", "duration_s")
OPTIONAL = (
    "tenant", "vc", "user", "model", "status", "cpus", "mem_gib", "deadline_s", "deadlines", "min_gpus", "max_gpus",
    "priority", "gpu_type", "nodes", "attempts", "steps", "batch", "weight", "movable", "slice", *TOLD, *DECLARED,
)  # fmt: skip
SEEN = {
    "queue_s": "wait_s", "wait_s": "wait_s", "fair_share_s": "fair_share_s", "fragmentation_s": "fragmentation_s",
    "servers": "servers", "gpu_util": "gpu_util", "time_limit_s": "time_limit_s",
}  # fmt: skip
SEEN_TEXTS = ("failure", "partition", "qos", "gpu_kind")
"""What the cluster saw of the jobs, where a log has it; `submit_time` (dates) beside these."""


class OwnLog(Reader):
    """The format that `cotenant generate` writes."""

    name: ClassVar[str] = "cotenant"
    about: ClassVar[str] = "own CSV (job_id, submit_s, num_gpus, duration_s, optional tenant, user, ...)"
    required: ClassVar[tuple[str, ...]] = REQUIRED
    duration_means: ClassVar[str] = "the time on GPUs as the log gives it, all attempts added up"

    def matches(self, columns: tuple[str, ...]) -> bool:
        """Steps stand in for durations."""
        return super().matches((*columns, "duration_s") if "steps" in columns else columns)

    def parse(self, table: Table, profile: Path | None) -> Workload:
        """Columns as they are; optional numbers may be empty."""
        table = table.ignore_others((*REQUIRED, *OPTIONAL, *SEEN, *SEEN_TEXTS, "submit_time"))
        ids = table.ids("job_id")
        table, gpus = keep_gpu_rows(table, "num_gpus")
        if len(ids) > len(table):
            ids = table.ids("job_id")
        submit_s = table.numbers("submit_s", low=None)
        duration_s, steps = _durations(table)
        deadline_s, extra = _deadlines(table, submit_s)
        model, limits = _models(table), _limits(table, gpus)
        if limits:
            table = _note_rigid(table, model, limits)
        return build(
            table,
            ids,
            submit_s,
            gpus,
            duration_s,
            tenant=table.codes("tenant" if table.has("tenant") else "vc"),
            user=table.codes("user"),
            model=model,
            status=_status(table),
            cpus=table.optional("cpus"),
            mem_gib=table.optional("mem_gib"),
            deadline_s=deadline_s,
            priority=_whole(table, "priority", low=None),
            gpu_type=table.codes("gpu_type"),
            nodes=_nodes(table, gpus),
            attempts=_attempts(table, duration_s),
            extra={
                **extra,
                **limits,
                **steps,
                **_weights(table),
                **_movable(table),
                **_slices(table, gpus),
                **_sends(table),
                **_memory(table),
                **_seen(table),
            },
        )


def _weights(table: Table) -> dict[str, NDArray[np.generic]]:
    """Weights, all above 0."""
    if not table.has("weight"):
        return {}
    weight = table.numbers("weight", empty=1.0)
    if not (weight > 0).all():
        at = int(np.argmin(weight > 0))
        raise InputError(f"{table.where(at)}: weight is {weight[at]:g}: write a number above 0")
    return {"weight": weight}


def _movable(table: Table) -> dict[str, NDArray[np.generic]]:
    """Who may be moved while it runs: 0 or 1."""
    if not table.has("movable"):
        return {}
    values = table.numbers("movable", empty=1.0)
    if not np.isin(values, (0.0, 1.0)).all():
        at = int(np.argmin(np.isin(values, (0.0, 1.0))))
        raise InputError(f"{table.where(at)}: movable is {values[at]:g}: write 0 or 1")
    return {"movable": values > 0}


def _sends(table: Table) -> dict[str, NDArray[np.generic]]:
    """What jobs send in a step, and how long one takes without that; NaN where a job says nothing of it."""
    found: dict[str, NDArray[np.generic]] = {name: table.optional(name) for name in TOLD if table.has(name)}
    if "step_s" in found and (found["step_s"] == 0).any():
        raise InputError(f"{table.where(int(np.argmax(found['step_s'] == 0)))}: step_s is 0: write a time above 0")
    return found


def _slices(table: Table, gpus: Ints) -> dict[str, NDArray[np.generic]]:
    """Parts of a GPU that jobs ask for: texts, as tables of slices name them."""
    if not table.has("slice"):
        return {}
    texts = np.asarray(table.text("slice").to_numpy(), dtype=object)
    gangs = (texts != "") & (gpus != 1)
    if gangs.any():
        at = int(np.argmax(gangs))
        raise InputError(f"{table.where(at)}: slice is '{texts[at]}' of {gpus[at]} GPUs: a slice is a part of one GPU")
    return {"slice": texts}


def _memory(table: Table) -> dict[str, NDArray[np.generic]]:
    """What jobs need of a GPU's memory, NaN or () where they do not say."""
    amounts = {name: table.optional(name) for name in DECLARED[:2] if table.has(name)}
    if len(amounts) == 2 and (wrong := amounts["gpu_mem_min"] > amounts["gpu_mem"]).any():
        at = int(np.argmax(wrong))
        least, peak = float(amounts["gpu_mem_min"][at]), float(amounts["gpu_mem"][at])
        raise InputError(f"{table.where(at)}: gpu_mem_min is {least:g}, more than gpu_mem, {peak:g}")
    found: dict[str, NDArray[np.generic]] = {**amounts}
    if table.has(DECLARED[2]):
        speeds = np.empty(len(table), object)
        for row, cell in enumerate(table.text(DECLARED[2]).to_list()):
            where = f"{table.where(row)}: gpu_mem_speeds is '{cell}'"
            speeds[row] = parse_speeds([part.split(":") for part in cell.split(";")], where) if cell else ()
        found[DECLARED[2]] = speeds
    return found


def _seen(table: Table) -> dict[str, NDArray[np.generic]]:
    """How jobs went, as far as the log says: dates that are none and cells that are no numbers are not known."""
    found = facts(table, SEEN)
    if table.has("submit_time") and not np.isnan(clock_s := table.dates("submit_time")).any():
        found["submit_clock_s"] = clock_s
    for name in SEEN_TEXTS:
        if table.has(name):
            found[name] = np.asarray(table.text(name).to_numpy(), dtype=object)
    return found


def _durations(table: Table) -> tuple[Floats, dict[str, NDArray[np.generic]]]:
    """Seconds, NaN where a job has steps only; and the steps, where the log has them."""
    if not table.has("steps"):
        return _possible(table, table.numbers("duration_s")), {}
    steps = table.optional("steps")
    duration_s = table.optional("duration_s")
    if (np.isnan(steps) & np.isnan(duration_s)).any():
        at = int(np.argmax(np.isnan(steps) & np.isnan(duration_s)))
        raise InputError(f"{table.where(at)}: steps and duration_s are both empty; give one of them")
    return _possible(table, duration_s), {"steps": steps}


def _possible(table: Table, duration_s: Floats) -> Floats:
    """Refuse durations that no job has."""
    if (duration_s > LONGEST_S).any():
        at = int(np.argmax(duration_s > LONGEST_S))
        raise InputError(f"{table.where(at)}: duration_s is {duration_s[at]:g}, more than a hundred years")
    return duration_s


def _models(table: Table) -> Codes:
    """Models, with the batch size in their name where one is given, as profiles name them."""
    model, batch = table.codes("model"), _whole(table, "batch")
    if batch is None or not batch.any():
        return model
    names = (model.names[code] for code in model.code.tolist())
    return Codes.of(
        [f"{name} (batch size {size})" if size and name else name for name, size in zip(names, batch, strict=True)]
    )


def _deadlines(table: Table, submit_s: Floats) -> tuple[Floats, dict[str, NDArray[np.generic]]]:
    """First deadlines, and where jobs have soft ones the steps of all, as `core.deadlines` reads them."""
    first_s = table.optional("deadline_s", low=None)
    if (first_s < submit_s).any():
        at = int(np.argmax(first_s < submit_s))
        raise InputError(
            f"{table.where(at)}: deadline_s is {first_s[at]:g}, before submit_s, {submit_s[at]:g}: it is a moment on"
            " the clock of submit_s"
        )
    if not table.has("deadlines"):
        return first_s, {}
    times, values = np.empty(len(table), object), np.empty(len(table), object)
    known: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {}
    for row, cell in enumerate(table.text("deadlines").to_list()):
        strict = not np.isnan(first_s[row])
        if not cell:
            times[row] = (float(first_s[row] - submit_s[row]),) if strict else ()
            values[row] = (STRICT_VALUE,) * len(times[row])
            continue
        if strict:
            raise InputError(f"{table.where(row)}: deadline_s and deadlines are both given: leave one of them empty")
        if cell not in known:
            known[cell] = _steps(cell, f"{table.where(row)}: deadlines is '{cell}'")
        times[row], values[row] = known[cell]
        first_s[row] = submit_s[row] + times[row][0]
    return first_s, {"expect_time_s": times, "expect_value": values}


def _steps(cell: str, where: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """`3600:1.0;7200:0.5` as moments after submission, rising, and values, falling."""
    try:
        pairs = [tuple(map(float, part.split(":"))) for part in cell.split(";")]
        if not all(len(pair) == 2 and np.isfinite(pair).all() for pair in pairs):
            raise ValueError
    except ValueError:
        raise InputError(f"{where}, not SECONDS:VALUE joined by ';', e.g. 3600:1.0;7200:0.5") from None
    times, values = (tuple(column) for column in zip(*pairs, strict=True))
    if times[0] < 0 or any(after <= before for before, after in pairwise(times)):
        raise InputError(f"{where}: the seconds after submission must rise from step to step")
    if values[-1] <= 0 or any(after > before for before, after in pairwise(values)):
        raise InputError(f"{where}: values must be positive and may not rise from step to step")
    return times, values


def _whole(table: Table, column: str, low: float | None = 0.0) -> Ints | None:
    """A column of whole numbers in which an empty cell means 0."""
    if not table.has(column):
        return None
    values = table.numbers(column, low=low, empty=0.0)
    if (values != np.floor(values)).any():
        at = int(np.argmax(values != np.floor(values)))
        raise InputError(f"{table.where(at)}: {column} is {values[at]:g}, not a whole number")
    return values.astype(np.int64)


def _limits(table: Table, gpus: Ints) -> dict[str, Ints]:
    """Fewest and most GPUs of elastic jobs, 0 where a job says nothing of it."""
    limits = {name: values for name in LIMITS if (values := _whole(table, name)) is not None}
    for name, values in limits.items():
        wrong = (values > 0) & ((values > gpus) if name == "min_gpus" else (values < gpus))
        if wrong.any():
            at, than = int(np.argmax(wrong)), "more" if name == "min_gpus" else "less"
            raise InputError(f"{table.where(at)}: {name} is {values[at]}, {than} than num_gpus, {gpus[at]}")
    return limits


def _note_rigid(table: Table, model: Codes, limits: dict[str, Ints]) -> Table:
    """Nobody knows how jobs of other models scale, so they cannot be resized."""
    unknown_model = ~np.isin(np.array(model.names), list(BY_NAME))[model.code]
    rigid = int((unknown_model & (np.sum(list(limits.values()), axis=0) > 0)).sum())
    if not rigid:
        return table
    known = ", ".join(BY_NAME)
    return table.note(f"{rigid} elastic jobs stay at num_gpus: it is not known how their models scale (known: {known})")


def _nodes(table: Table, gpus: Ints) -> Ints | None:
    nodes = _whole(table, "nodes")
    odd = gpus % np.maximum(nodes, 1) != 0 if nodes is not None else np.zeros(0, bool)
    if nodes is not None and odd.any():
        at = int(np.argmax(odd))
        raise InputError(f"{table.where(at)}: nodes is {nodes[at]}, which does not divide num_gpus, {gpus[at]}")
    return nodes


def _status(table: Table) -> Ints | None:
    if not table.has("status"):
        return None
    text = table.text("status")
    for name in text.unique(maintain_order=True).to_list():
        if status_word(name) not in STATUS_OF:
            at = int(np.argmax((text == name).to_numpy()))
            raise InputError(f"{table.where(at)}: {unknown('status', name, ('passed', 'killed', 'failed', ''))}")
    return statuses(text)


def _attempts(table: Table, duration_s: Floats) -> dict[int, tuple[float, ...]]:
    if not table.has("attempts"):
        return {}
    text = table.text("attempts")
    rows = np.flatnonzero((text != "").to_numpy())
    cells = text[rows].to_list()
    found: dict[int, tuple[float, ...]] = {}
    for row, cell in zip(rows.tolist(), cells, strict=True):
        try:
            lengths = tuple(map(float, cell.split(";")))
        except ValueError:
            raise InputError(f"{table.where(row)}: attempts is '{cell}', not seconds joined by ';'") from None
        if not (min(lengths) >= 0 and sum(lengths) <= duration_s[row] * (1 + 1e-9)):
            raise InputError(f"{table.where(row)}: attempts '{cell}' must be part of duration_s, which is less")
        found[row] = lengths
    return found
