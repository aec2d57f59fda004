"""The throughput file of the Gavel authors (OSDI'20): steps per second by model, GPU count and GPU type.

JSON: GPU type -> "('model', scale)" -> {"null": rate alone, "('other', scale)": [own rate, the other's]}.
Rates are of the whole gang; 0 means that it cannot run there. Types ending in `_unconsolidated` hold the
rates of gangs spread over nodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from cotenant.core.errors import InputError
from cotenant.workload.readers.table import open_bytes

Key = tuple[str, int]
REFERENCE = "v100"
"""The type that step counts of a Gavel trace refer to."""
_APART = "_unconsolidated"


@dataclass(frozen=True)
class Throughputs:
    """Rates in steps/s. `alone[type][key]`, `apart[type][key]`, `together[type][key][other]` = rate of key."""

    path: Path
    alone: dict[str, dict[Key, float]]
    apart: dict[str, dict[Key, float]]
    together: dict[str, dict[Key, dict[Key, float]]]

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """The GPU types of the file, in its order."""
        return tuple(self.alone)

    @property
    def reference(self) -> dict[Key, float]:
        """Rates on the type that steps refer to."""
        if REFERENCE not in self.alone:
            raise InputError(f"{self.path}: has no GPU type '{REFERENCE}', which the steps of a Gavel trace refer to")
        return self.alone[REFERENCE]

    @cached_property
    def scales(self) -> dict[str, tuple[int, ...]]:
        """Scale factors at which a model (lower case) runs on the reference type, ascending."""
        found: dict[str, list[int]] = {}
        for (model, scale), rate in self.reference.items():
            if rate > 0:
                found.setdefault(model.lower(), []).append(scale)
        return {model: tuple(sorted(scales)) for model, scales in found.items()}

    @cached_property
    def names(self) -> dict[str, str]:
        """Lower-case model name -> as the file writes it, in its order."""
        return {model.lower(): model for model, _ in self.reference}

    def nearest(self, model: str, gpus: int) -> Key | None:
        """The key of a model at the scale factor nearest to `gpus` in log2; None if the file has no such model."""
        name = model.strip().lower()
        if name not in self.scales:
            return None
        scale = min(self.scales[name], key=lambda s: abs(np.log2(s) - np.log2(gpus)))
        return self.names[name], scale

    def spread_rate(self, gpu_type: str, key: Key) -> float:
        """Rate over several nodes; where the file has none, as much slower as its other models are on average."""
        rate, apart = self.alone[gpu_type].get(key, 0.0), self.apart.get(gpu_type, {})
        if apart.get(key, 0.0) > 0 or rate == 0 or not apart:
            return apart.get(key, rate)
        ratios = [
            apart[k] / r for k, r in self.alone[gpu_type].items() if k[1] == key[1] and r > 0 and apart.get(k, 0) > 0
        ]
        return rate * float(np.exp(np.mean(np.log(ratios)))) if ratios else rate


def load_throughputs(path: str | Path) -> Throughputs:
    """Read the authors' file (gzip or plain)."""
    path = Path(path)
    try:
        changed = path.stat().st_mtime_ns
    except OSError:
        changed = 0
    return _load(path, changed)


def find_throughputs(profile: str | Path | None) -> Throughputs | None:
    """The rates of a profile that is a Gavel throughput file; None for every other profile."""
    if profile is None or not Path(profile).is_file() or ".json" not in Path(profile).suffixes[-2:]:
        return None
    try:
        data = json.loads(open_bytes(Path(profile)))
    except ValueError:
        return None
    return load_throughputs(profile) if is_throughputs(data) else None


@lru_cache(maxsize=4)
def _load(path: Path, changed: int) -> Throughputs:
    try:
        data = json.loads(open_bytes(path))
        return parse_throughputs(path, data)
    except (ValueError, TypeError, AttributeError, KeyError, IndexError):
        raise InputError(
            f"{path}: not a Gavel throughput file (JSON: GPU type -> \"('model', scale)\" -> rates)"
        ) from None


def parse_throughputs(path: Path, data: dict[str, Any]) -> Throughputs:
    """The parsed JSON as tables; GPU types in lower case."""
    alone: dict[str, dict[Key, float]] = {}
    apart: dict[str, dict[Key, float]] = {}
    together: dict[str, dict[Key, dict[Key, float]]] = {}
    for gpu_type, table in data.items():
        name = gpu_type.lower()
        rates = {_key(key): _rate(path, gpu_type, key, row["null"]) for key, row in table.items() if "null" in row}
        if name.endswith(_APART):
            apart[name.removesuffix(_APART)] = rates
            continue
        alone[name] = rates
        together[name] = {
            _key(key): {_key(other): pair[0] for other, pair in row.items() if other != "null" and min(pair) > 0}
            for key, row in table.items()
        }
    return Throughputs(path, alone, apart, together)


def is_throughputs(data: object) -> bool:
    """Whether parsed JSON looks like the authors' file: GPU types of "('model', scale)" keys."""
    if not isinstance(data, dict) or not data:
        return False
    tables: Iterable[object] = data.values()
    return all(isinstance(table, dict) and all(str(key).startswith("(") for key in table) for table in tables)


def _rate(path: Path, gpu_type: str, key: str, value: Any) -> float:
    rate = float(value)
    if not 0 <= rate < np.inf:
        raise InputError(f"{path}: {gpu_type}, {key}: rate {value!r} is not a number of at least 0 steps per second")
    return rate


def _key(text: str) -> Key:
    model, _, scale = text.strip("()").rpartition(",")
    return model.strip().strip("'"), int(scale)
