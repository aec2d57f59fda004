"""Jobs of Kubernetes (`kubectl get pods,jobs -A -o json`) and of Ray (`ray list jobs --format json`, or the state API).

A Kubernetes Job is a gang of its pods: it starts with the first and ends with the last of them; a pod without one is a
job of its own. GPUs are limits of resources that end in `/gpu`, times are when it was created, when its containers
started and when the last of them ended. Ray tells GPUs in `entrypoint_num_gpus` of a job, or
`required_resources` of a task.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.workload import Status, Workload
from cotenant.workload.readers.base import STATUS_OF
from cotenant.workload.readers.records import NAN, JobRecord, date_s, gib, load_json, workload_of

_CORES = re.compile(r"^(\d+(?:\.\d+)?)(m?)$")


class KubernetesLog:
    """A JSON list of objects with `kind`."""

    name: ClassVar[str] = "kubernetes"
    about: ClassVar[str] = "kubectl get pods,jobs -A -o json"
    duration_means: ClassVar[str] = "from the first start of its containers to their last end"

    def matches(self, data: Any) -> bool:
        """A list of pods and jobs."""
        items = data.get("items") if isinstance(data, dict) else None
        kinds = ("List", "PodList", "JobList")
        return isinstance(items, list) and (data.get("kind") in kinds or any("kind" in item for item in items[:1]))

    def parse(self, path: Path, raw: bytes) -> Workload:
        """Gangs of pods."""
        items = load_json(path, raw)["items"]
        left = {"not started": 0, "not ended": 0, "no GPUs": 0}
        gangs: dict[str, list[dict[str, Any]]] = {}
        jobs = {_id(item): item for item in items if item.get("kind") == "Job"}
        for number, item in enumerate(items, start=1):
            if item.get("kind") not in ("Pod", None):
                continue
            try:
                gangs.setdefault(_owner(item), []).append(item)
            except (KeyError, TypeError, IndexError) as error:
                raise InputError(f"{path} item {number}: cannot be read ({type(error).__name__}: {error})") from None
        found = [_gang(path, name, pods, jobs.get(name), left) for name, pods in gangs.items()]
        return workload_of(path, [job for job in found if job is not None], left)


def _id(item: dict[str, Any]) -> str:
    meta = item["metadata"]
    return f"{meta.get('namespace', 'default')}/{meta['name']}"


def _owner(pod: dict[str, Any]) -> str:
    meta = pod["metadata"]
    owner = next((one["name"] for one in meta.get("ownerReferences") or [] if one.get("kind") == "Job"), None)
    return f"{meta.get('namespace', 'default')}/{owner}" if owner else _id(pod)


def _gang(
    path: Path, name: str, pods: list[dict[str, Any]], job: dict[str, Any] | None, left: dict[str, int]
) -> JobRecord | None:
    try:
        last = {pod["metadata"].get("labels", {}).get("batch.kubernetes.io/job-completion-index", at): pod
                for at, pod in enumerate(pods)}  # fmt: skip
        gpus = int(sum(_limit(pod, "/gpu") for pod in last.values()))
        times = [_times(pod) for pod in pods]
        submit_s = min(date_s((job or pod)["metadata"]["creationTimestamp"]) for pod in pods)
        meta = (job or pods[0])["metadata"]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: '{name}' cannot be read ({type(error).__name__}: {error})") from None
    starts = [start for start, _ in times if start == start]
    ends = [end for start, end in times if start == start]
    why = "no GPUs" if not gpus else "not started" if not starts else "not ended" if np.isnan(ends).any() else ""
    if why:
        left[why] += 1
        return None
    labels = meta.get("labels") or {}
    tenant = labels.get("kueue.x-k8s.io/queue-name") or meta.get("namespace", "default")
    cores, memory = (sum(_host(pod, what) for pod in last.values()) for what in ("cpu", "memory"))
    phases = {pod["status"].get("phase", "") for pod in last.values()}
    phase = "failed" if "Failed" in phases else next(iter(phases)).lower()
    nodes = {pod["spec"].get("nodeName") for pod in pods} - {None}
    return JobRecord(
        name, submit_s, min(starts), max(ends), gpus, max(ends) - min(starts), tenant, str(labels.get("user", "")), "",
        int(STATUS_OF.get(phase, Status.UNKNOWN)), cores or NAN, memory or NAN, float(len(nodes)) or NAN, NAN, (), NAN,
        {"priority_class": str(pods[0]["spec"].get("priorityClassName", ""))},
    )  # fmt: skip


def _containers(pod: dict[str, Any]) -> Iterable[dict[str, Any]]:
    for container in pod["spec"].get("containers") or []:
        resources = container.get("resources") or {}
        yield {**(resources.get("requests") or {}), **(resources.get("limits") or {})}


def _limit(pod: dict[str, Any], ending: str) -> float:
    return sum(float(value) for asks in _containers(pod) for key, value in asks.items() if key.endswith(ending))


def _host(pod: dict[str, Any], what: str) -> float:
    total = 0.0
    for asks in _containers(pod):
        text = str(asks.get(what, "0"))
        if what == "memory":
            total += _bytes_gib(text)
        elif match := _CORES.match(text):
            total += float(match[1]) / (1000 if match[2] else 1)
    return total


def _bytes_gib(text: str) -> float:
    """`64Gi`, `64G`, or plain bytes."""
    if text.isdigit():
        return float(text) / 2**30
    size = gib(text)
    return 0.0 if size != size else size


def _times(pod: dict[str, Any]) -> tuple[float, float]:
    """When its containers started and when the last of them ended."""
    starts, ends = [], []
    for state in pod["status"].get("containerStatuses") or []:
        ended = state.get("state", {}).get("terminated") or {}
        going = state.get("state", {}).get("running") or {}
        starts.append(date_s(ended.get("startedAt") or going.get("startedAt")))
        ends.append(date_s(ended.get("finishedAt")))
    if not starts:
        return date_s(pod["status"].get("startTime")), NAN
    known = [start for start in starts if start == start]
    return (min(known) if known else NAN), (NAN if np.isnan(ends).any() else max(ends))


class RayJobsLog:
    """A JSON list of jobs with `submission_id` or `job_id` and times in milliseconds."""

    name: ClassVar[str] = "ray"
    about: ClassVar[str] = "ray list jobs --format json --detail (or tasks, from the state API)"
    duration_means: ClassVar[str] = "from the start of the job to its end"

    def matches(self, data: Any) -> bool:
        """Jobs or tasks as the state API lists them."""
        rows = _rows(data)
        first = rows[0] if rows and isinstance(rows[0], dict) else {}
        return bool({"status", "state"} & first.keys() and {"submission_id", "task_id", "entrypoint"} & first.keys())

    def parse(self, path: Path, raw: bytes) -> Workload:
        """Jobs that ended and asked for GPUs."""
        left = {"not started": 0, "not ended": 0, "no GPUs": 0}
        jobs = []
        for number, row in enumerate(_rows(load_json(path, raw)), start=1):
            try:
                record = _ray_job(row, number, left)
            except (TypeError, ValueError, AttributeError) as error:
                raise InputError(f"{path} job {number}: cannot be read ({type(error).__name__}: {error})") from None
            if record is not None:
                jobs.append(record)
        return workload_of(path, jobs, left)


def _rows(data: Any) -> list[Any]:
    """The list, wherever the API has put it."""
    for key in ("data", "result", "result"):
        if isinstance(data, dict) and key in data:
            data = data[key]
    return data if isinstance(data, list) else []


def _ray_job(row: dict[str, Any], number: int, left: dict[str, int]) -> JobRecord | None:
    asks = row.get("entrypoint_resources") or row.get("required_resources") or {}
    gpus = float(row.get("entrypoint_num_gpus") or asks.get("GPU") or 0)
    start_s, end_s = (
        _ms(row.get("start_time") or row.get("start_time_ms")),
        _ms(row.get("end_time") or row.get("end_time_ms")),
    )
    created_s = _ms(
        row.get("submission_time") or row.get("creation_time_ms") or row.get("start_time") or row.get("start_time_ms")
    )
    why = "no GPUs" if not gpus else "not started" if np.isnan(start_s) else "not ended" if np.isnan(end_s) else ""
    if why:
        left[why] += 1
        return None
    meta = row.get("metadata") or {}
    state = str(row.get("status") or row.get("state") or "").lower()
    status = STATUS_OF.get({"stopped": "killed"}.get(state, state), Status.UNKNOWN)
    name = str(row.get("submission_id") or row.get("task_id") or row.get("job_id") or number)
    cpus = float(row.get("entrypoint_num_cpus") or asks.get("CPU") or 0) or NAN
    return JobRecord(
        name, created_s, start_s, end_s, int(np.ceil(gpus)), end_s - start_s, str(meta.get("tenant", "")),
        str(meta.get("user", "")), str(meta.get("model", "")), int(status), cpus,
    )  # fmt: skip


def _ms(value: Any) -> float:
    """Milliseconds from 1970, or a date, as seconds."""
    if value is None or value == "" or value == 0:
        return NAN
    if isinstance(value, int | float) or str(value).isdigit():
        return float(value) / 1000
    return date_s(value)
