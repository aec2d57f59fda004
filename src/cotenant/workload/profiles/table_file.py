"""Speeds as a plain table: `model,gpu_type,consolidated,spread` as CSV, JSON or YAML.

An optional column `gpus` restricts a line to one GPU count. `*` stands for every model or type; a line that
says more wins over one that says less; what no line names runs at speed 1. JSON may also be a Gavel
throughput file.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cotenant.core.errors import InputError, unknown
from cotenant.core.workload import Floats
from cotenant.workload.profiles.base import Kind, normal
from cotenant.workload.profiles.curves import is_curves
from cotenant.workload.profiles.synergy import is_synergy
from cotenant.workload.readers.table import open_bytes
from cotenant.workload.readers.throughputs import Throughputs, is_throughputs, load_throughputs

_FIELDS = ("model", "gpu_type", "gpus", "consolidated", "spread")


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One line of the table; `gpus` 0 stands for every count."""

    model: str
    gpu_type: str
    gpus: int
    consolidated: float
    spread: float

    @property
    def stars(self) -> int:
        """How many of model, type and GPU count are left open."""
        return (self.model == "*") + (self.gpu_type == "*") + (self.gpus == 0)


def load_table(path: Path) -> list[TableEntry] | Throughputs | dict[str, Any]:
    """The entries of a profile file, the rates of a Gavel throughput file, or a document of other profiles."""
    raw = open_bytes(path)
    kind = "".join(path.suffixes[-2:]).removesuffix(".gz").lower()
    text = raw.decode("utf-8", "replace")
    if kind.endswith(".csv"):
        return _rows(path, csv.DictReader(io.StringIO(text)), first=2, unit="line")
    data = _parse(path, kind, text)
    if is_throughputs(data):
        return load_throughputs(path)
    if is_synergy(data) or is_curves(data):
        return dict(data)
    if isinstance(data, dict):
        data = [
            {"model": model, "gpu_type": gpu_type, **(rates if isinstance(rates, dict) else {})}
            for model, types in data.items()
            for gpu_type, rates in (types.items() if isinstance(types, dict) else ())
        ]
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise InputError(f"{path}: a profile is a list of {{{', '.join(_FIELDS)}}}")
    return _rows(path, data, first=1, unit="entry")


def table_speeds(entries: list[TableEntry], kinds: Sequence[Kind], gpu_types: Sequence[str]) -> Floats:
    """Speeds of kinds on types: the more an entry leaves open, the earlier it is written."""
    speed = np.ones((len(kinds), len(gpu_types), 2))
    for entry in sorted(entries, key=lambda e: -e.stars):
        rows = [
            at
            for at, (model, gpus) in enumerate(kinds)
            if entry.model in ("*", normal(model)) and entry.gpus in (0, gpus)
        ]
        columns = [at for at, name in enumerate(gpu_types) if entry.gpu_type in ("*", normal(name))]
        for row in rows:
            speed[row, columns] = (entry.consolidated, entry.spread)
    return speed


def _parse(path: Path, kind: str, text: str) -> Any:
    if kind.endswith((".yaml", ".yml")):
        import yaml

        try:
            return yaml.safe_load(text)
        except yaml.YAMLError:
            raise InputError(f"{path}: broken YAML") from None
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"{path}: broken JSON ({error}); a profile is CSV, JSON or YAML") from None


def _rows(path: Path, rows: Iterable[dict[str, Any]], first: int, unit: str) -> list[TableEntry]:
    entries = []
    for number, row in enumerate(rows, start=first):
        where = f"{path} {unit} {number}"
        for key in row:
            if key not in _FIELDS:
                raise InputError(f"{where}: {unknown('field', str(key), _FIELDS)}")
        if "model" not in row or "consolidated" not in row:
            raise InputError(f"{where}: 'model' and 'consolidated' are needed")
        consolidated = _speed(where, "consolidated", row["consolidated"])
        spread = _speed(where, "spread", row["spread"]) if row.get("spread") not in (None, "") else consolidated
        if (consolidated == 0) != (spread == 0):
            raise InputError(f"{where}: consolidated and spread must both be 0 (cannot run there) or both above 0")
        entries.append(
            TableEntry(
                normal(str(row["model"])), normal(str(row.get("gpu_type") or "*")), _gpus(where, row.get("gpus")),
                consolidated, spread,
            )
        )  # fmt: skip
    if not entries:
        raise InputError(f"{path}: the profile has no entries")
    return entries


def _gpus(where: str, value: Any) -> int:
    if value in (None, "", "*"):
        return 0
    if not str(value).strip().isdigit() or int(value) < 1:
        raise InputError(f"{where}: gpus is {value!r}; write a whole number of at least 1, or leave it empty for all")
    return int(value)


def _speed(where: str, field: str, value: Any) -> float:
    try:
        speed = float(value)
    except (TypeError, ValueError):
        speed = -1.0
    if not 0 <= speed < np.inf:
        raise InputError(f"{where}: {field} is {value!r}; a speed is a number of at least 0 (1 = as in the trace)")
    return speed
