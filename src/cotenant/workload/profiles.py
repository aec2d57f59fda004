"""Truth about speeds: how fast a model runs on a GPU type, consolidated or spread, against the trace.

`none` says 1 everywhere; `tiresias` slows a spread job by the factor that the Tiresias paper measured. A
file gives `model,gpu_type,consolidated,spread` as CSV, JSON or YAML (`*` stands for every model or type),
or is a Gavel throughput file.
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
from cotenant.workload.model_facts import spread_speed
from cotenant.workload.readers.gavel import load_throughputs
from cotenant.workload.readers.table import open_bytes

BUILT_IN = {
    "none": "every job runs at the speed of the trace, wherever it is placed",
    "tiresias": "jobs over more nodes than needed run at the speed measured in the Tiresias paper, by model",
}
"""Profiles that need no file: name -> one line about it."""

_FIELDS = ("model", "gpu_type", "consolidated", "spread")
_REFERENCE = "v100"


@dataclass(frozen=True, slots=True)
class Profile:
    """`speed[model, gpu_type, 0 | 1]`: 1 = the trace's duration; last axis consolidated, then spread."""

    name: str
    models: tuple[str, ...]
    gpu_types: tuple[str, ...]
    speed: Floats


def load_profile(name_or_path: str | Path, models: Sequence[str], gpu_types: Sequence[str]) -> Profile:
    """The speeds of these models on these types; pairs that the profile does not name run at 1."""
    name = str(name_or_path)
    speed = np.ones((len(models), len(gpu_types), 2))
    if name == "tiresias":
        speed[:, :, 1] = np.array([spread_speed(model) for model in models])[:, None]
    elif name != "none":
        path = Path(name)
        if not path.suffix and not path.exists():
            raise unknown("profile", name, BUILT_IN)
        _fill(speed, _entries(path), models, gpu_types)
    return Profile(name, tuple(models), tuple(gpu_types), speed)


def _fill(
    speed: Floats,
    entries: list[tuple[str, str, float, float]],
    models: Sequence[str],
    gpu_types: Sequence[str],
) -> None:
    """Exact entries win over `*`: the more stars, the earlier an entry is written."""
    for model, gpu_type, consolidated, spread in sorted(entries, key=lambda e: -((e[0] == "*") + (e[1] == "*"))):
        rows = [i for i, name in enumerate(models) if model in ("*", name.strip().lower())]
        columns = [j for j, name in enumerate(gpu_types) if gpu_type in ("*", name.strip().lower())]
        for row in rows:
            speed[row, columns] = (consolidated, spread)


def _entries(path: Path) -> list[tuple[str, str, float, float]]:
    raw = open_bytes(path)
    kind = "".join(path.suffixes[-2:]).removesuffix(".gz").lower()
    text = raw.decode("utf-8", "replace")
    if kind.endswith(".csv"):
        return _rows(path, csv.DictReader(io.StringIO(text)), first=2, unit="line")
    data = _parse(path, kind, text)
    if isinstance(data, dict) and _REFERENCE in data:
        return _gavel(path)
    if isinstance(data, dict):
        data = [
            {"model": model, "gpu_type": gpu_type, **(rates if isinstance(rates, dict) else {})}
            for model, types in data.items()
            for gpu_type, rates in (types.items() if isinstance(types, dict) else ())
        ]
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise InputError(f"{path}: a profile is a list of {{{', '.join(_FIELDS)}}}")
    return _rows(path, data, first=1, unit="entry")


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


def _rows(path: Path, rows: Iterable[dict[str, Any]], first: int, unit: str) -> list[tuple[str, str, float, float]]:
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
        model, gpu_type = str(row["model"]).strip().lower(), str(row.get("gpu_type") or "*").strip().lower()
        entries.append((model, gpu_type, consolidated, spread))
    if not entries:
        raise InputError(f"{path}: the profile has no entries")
    return entries


def _speed(where: str, field: str, value: Any) -> float:
    try:
        speed = float(value)
    except (TypeError, ValueError):
        speed = -1.0
    if not 0 <= speed < np.inf:
        raise InputError(f"{where}: {field} is {value!r}; a speed is a number of at least 0 (1 = as in the trace)")
    return speed


def _gavel(path: Path) -> list[tuple[str, str, float, float]]:
    """Speeds against the V100 from a Gavel throughput file.

    Consolidated is the single-GPU ratio; spread is that times the geometric mean, over scale factors, of
    the unconsolidated against the consolidated rate. The file's own scale dependence is finer than a
    `Profile` holds.
    """
    tables = load_throughputs(path)
    reference = tables[_REFERENCE]
    entries = []
    for gpu_type, rates in tables.items():
        if gpu_type.endswith("_unconsolidated"):
            continue
        apart = tables.get(f"{gpu_type}_unconsolidated", {})
        for (model, scale), rate in rates.items():
            if scale != 1 or not reference.get((model, 1)):
                continue
            ratios = [
                apart[key] / rates[key]
                for key in rates
                if key[0] == model and key[1] > 1 and rates[key] > 0 and apart.get(key, 0) > 0
            ]
            slow = float(np.exp(np.mean(np.log(ratios)))) if ratios else 1.0
            ratio = rate / reference[(model, 1)]
            entries.append((model.lower(), gpu_type.lower(), ratio, ratio * slow))
    return entries
