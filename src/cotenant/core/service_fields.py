"""`service:` of a job file: a job without end that answers requests within a latency target (docs/inference.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cotenant.core import reading
from cotenant.core.errors import InputError

_KEYS = ("target_ms", "service_ms", "rate", "beside", "replicas")
_MOST_REPLICAS = 1000


def service_fields(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Fields of a job specification: the service in seconds, its replicas as an array, and that nobody may stop it."""
    if "service" not in data:
        return {}
    place = f"{where}: service"
    said = reading.mapping(place, data["service"], "{target_ms: 50, service_ms: 8, replicas: 2}")
    reading.known(place, said, _KEYS)
    for key in ("target_ms", "service_ms"):
        if key not in said:
            raise InputError(f"{place}.{key} is missing; say how many milliseconds")
    amounts = {key: reading.amount(f"{place}.{key}", said[key]) for key in _KEYS[:4] if key in said}
    if amounts["target_ms"] <= amounts["service_ms"]:
        raise InputError(f"{place}.target_ms is {said['target_ms']}; a request alone takes {said['service_ms']}")
    if amounts.get("beside", 1.0) > 1:
        raise InputError(f"{place}.beside is {said['beside']}; write a speed against alone, at most 1")
    for key, usual in (("gpus", 1), ("array", ""), ("preemptible", False), ("max_runtime", 0), ("elastic", {})):
        if data.get(key, usual) != usual:
            raise InputError(f"{where}: field '{key}' does not go with service: a replica has one GPU and never ends")
    replicas = reading.whole(f"{place}.replicas", said.get("replicas", 1), 1)
    if replicas > _MOST_REPLICAS:
        raise InputError(f"{place}.replicas is {replicas}; at most {_MOST_REPLICAS}")
    service = {"target_s": amounts["target_ms"] / 1000, "service_s": amounts["service_ms"] / 1000}
    service |= {key: amounts[key] for key in ("rate", "beside") if key in amounts}
    array = tuple(range(replicas)) if replicas > 1 else ()
    return {"service": service, "array": array, "preemptible": False, "movable": False}
