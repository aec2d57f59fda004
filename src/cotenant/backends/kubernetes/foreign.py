"""Pods that others have made and that name our scheduler: plain ones, and those of Jobs and other controllers.

Such a pod is launched by marking it as the launch of a key, and binding it; from then on it is seen as our own are. It
is never deleted but when somebody asks for its end: a Job counts the pods that are there. Where its own kubelet or
controller starts it again, that is theirs to do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from cotenant.backends.base import BackendError, LaunchSpec, Observed
from cotenant.backends.foreign import ForeignJob
from cotenant.backends.kubernetes.client import Body, KubeClient, KubeRefused
from cotenant.backends.kubernetes.mirror import Mirror
from cotenant.backends.kubernetes.pods import KEY, MARK, PREFIX, PodStyle, is_foreign
from cotenant.backends.kubernetes.seen import quantity

TENANT = f"{PREFIX}/tenant"
_GIB = 2**30
_log = logging.getLogger(__name__)


class ForeignPods:
    """Of one namespace. `pods` has those that bear our mark."""

    def __init__(
        self, client: KubeClient, pods: Mirror, style: PodStyle, type_label: str, heard: Callable[[], None]
    ) -> None:
        self._client, self._pods, self._style, self._type_label = client, pods, style, type_label
        self._path = f"/api/v1/namespaces/{style.namespace}/pods"
        asked = {"labelSelector": f"!{MARK}", "fieldSelector": f"spec.schedulerName={style.scheduler}"}
        self._waiting = Mirror(client, self._path, asked, heard)
        self._taken: dict[str, str] = {}  # key -> name of its pod
        self._warned: set[str] = set()

    def start(self) -> None:
        """Begin to watch."""
        self._waiting.start()
        self._taken = {
            pod["metadata"]["annotations"][KEY]: name for name, pod in self._pods.objects().items() if is_foreign(pod)
        }

    def end(self) -> None:
        """End that."""
        self._waiting.end()

    def of(self, key: str) -> list[Body]:
        """The pod of a key, if it is a foreign one that is there."""
        pod = self._pods.get(self._taken[key]) if key in self._taken else None
        return [pod] if pod is not None and pod["metadata"]["annotations"].get(KEY) == key else []

    def deleted(self, key: str) -> Observed | None:
        """How a foreign pod ended that is not there any more: its owner has deleted it."""
        if key not in self._taken or self.of(key):
            return None
        return Observed(key, "lost", message="its pod was deleted")

    def offered(self) -> tuple[ForeignJob, ...]:
        """Those that nobody has bound yet, and that may go to any node of some GPU type."""
        if self._style.exact:
            return ()
        self._waiting.check()
        return tuple(self._job(pod) for pod in self._waiting.objects().values() if self._may_be_taken(pod))

    def _may_be_taken(self, pod: Body) -> bool:
        meta, spec, phase = pod["metadata"], pod["spec"], pod.get("status", {}).get("phase", "Pending")
        if spec.get("nodeName") or "deletionTimestamp" in meta or phase != "Pending":
            return False
        chooses = set(spec.get("nodeSelector") or {}) - {self._type_label}
        if not chooses and not (spec.get("affinity") or {}):
            return True
        if meta["uid"] not in self._warned:
            self._warned.add(meta["uid"])
            _log.warning("pod %s is left alone: of node selectors only %s is known here, and no affinity",
                         meta["name"], self._type_label)  # fmt: skip
        return False

    def _job(self, pod: Body) -> ForeignJob:
        meta, spec = pod["metadata"], pod["spec"]
        limits = [one.get("resources", {}).get("limits") or {} for one in spec["containers"]]
        asked = [one.get("resources", {}).get("requests") or {} for one in spec["containers"]]
        return ForeignJob(
            f"{meta['name']}/{meta['uid']}", f"pod {meta['namespace']}/{meta['name']}",
            int(_sum(limits, self._style.gpu)), str((spec.get("nodeSelector") or {}).get(self._type_label, "")),
            _sum(asked, "cpu"), _sum(asked, "memory") / _GIB, (meta.get("labels") or {}).get(TENANT, ""),
        )  # fmt: skip

    def take(self, spec: LaunchSpec, node: str) -> Body:
        """The pod of a launch, marked as such."""
        name, _, uid = spec.foreign.partition("/")
        if (known := self._waiting.get(name)) is not None and not self._may_be_taken(known):
            raise BackendError(f"job {spec.key}: pod {name} does not wait any more")
        mark = self._style.mark_of(spec, node)
        try:
            pod = self._client.patch(f"{self._path}/{name}", {"metadata": {"uid": uid, **mark}})
        except KubeRefused as error:
            if error.code in (404, 409):
                raise BackendError(f"job {spec.key}: pod {name} is not there any more") from None
            raise
        self._taken[spec.key] = name
        self._pods.take(pod)
        return pod

    def decline(self, name: str) -> None:
        """Delete it."""
        pod, _, uid = name.partition("/")
        try:
            self._client.delete(f"{self._path}/{pod}", None, uid)
        except KubeRefused as error:
            if error.code not in (404, 409):
                raise


def _sum(parts: Iterable[Body], name: str) -> float:
    return sum(quantity(part.get(name, 0)) for part in parts)
