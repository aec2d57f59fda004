"""Inference services that a user describes in YAML: `--services FILE`, or `services:` of a cluster file.

chat:
  target_ms: 50                    # 99 of 100 requests are to be answered within it
  service_ms: 8                    # one request alone on an idle GPU
  rate: {0: 5, 8: 40, 20: 60}      # requests per second by hour of the day, linear between; or a number
  requests: arrivals.csv           # instead: one arrival time per line, in seconds
  replicas: [1, 4]                 # least and most
  beside: {bert: 0.7, "*": [0.8, 0.6]}   # speeds against alone of (service, training), by model; 0.6 unless told
  interleaving: 1.3                # of a runtime that interleaves operators, 1.3 to 1.7
  gib: 12
  alone: false                     # true: training never joins it
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cotenant.core import reading
from cotenant.core.errors import InputError
from cotenant.core.service_fields import LARGEST, rate_points, replicas_of
from cotenant.core.serving import LEAST_INTERLEAVING, MOST_INTERLEAVING, Coresidence, InferenceService, RateCurve

_EXAMPLE = "{chat: {target_ms: 50, service_ms: 8, rate: 40}}"
_COUNT_S = 60.0  # over which the arrivals of a trace are counted


def load_services(path: str) -> tuple[InferenceService, ...]:
    """Read a file of services."""
    import yaml

    try:
        data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read as YAML ({str(error).splitlines()[0]})") from None
    data = data.get("services", data) if isinstance(data, dict) else data
    return services_of(data, path, Path(path).parent)


def services_of(data: Any, where: str, folder: Path) -> tuple[InferenceService, ...]:
    """Services by their names; request traces are files of `folder`."""
    found = reading.mapping(where, data, _EXAMPLE)
    if not found:
        raise InputError(f"{where}: names no service; write e.g. {_EXAMPLE}")
    return tuple(_service(f"{where}: {name}", str(name), item, folder) for name, item in found.items())


def _service(where: str, name: str, item: Any, folder: Path) -> InferenceService:
    item = reading.mapping(where, item, "{target_ms: 50, service_ms: 8, rate: 40}")
    reading.known(where, item, ("target_ms", "service_ms", "rate", "requests", "replicas", *_OPTIONAL))
    for key in ("target_ms", "service_ms"):
        if key not in item:
            raise InputError(f"{where}.{key} is missing; say how many milliseconds")
    target_s, service_s = (
        reading.amount(f"{where}.{key}", item[key], most=LARGEST) / 1000 for key in ("target_ms", "service_ms")
    )
    if target_s <= service_s:
        raise InputError(f"{where}.target_ms is {item['target_ms']}; a request alone takes {item['service_ms']}")
    if ("rate" in item) == ("requests" in item):
        raise InputError(f"{where}: say either rate or requests, such as rate: 40")
    least, most = replicas_of(f"{where}.replicas", item.get("replicas", 1))
    arrivals = _arrivals(f"{where}.requests", item["requests"], folder) if "requests" in item else None
    optional: dict[str, Any] = {
        key: read(f"{where}.{key}", item[key]) for key, read in _OPTIONAL.items() if key in item
    }
    points = rate_points(f"{where}.rate", item["rate"]) if arrivals is None else []
    rate = _counted(arrivals) if arrivals is not None else RateCurve.by_hours(points)
    return InferenceService(name, target_s, service_s, rate, least, most, requests_s=arrivals, **optional)


def _beside(where: str, value: Any) -> dict[str, Coresidence]:
    """By model in small letters; `*` is everybody else."""
    found = {}
    for model, pair in reading.mapping(where, value, '{bert: 0.7, "*": [0.8, 0.6]}').items():
        both = pair if isinstance(pair, list | tuple) else [pair, pair]
        speeds = [reading.amount(f"{where}.{model}", one) for one in both]
        if len(speeds) != 2 or max(speeds) > 1:
            raise InputError(f"{where}.{model} is {pair!r}; write one or two speeds against alone, at most 1")
        found["" if model == "*" else str(model).strip().lower()] = Coresidence(*speeds)
    return found


def _interleaving(where: str, value: Any) -> float:
    times = reading.amount(where, value)
    if times != 1 and not LEAST_INTERLEAVING <= times <= MOST_INTERLEAVING:
        raise InputError(f"{where} is {value!r}; write 1 (none), or {LEAST_INTERLEAVING} to {MOST_INTERLEAVING}")
    return times


def _arrivals(where: str, value: Any, folder: Path) -> np.ndarray:
    path = folder / reading.text(where, value)
    try:
        lines = path.read_text(encoding="utf-8").split()
        times = np.array([float(line) for line in lines])
    except FileNotFoundError:
        raise InputError(f"{where}: {path}: no such file") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{where}: {path}: must hold one arrival time in seconds per line ({error})") from None
    if not len(times) or not np.isfinite(times).all():
        raise InputError(f"{where}: {path}: must hold arrival times in seconds")
    return np.sort(times)


def _counted(arrivals_s: np.ndarray) -> RateCurve:
    """What a service can foresee of a trace: the minute before, as it was."""
    first = math.floor(arrivals_s[0] / _COUNT_S) * _COUNT_S
    counts = np.bincount(((arrivals_s - first) / _COUNT_S).astype(np.int64))
    return RateCurve(first + _COUNT_S * np.arange(1, len(counts) + 1), counts / _COUNT_S, math.inf, jumps=True)


_OPTIONAL: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("model", "gpu_type", "tenant"), reading.text),
    **dict.fromkeys(("gib", "start_s", "ahead_s", "calm_s"), partial(reading.amount, most=LARGEST)),
    "beside": _beside,
    "interleaving": _interleaving,
    "alone": reading.yes,
}
