"""Jobs as pods of a Kubernetes cluster, on the nodes that we choose: one pod per machine, bound by us.

A launch makes all pods of a gang, the first one last, and binds them then: a gang without its first pod was never
launched, and one that has it can be bound by whoever finds it. What is there is known from a watch (`mirror`), how it
stands from what kubelets report (`seen`). To stop is to delete, within a grace period; a finalizer keeps what is left.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from cotenant.backends.base import (
    BackendError,
    Capabilities,
    LaunchSpec,
    NodeGone,
    NodeInfo,
    Observed,
    Stream,
    check_key,
    check_spec,
)
from cotenant.backends.channels import Channel, ChannelSpec
from cotenant.backends.foreign import ForeignJob
from cotenant.backends.kubernetes.access import KubeAccess, find_access
from cotenant.backends.kubernetes.acts import KILL_S, PodActs
from cotenant.backends.kubernetes.client import Body, KubeClient, KubeRefused
from cotenant.backends.kubernetes.foreign import ForeignPods
from cotenant.backends.kubernetes.lease import KubeLease
from cotenant.backends.kubernetes.mirror import Mirror
from cotenant.backends.kubernetes.pods import KEY, MARK, RANKS, TOLD, PodStyle, launched
from cotenant.backends.kubernetes.reading import LogKeeper, PodLog
from cotenant.backends.kubernetes.seen import gangs, has_labels, is_whole, node_info, ready, seconds, see_gang, see_pod
from cotenant.backends.local.logs import LocalLog, LocalTimes
from cotenant.core.errors import InputError, unknown
from cotenant.core.spec import Value

_log = logging.getLogger(__name__)
_UPKEEP_S = 10.0
_HALF_MADE_S = 600.0
_ALIVE = ("starting", "running")


class KubernetesBackend:
    """See `Backend`. `open` reads options; the constructor takes a cluster and what its pods are like."""

    defaults: ClassVar[dict[str, Value]] = {
        "namespace": "", "context": "", "image": "", "gpu": "nvidia.com/gpu", "gpus": "counted",
        "type_label": "nvidia.com/gpu.product", "nodes": "", "mark": "cotenant", "claim": "", "mounts": "",
        "runtime_class": "", "listen": "", "announce": "", "lease": "",
    }  # fmt: skip

    def __init__(
        self, home: Path, access: KubeAccess, style: PodStyle, *, type_label: str = "nvidia.com/gpu.product",
        nodes: str = "", listen: str = "", lease: str = "",
    ) -> None:  # fmt: skip
        self._style, self._type_label, self._wanted = (
            style,
            type_label,
            dict(map(_label, filter(None, nodes.split("+")))),
        )
        self._listen, self._home = listen or f"tcp:{_own_address(access.server)}:0", home
        self._client = KubeClient(access)
        self._news, self._ending = threading.Event(), threading.Event()
        self._path = f"/api/v1/namespaces/{style.namespace}/pods"
        self._pods = Mirror(self._client, self._path, {"labelSelector": f"{MARK}={style.mark}"}, self._heard)
        self._hosts = Mirror(self._client, "/api/v1/nodes", {}, self._heard, self._matters)
        self._foreign = ForeignPods(self._client, self._pods, style, type_label, self._heard)
        self._acts = PodActs(self._client, self._pods, self._path, style.mark)
        self._output = LogKeeper(self._client, style.namespace, home / "logs", self._of, self._lives)
        self._upkeep_due = threading.Event()
        self._upkeep = threading.Thread(target=self._keep_up, name="kubernetes upkeep", daemon=True)
        self._lease = KubeLease(self._client, style.namespace, lease, _own_name()) if lease else None
        try:
            if self._lease is not None:
                self._lease.acquire()
            self._hosts.start()
            self._pods.start()
            self._foreign.start()
        except BackendError as error:
            self._let_go()
            raise InputError(f"backend kubernetes: {error}") from None
        except InputError:
            self._let_go()
            raise
        self._upkeep.start()

    @classmethod
    def open(
        cls, home: Path, *, namespace: str = "", context: str = "", gpus: str = "counted", mounts: str = "",
        listen: str = "", type_label: str = "nvidia.com/gpu.product", nodes: str = "", announce: str = "",
        lease: str = "", **style: Any,
    ) -> KubernetesBackend:  # fmt: skip
        """As `serve --backend kubernetes:namespace=jobs,image=pytorch/pytorch` asks for it."""
        if gpus not in ("counted", "exact"):
            raise unknown("backend 'kubernetes': gpus", gpus, ("counted", "exact"))
        for name, address in (("listen", listen), ("announce", announce)):
            if address and not address.startswith("tcp:"):
                raise InputError(f"backend 'kubernetes': {name}={address}: write tcp:host:port")
        folders = tuple(filter(None, mounts.split("+")))
        if wrong := [path for path in folders if not os.path.isabs(path)]:
            raise InputError(f"backend 'kubernetes': mounts={mounts}: '{wrong[0]}' is not an absolute path")
        access = find_access(context)
        made = PodStyle(
            namespace or access.namespace, exact=gpus == "exact", mounts=folders, announce=announce, **style
        )
        return cls(home, access, made, type_label=type_label, nodes=nodes, listen=listen, lease=lease)

    def close(self) -> None:
        """Let go of connections. Jobs run on."""
        self._ending.set()
        self._upkeep_due.set()
        self._upkeep.join()
        self._let_go()

    def _let_go(self) -> None:
        self._ending.set()
        self._pods.end()
        self._hosts.end()
        self._foreign.end()
        self._output.close()
        if self._lease is not None:
            self._lease.release()
        self._client.close()

    def _check(self) -> None:
        """Raise unless what is known is new, and ours to act on."""
        if self._lease is not None:
            self._lease.check()
        self._pods.check()

    # -- what is there ---------------------------------------------------------------------------------------------

    def _heard(self) -> None:
        self._news.set()
        self._upkeep_due.set()

    def _matters(self, node: Body) -> object:
        return node_info(node, self._style.gpu, self._type_label), ready(node)

    def nodes(self) -> list[NodeInfo]:
        """Nodes that have the device, or those that were asked for by label."""
        self._hosts.check()
        return self._node_infos()

    def _node_infos(self) -> list[NodeInfo]:
        hosts = [node for node in self._hosts.objects().values() if has_labels(node, self._wanted)]
        found = (node_info(node, self._style.gpu, self._type_label) for node in hosts)
        return sorted((one for one in found if one.gpus or self._wanted), key=lambda one: one.name)

    def _is_gone(self, node: str) -> bool:
        """Whether nobody has heard of a node: its kubelet is silent, or it was taken out of the cluster."""
        found = self._hosts.get(node)
        return found is None or ready(found) == "Unknown"

    def capabilities(self) -> Capabilities:
        """What Kubernetes has; it cannot let a pod stand still."""
        style = self._style
        notes = [f"namespace {style.namespace}, mark {style.mark}"]
        if not style.shared_folder():
            notes.append("checkpoints end with their pod: give claim=NAME or mounts=/FOLDER")
        if not style.exact:
            notes.append("which GPU of a node a pod gets is the device plugin's choice, and not told")
        return Capabilities(
            gpu="nvml", memory_limit=True, cpu_quota=True, cpu_affinity=False, suspend="none", gpu_suspend="none",
            kill_scope="cgroup", outlives_service=True, notes=tuple(notes), containers="Kubernetes",
            exact_gpus=style.exact,
            unprotected=(f"pods of all tenants are in namespace {style.namespace}: who may read pods there sees them",),
        )  # fmt: skip

    def observe(self) -> list[Observed]:
        """Every gang with our mark; `Unreachable` while nobody can tell."""
        self._check()
        self._hosts.check()
        whole = (pods for pods in gangs(self._pods.objects()).values() if is_whole(pods))
        return sorted((self._see(pods) for pods in whole), key=lambda one: one.key)

    def _see(self, pods: Sequence[Body]) -> Observed:
        return see_gang(pods, self._is_gone, self._style.exact)

    def _of(self, key: str) -> list[Body]:
        """The pods of a key; none if it was never launched."""
        gang = self._style.gang(check_key(key))
        if (first := self._pods.get(f"{gang}-0")) is None:
            return self._foreign.of(key)
        others = range(1, int(first["metadata"]["annotations"][RANKS]))
        return [first, *(pod for n in others if (pod := self._pods.get(f"{gang}-{n}")) is not None)]

    def _lives(self, key: str) -> bool:
        pods = self._of(key)
        return bool(pods) and self._see(pods).alive

    def listen_at(self) -> tuple[str, ...]:
        """Over TCP, at the address of this machine that the cluster sees."""
        return (self._listen,)

    def wait_change(self, timeout_s: float | None) -> bool:
        """Sleep until a watch has news."""
        changed = self._news.wait(timeout_s)
        self._news.clear()
        return changed

    def wake(self) -> None:
        """End a `wait_change`."""
        self._news.set()

    # -- starting --------------------------------------------------------------------------------------------------

    def launch(self, spec: LaunchSpec) -> None:
        """Make the pods that are not there yet, the first one last; then bind them."""
        self._check()
        nodes = {node.name: node for node in self.nodes()}
        check_spec(spec, nodes)
        for name, _ in spec.gpus:
            if nodes[name].state != "up":
                raise NodeGone(f"job {spec.key}: node {name} is {nodes[name].state}")
        if self._of(spec.key):
            return
        if spec.foreign:
            node = spec.gpus[0][0] if spec.gpus else self._quiet_node(list(nodes.values()))
            self._acts.bind(self._foreign.take(spec, node))
            return
        pods = self._style.pods(spec, nodes, self._quiet_node(list(nodes.values())))
        made: list[Body] = []
        try:
            for pod in reversed(pods):
                made.append(self._acts.make(pod))
        except KubeRefused as error:
            for pod in made:
                self._acts.remove(pod)
            raise BackendError(f"job {spec.key}: nothing was started: {error}") from None
        for pod in made:
            self._acts.bind(pod)

    def _quiet_node(self, nodes: Sequence[NodeInfo]) -> str:
        """For a job without GPUs: the node with the fewest of our pods."""
        count = dict.fromkeys((node.name for node in nodes if node.state == "up"), 0)
        if not count:
            raise BackendError("no node is up")
        for pod in self._pods.objects().values():
            if (name := pod["spec"].get("nodeName")) in count:
                count[name] += 1
        return min(count, key=lambda name: (count[name], name))

    # -- ending ----------------------------------------------------------------------------------------------------

    def terminate(self, key: str) -> bool:
        """SIGTERM, and the grace period of its launch."""
        return self._end(key, None)

    def kill(self, key: str) -> bool:
        """SIGTERM, and SIGKILL right after it: Kubernetes knows no other way."""
        return self._end(key, KILL_S)

    def _end(self, key: str, grace_s: int | None) -> bool:
        pods = self._of(key)
        self._check()
        if not pods or not self._see(pods).alive:
            return False
        if grace_s is not None:
            self._acts.change(pods[0], {"metadata": {"annotations": {TOLD: "kill"}}})
        for pod in pods:
            if see_pod(pod, self._is_gone).alive:
                self._output.follow(pod)
                self._acts.delete(pod, grace_s)
        return True

    def forget(self, key: str, keep_log: bool = False) -> None:
        """Take the finalizers off. A pod on a lost node goes when that node is back and has ended it."""
        pods = self._of(key) or gangs(self._pods.objects()).get(key, [])
        self._check()
        if pods and is_whole(pods) and self._see(pods).alive:
            raise BackendError(f"job {key} still runs: kill it before forgetting it")
        if pods and keep_log:
            self._output.pull(key, final=True)
        self._output.forget(key)
        for pod in reversed(pods):  # the first one last: until then it is there
            self._acts.remove(pod)
        if not keep_log and pods:
            self._output.kept(key).drop()

    # -- what nobody asked for -------------------------------------------------------------------------------------

    def _keep_up(self) -> None:
        """After each change: bind what a launch left unbound, end gangs of which one has failed; keep output."""
        kept_s = time.monotonic()
        while not self._ending.is_set():
            self._upkeep_due.wait(_UPKEEP_S)
            self._upkeep_due.clear()
            try:
                if self._lease is not None:
                    self._lease.check()
                for key, pods in gangs(self._pods.objects()).items():
                    if not self._ending.is_set():
                        self._keep_gang(key, pods)
                if time.monotonic() - kept_s > _UPKEEP_S:
                    kept_s = time.monotonic()
                    self._keep_output()
            except BackendError as error:
                _log.debug("kubernetes: %s", error)
                self._ending.wait(1.0)

    def _keep_gang(self, key: str, pods: Sequence[Body]) -> None:
        if not is_whole(pods):
            made_s = seconds(pods[0]["metadata"]["creationTimestamp"]) or 0.0
            if time.time() - made_s > _HALF_MADE_S:
                for pod in pods:
                    self._acts.remove(pod)
            return
        seen = [see_pod(pod, self._is_gone) for pod in pods]
        if any(one.state == "exited" and one.code for one in seen):
            for pod, one in zip(pods, seen, strict=True):
                if one.alive and "deletionTimestamp" not in pod["metadata"]:
                    self._output.follow(pod)
                    self._acts.delete(pod, None)
            return
        for pod in pods:
            self._acts.bind(pod)

    def _keep_output(self) -> None:
        for pods in gangs(self._pods.objects()).values():
            if is_whole(pods) and not self._ending.is_set() and self._see(pods).state == "running":
                self._output.pull(pods[0]["metadata"]["annotations"][KEY])

    # -- what is left of it, and what Kubernetes does not do --------------------------------------------------------

    def launched(self, key: str) -> LaunchSpec | None:
        """From its first pod."""
        pods = self._of(key)
        return launched(pods[0]) if pods else None

    def ended(self, key: str) -> Observed | None:
        """With its pod all is gone but its output; of one that somebody else made, and deleted, that much is known."""
        return self._foreign.deleted(check_key(key))

    def offered(self) -> tuple[ForeignJob, ...]:
        """See `TakesForeign`: pods that name our scheduler, and wait."""
        return self._foreign.offered()

    def decline(self, name: str) -> None:
        """See `TakesForeign`."""
        self._foreign.decline(name)

    def open_log(self, key: str, stream: Stream) -> PodLog:
        """What was read of it and kept, and what its nodes still have."""
        return PodLog(self._output, check_key(key), stream)

    def open_times(self, key: str) -> LocalTimes:
        """As containers' runtimes note it, to 10 ms."""
        folder = self._output.kept(check_key(key)).folder
        return LocalTimes(LocalLog(key, "times", (folder,), lambda: False))

    def drop_log(self, key: str) -> None:
        """Delete what was kept."""
        self._output.kept(check_key(key)).drop()

    def checkpoint_dir(self, job: str, asked: str = "") -> str:
        """On the volume that all pods see; in the pod itself, for its own time, where there is none."""
        usual = f"{self._style.shared_folder() or '/tmp/cotenant'}/checkpoints/{check_key(job)}"
        return asked or usual

    def drop_checkpoints(self, job: str) -> None:
        """Where this machine sees the volume too."""
        check_key(job)
        if folder := self._style.shared_folder():
            shutil.rmtree(f"{folder}/checkpoints/{job}", ignore_errors=True)

    def open_channel(self, key: str, asked: ChannelSpec) -> Channel:
        """None: `kubectl exec` and `kubectl port-forward` are at hand."""
        raise BackendError(f"backend kubernetes offers no {asked.kind}: use kubectl on the pods that `show` names")

    def suspend(self, key: str) -> bool:
        """Kubernetes cannot."""
        check_key(key)
        return False

    def resume(self, key: str) -> bool:
        """Nothing was suspended."""
        check_key(key)
        return False

    def set_limits(
        self, key: str, cpus: Sequence[int] | None = None, cpu_share: float | None = None,
        mem_gib: float | None = None,
    ) -> bool:  # fmt: skip
        """The limits of a pod are those of its launch."""
        return self._lives(key) and cpus is None and cpu_share is None and mem_gib is None


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"backend 'kubernetes': nodes={text}: write LABEL=VALUE, several with + between them")
    return name, value


def _own_name() -> str:
    """Who holds a lease: this process, and no other that ever was."""
    return f"{socket.gethostname()}-{os.getpid()}-{int(time.time())}"


def _own_address(server: str) -> str:
    """The address of this machine on the way to the cluster."""
    url = urlsplit(server)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((url.hostname or "127.0.0.1", url.port or 443))
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
