"""JSON to the dataclasses of the service, and job specs to what the API takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from cotenant.core.jobspec import JobSpec, deadline_text, runs_of
from cotenant.core.lifecycle import JobState
from cotenant.service.facade import AttemptInfo, EventInfo, JobInfo, JobOutcome, NodeStatus, Role, TokenInfo
from cotenant.service.node_windows import NodeWindow


def job(data: Mapping[str, Any]) -> JobInfo:
    """A job. A metric that JSON could not carry is NaN again."""
    metrics = {key: math.nan if value is None else value for key, value in data["metrics"].items()}
    attempts = tuple(attempt(item) for item in data["attempts"])
    return JobInfo(**{**data, "state": JobState(data["state"]), "metrics": metrics, "attempts": attempts})


def outcome(data: Mapping[str, Any]) -> JobOutcome:
    """What came of something for one job."""
    return JobOutcome(data["id"], data["error"], job(data["job"]) if data["job"] is not None else None)


def attempt(data: Mapping[str, Any]) -> AttemptInfo:
    """One try."""
    nodes = tuple((name, tuple(gpus)) for name, gpus in data["nodes"])
    return AttemptInfo(**{**data, "nodes": nodes})


def node(data: Mapping[str, Any]) -> NodeStatus:
    """A node."""
    names = ("jobs", "gpu_busy", "gpu_used_gib", "dedicated", "faults")
    lists = {name: tuple(data[name]) for name in names if name in data}
    return NodeStatus(**{**data, **lists})


def event(data: Mapping[str, Any]) -> EventInfo:
    """An event."""
    return EventInfo(**data)


def window(data: Mapping[str, Any]) -> NodeWindow:
    """A maintenance or a reservation."""
    return NodeWindow(**{**data, "nodes": tuple(data["nodes"])})


def token(data: Mapping[str, Any]) -> TokenInfo:
    """A token without its secret."""
    return TokenInfo(**{**data, "role": Role(data["role"]), "scopes": tuple(data["scopes"])})


_SAME = (
    "run", "name", "setup", "workdir", "env", "cpus", "nodes", "tenant", "priority", "retries", "preemptible",
    "exclusive", "model", "image", "tty", "movable", "weight", "slice",
)  # fmt: skip
_RENAMED = {
    "mem_gib": "mem",
    "gpu_mem_gib": "gpu_mem",
    "gpu_mem_min_gib": "gpu_mem_min",
    "max_runtime_s": "max_runtime",
    "expected_s": "expected",
}
_NESTED = {
    "min_gpus": ("elastic", "min_gpus"),
    "max_gpus": ("elastic", "max_gpus"),
    "batch_size": ("batch", "size"),
    "batch_min": ("batch", "min"),
    "batch_max": ("batch", "max"),
    "checkpoint_dir": ("checkpoint", "dir"),
    "checkpoint_interval_s": ("checkpoint", "interval"),
}


def mapping(spec: JobSpec) -> dict[str, Any]:
    """A spec in the form of the YAML file: the inverse of `parse_job`."""
    given = spec.as_dict()
    data: dict[str, Any] = {key: given[key] for key in _SAME if key in given}
    data.update({name: given[key] for key, name in _RENAMED.items() if key in given})
    for key, (part, name) in _NESTED.items():
        if key in given:
            data.setdefault(part, {})[name] = given[key]
    data["gpus"] = f"{spec.gpu_type}:{spec.gpus}" if spec.gpu_type else spec.gpus
    if spec.deadline_s:
        data["deadline"] = deadline_text(spec)
    if spec.gpu_mem_speeds:
        data["gpu_mem_speeds"] = ";".join(f"{gib!r}:{speed!r}" for gib, speed in spec.gpu_mem_speeds)
    if spec.array:
        data["array"] = ranges(spec.array) + (f"%{spec.array_most}" if spec.array_most else "")
    if spec.notify:
        data["notify"] = {"to": list(spec.notify), **({"when": list(spec.notify_on)} if spec.notify_on else {})}
    if spec.after:
        data["after"] = list(spec.after)
    if spec.service:
        for implied in ("array", "preemptible", "movable"):
            data.pop(implied, None)
        data["service"] = _service(spec)
    return data


def _service(spec: JobSpec) -> dict[str, Any]:
    """What it answers, as people write it."""
    said, words = dict(spec.service), {"target_s": "target_ms", "service_s": "service_ms"}
    most = said.pop("most", len(spec.array) or 1)
    least = said.pop("least", most)
    for key, word in words.items():
        said[word] = 1000 * said.pop(key)
    if isinstance(said.get("rate"), list):
        said["rate"] = {str(hour): rate for hour, rate in said["rate"]}
    return said | {"replicas": [least, most] if least < most else most}


def ranges(numbers: tuple[int, ...]) -> str:
    """`0-99,200`: indexes in few characters."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs_of(numbers))
