"""What the cluster says of nodes and pods, in the words of the boundary."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from cotenant.backends.base import NodeInfo, Observed
from cotenant.backends.kubernetes.client import Body
from cotenant.backends.kubernetes.pods import KEY, RANK, RANKS, TOLD, TOLERATED, is_foreign, main_of, slots
from cotenant.core.node_faults import NodeFault

_UNITS = {
    "": 1.0,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
_SIGKILL, _SIGTERM, _BY_SIGNAL, _LAST_SIGNAL = 9, 15, 128, 64
_STUCK = (
    "ErrImageNeverPull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError",
    "RunContainerError",
)  # fmt: skip


def quantity(text: str | int) -> float:
    """`16`, `1500m`, `64Gi` as a number."""
    match = re.fullmatch(r"([0-9.]+)([A-Za-z]{0,2})", str(text))
    return float(match[1]) * _UNITS.get(match[2], 1.0) if match else 0.0


def seconds(text: str | None) -> float | None:
    """A time as Kubernetes writes it, in seconds since 1970."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() if text else None


def node_info(node: Body, gpu: str, type_label: str) -> NodeInfo:
    """A node as capacity. Up is one that is ready and on which pods of ours may be put."""
    meta, status = node["metadata"], node.get("status", {})
    labels, has = meta.get("labels") or {}, status.get("allocatable", {})
    free, all_ = (int(quantity(one.get(gpu, 0))) for one in (has, status.get("capacity", {})))
    gpus = all_ or free  # fewer, or none, can be had while some are not well, or the device plugin starts again
    replicas = int(labels.get("nvidia.com/gpu.replicas") or 1) if gpu.endswith(".shared") else 1
    addresses = [one["address"] for one in status.get("addresses", ()) if one["type"] == "InternalIP"]
    up = ready(node) == "True" and not _closed(node) and free == gpus
    return NodeInfo(
        meta["name"], labels.get(type_label) or ("gpu" if gpus else "none"), gpus,
        int(quantity(has.get("cpu", 0))), quantity(has.get("memory", 0)) / 2**30, "up" if up else "down",
        quantity(labels.get("nvidia.com/gpu.memory", 0)) / 2**10 / replicas, address=addresses[0] if addresses else "",
        faults=tuple(_faults(node, free, gpus)),
    )  # fmt: skip


def _faults(node: Body, free: int, gpus: int) -> Iterator[NodeFault]:
    """What Kubernetes holds against a node. Which GPU the device plugin has taken out is not told: all may be it."""
    conditions = {one["type"]: one for one in node.get("status", {}).get("conditions", ())}
    if (state := ready(node)) != "True":
        said = conditions.get("Ready", {})
        why = said.get("message") or said.get("reason") or "nobody says why"
        yield NodeFault("ready", f"Kubernetes says Ready={state}: {why}", leave=state == "False")
    pressed = {name: said for name, said in conditions.items() if name != "Ready" and said["status"] == "True"}
    if pressed:
        told = (f"{name} ({said.get('message') or said.get('reason') or ''})" for name, said in pressed.items())
        yield NodeFault("pressure", f"Kubernetes says {', '.join(told)}")
    if taints := _taints(node):
        told = (f"{one['key']}:{one['effect']}" for one in taints)
        away = any(one["effect"] == "NoExecute" for one in taints)
        yield NodeFault("taint", f"Kubernetes says tainted {', '.join(told)}", leave=away)
    elif node.get("spec", {}).get("unschedulable"):
        yield NodeFault("taint", "Kubernetes says cordoned", leave=False)
    if 0 < free < gpus:
        yield NodeFault("devices", f"the device plugin offers {free} of {gpus} GPUs")


def has_labels(node: Body, wanted: Mapping[str, str]) -> bool:
    """Whether a node is one of those asked for."""
    labels = node["metadata"].get("labels") or {}
    return all(labels.get(name) == value for name, value in wanted.items())


def ready(node: Body) -> str:
    """True, False, or Unknown where its kubelet has not been heard of."""
    found = [one["status"] for one in node.get("status", {}).get("conditions", ()) if one["type"] == "Ready"]
    return str(found[0]) if found else "Unknown"


def _closed(node: Body) -> bool:
    return bool(node.get("spec", {}).get("unschedulable")) or bool(_taints(node))


def _taints(node: Body) -> list[Body]:
    """Those that keep our pods away."""
    found = node.get("spec", {}).get("taints") or ()
    return [one for one in found if one["effect"] != "PreferNoSchedule" and one["key"] not in TOLERATED]


@dataclass(frozen=True, slots=True)
class PodSeen:
    """One pod of a gang."""

    state: Literal["starting", "running", "exited", "lost"]
    alive: bool = True
    code: int = 0
    oom: bool = False
    started_s: float | None = None
    ended_s: float | None = None
    message: str = ""


def see_pod(pod: Body, is_gone: Callable[[str], bool]) -> PodSeen:
    """From what its kubelet has reported. `is_gone`: whether nobody has heard of a node."""
    meta, status, node = pod["metadata"], pod.get("status", {}), pod["spec"].get("nodeName", "")
    main = _main_state(pod)
    dropped = meta.get("deletionGracePeriodSeconds") == 0 and "deletionTimestamp" in meta
    if end := main.get("terminated"):
        times = seconds(end.get("startedAt")), seconds(end.get("finishedAt"))
        oom, text = end.get("reason") == "OOMKilled", end.get("message") or ""
        return PodSeen("exited", False, int(end["exitCode"]), oom, *times, text.strip())
    if status.get("phase") == "Failed":
        said = ": ".join(filter(None, (status.get("reason"), status.get("message"))))
        return PodSeen("lost", False, message=f"its pod failed on node {node}: {said or 'nobody says why'}")
    if dropped and "running" not in main:
        return PodSeen("exited", False, _BY_SIGNAL + _SIGKILL, message="ended before it began")
    if node and is_gone(node):
        return PodSeen("lost", False, message=f"node {node} is down")
    if dropped:
        return PodSeen("lost", False, message=f"its pod on node {node} was deleted by force")
    if running := main.get("running"):
        return PodSeen("running", started_s=seconds(running.get("startedAt")))
    waiting = main.get("waiting") or {}
    if waiting.get("reason") in _STUCK:
        return PodSeen("lost", True, message=f"{waiting['reason']} on node {node}: {waiting.get('message', '')}")
    return PodSeen("starting")


def _main_state(pod: Body) -> Body:
    """Of the container that is the job. A foreign one may be started again by its kubelet: its phase says when not."""
    status = pod.get("status", {})
    states = {one["name"]: one["state"] for one in status.get("containerStatuses", ())}
    main: Body = states.get(main_of(pod), {})
    if not is_foreign(pod) or status.get("phase") not in ("Succeeded", "Failed"):
        return {name: what for name, what in main.items() if not is_foreign(pod) or name != "terminated"}
    ends: list[Body] = [one["terminated"] for one in states.values() if "terminated" in one]
    return {"terminated": next((one for one in ends if one["exitCode"]), ends[0])} if ends else {}


def see_gang(pods: Sequence[Body], is_gone: Callable[[str], bool], exact: bool) -> Observed:
    """The pods of one key, by rank, as one job: it runs when all do, and ends with the first that fails."""
    first = pods[0]
    notes = first["metadata"]["annotations"]
    key, count = notes[KEY], int(notes[RANKS])
    seen = [see_pod(pod, is_gone) for pod in pods]
    alive = any(one.alive for one in seen)
    started = [one.started_s for one in seen if one.started_s is not None]
    started_s = min(started, default=None)
    names = ", ".join(f"{pod['metadata']['name']} on {pod['spec'].get('nodeName', '?')}" for pod in pods[:3])
    hint, gpus = f"pod {names}", () if exact else slots(first)
    lost = next((one.message for one in seen if one.state == "lost"), "")
    if len(pods) < count and not lost:
        lost = f"{count - len(pods)} of its {count} pods are gone"
    if lost:
        return Observed(key, "lost", alive, started_s=started_s, message=lost, hint=hint)
    if all(one.state == "exited" for one in seen):
        return _ended(key, first, seen, started_s, hint, gpus)
    if any(one.state == "starting" for one in seen):
        return Observed(key, "starting", True, hint=hint)
    return Observed(key, "running", True, started_s=started_s, hint=hint, gpus=gpus)


def _ended(
    key: str, first: Body, seen: Sequence[PodSeen], started_s: float | None, hint: str,
    gpus: tuple[tuple[str, tuple[int, ...]], ...],
) -> Observed:  # fmt: skip
    """Those that failed by themselves count before those that were ended because of them."""
    ended_s = max((one.ended_s for one in seen if one.ended_s is not None), default=None)
    failed = [one for one in seen if one.code]
    told = (_BY_SIGNAL + _SIGKILL, _BY_SIGNAL + _SIGTERM)
    end = min(failed, key=lambda one: (one.code in told and not one.oom, one.ended_s or 0.0), default=seen[0])
    number = end.code - _BY_SIGNAL if 0 < end.code - _BY_SIGNAL <= _LAST_SIGNAL else None
    if number == _SIGTERM and first["metadata"]["annotations"].get(TOLD) == "kill":
        number = _SIGKILL  # Kubernetes says SIGTERM first, whatever it was asked for
    code = end.code if number is None else None
    started_s = ended_s if started_s is None else started_s
    return Observed(key, "exited", False, code, number, started_s, ended_s, end.oom, end.message, hint, gpus)


def gangs(pods: Mapping[str, Body]) -> dict[str, list[Body]]:
    """Pods by key and rank."""
    found: dict[str, list[Body]] = {}
    for pod in pods.values():
        found.setdefault(pod["metadata"]["annotations"][KEY], []).append(pod)
    for key in found:
        found[key].sort(key=lambda pod: int(pod["metadata"]["annotations"][RANK]))
    return found


def is_whole(pods: Sequence[Body]) -> bool:
    """Whether a gang was ever launched: its first pod is made last."""
    return bool(pods[0]["metadata"]["annotations"][RANK] == "0")
