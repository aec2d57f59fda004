"""`service:` of a job file: a job without end that answers requests within a latency target (docs/inference.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cotenant.core import reading
from cotenant.core.errors import InputError

_TIMES = ("start_s", "ahead_s", "calm_s")
_KEYS = ("target_ms", "service_ms", "beside", "rate", "replicas", *_TIMES)
_MOST_REPLICAS = 1000
LARGEST = 1e9  # of times and rates


def service_fields(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Fields of a job specification: the service in seconds, its replicas as an array, and that nobody may stop it."""
    if "service" not in data:
        return {}
    place = f"{where}: service"
    said = reading.mapping(place, data["service"], "{target_ms: 50, service_ms: 8, replicas: [1, 4]}")
    reading.known(place, said, _KEYS)
    for key in ("target_ms", "service_ms"):
        if key not in said:
            raise InputError(f"{place}.{key} is missing; say how many milliseconds")
    plain = ("target_ms", "service_ms", "beside", *_TIMES)
    amounts = {key: reading.amount(f"{place}.{key}", said[key], most=LARGEST) for key in plain if key in said}
    if amounts["target_ms"] <= amounts["service_ms"]:
        raise InputError(f"{place}.target_ms is {said['target_ms']}; a request alone takes {said['service_ms']}")
    if amounts.get("beside", 1.0) > 1:
        raise InputError(f"{place}.beside is {said['beside']}; write a speed against alone, at most 1")
    for key, usual in (("gpus", 1), ("array", ""), ("preemptible", False), ("max_runtime", 0), ("elastic", {})):
        if data.get(key, usual) != usual:
            raise InputError(f"{where}: field '{key}' does not go with service: a replica has one GPU and never ends")
    least, most = replicas_of(f"{place}.replicas", said.get("replicas", 1))
    if most > _MOST_REPLICAS:
        raise InputError(f"{place}.replicas is {most}; at most {_MOST_REPLICAS}")
    service: dict[str, Any] = {
        "target_s": amounts.pop("target_ms") / 1000,
        "service_s": amounts.pop("service_ms") / 1000,
    }
    service |= amounts
    if "rate" in said:
        points = rate_points(f"{place}.rate", said["rate"])
        service["rate"] = points[0][1] if not isinstance(said["rate"], Mapping) else [list(point) for point in points]
    if least < most:
        service |= {"least": least, "most": most}
    return {"service": service, "array": tuple(range(most)) if most > 1 else (), "preemptible": False, "movable": False}


def replicas_of(where: str, value: Any) -> tuple[int, int]:
    """Least and most; a number is both."""
    pair = value if isinstance(value, list | tuple) else [value, value]
    if len(pair) != 2:
        raise InputError(f"{where} is {value!r}; write a number, or least and most such as [1, 4]")
    least, most = (reading.whole(where, one, 1) for one in pair)
    if least > most:
        raise InputError(f"{where} is {value!r}; the least must not be above the most")
    return least, most


def rate_points(where: str, value: Any) -> list[tuple[float, float]]:
    """Hours of the day and requests per second, in order; a number is one point."""
    if not isinstance(value, Mapping):
        return [(0.0, reading.amount(where, value, " of requests per second, or hours with rates", LARGEST))]
    points = sorted((_hour(where, hour), _not_negative(f"{where}.{hour}", rate)) for hour, rate in value.items())
    if not points:
        raise InputError(f"{where} is empty; write e.g. {{0: 5, 12: 40}}")
    return points


def _hour(where: str, value: Any) -> float:
    """JSON has hours as texts."""
    try:
        hour = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else -1.0
    except ValueError:
        hour = -1.0
    if not 0 <= hour < 24:
        raise InputError(f"{where}: {value!r} is no hour of a day, 0 to below 24")
    return hour


def _not_negative(where: str, value: Any) -> float:
    return 0.0 if value == 0 and not isinstance(value, bool) else reading.amount(where, value, most=LARGEST)
