"""Kubelets of nodes that are not there: what is bound to one runs as local processes, and is reported as real ones do.

It talks to the API over HTTP only, so it serves an emulated control plane and a real one. `down` is the plug of a node:
its heart-beats stop, and neither its processes nor its logs can be reached.
"""

from __future__ import annotations

import shutil
import signal
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

from cotenant.backends.base import BackendError
from cotenant.backends.kubernetes.client import KubeClient, KubeRefused
from cotenant.backends.kubernetes.mirror import Mirror
from cotenant.testing.kube_container import Container
from cotenant.testing.kube_store import stamp

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
BEAT_S = 1.0
_DEVICES = ("nvidia.com/gpu", "nvidia.com/gpu.shared")


@dataclass(frozen=True, slots=True)
class FakeNode:
    """A node as it is to appear."""

    name: str
    address: str
    gpu_type: str = "A100"
    gpus: int = 4
    device: str = "nvidia.com/gpu"
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Sandbox:
    """One pod at work."""

    node: str
    asks: dict[str, int]
    containers: list[Container]
    folder: Path
    told: bool = False
    kill_s: float = float("inf")
    said: Any = None

    @property
    def over(self) -> bool:
        """Whether nothing of it runs."""
        return all(one.ended for one in self.containers)


class FakeKubelets:
    """All nodes of a fake cluster in one object; one thread looks at all pods whenever something changes."""

    def __init__(self, client: KubeClient, nodes: Sequence[FakeNode], root: Path, tls: tuple[str, str] | None = None):
        self._client, self._nodes, self._root, self._tls = client, {node.name: node for node in nodes}, root, tls
        self.down: set[str] = set()
        self.pressed: set[str] = set()  # nodes whose disk is full
        self._sandboxes: dict[str, _Sandbox] = {}
        self._logs: dict[tuple[str, str, str, str], Container] = {}
        self._ports: dict[str, int] = {}
        self._servers: list[ThreadingHTTPServer] = []
        self._news, self._ending = threading.Event(), threading.Event()
        self._pods = Mirror(client, PODS, {}, self._news.set)

    def start(self) -> None:
        """Serve logs, register the nodes, begin to look."""
        for node in self._nodes.values():
            self._serve(node)
            with suppress(KubeRefused):
                labels = {"kubernetes.io/hostname": node.name, "nvidia.com/gpu.product": node.gpu_type, **node.labels}
                self._client.create(NODES, {"kind": "Node", "metadata": {"name": node.name, "labels": labels}})
            self._beat(node)
        self._pods.start()
        for work in (self._beats, self._loop):
            threading.Thread(target=work, daemon=True).start()

    def stop(self) -> None:
        """End everything that runs."""
        self._ending.set()
        self._news.set()
        self._pods.end()
        for sandbox in self._sandboxes.values():
            for one in sandbox.containers:
                one.tell(signal.SIGKILL)
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def crash(self, node: str) -> None:
        """Pull the plug: its processes die, and nobody is told."""
        self.down.add(node)
        for sandbox in self._sandboxes.values():
            for one in sandbox.containers if sandbox.node == node else ():
                one.tell(signal.SIGKILL)

    def power_on(self, node: str) -> None:
        """It is back, and reports what became of its pods."""
        self._beat(self._nodes[node])
        self.down.discard(node)
        self._news.set()

    def _serve(self, node: FakeNode) -> None:
        server = ThreadingHTTPServer((node.address, 0), type("_Logs", (_LogHandler,), {"of": self, "node": node.name}))
        server.daemon_threads = True
        if self._tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._tls)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        self._servers.append(server)
        self._ports[node.name] = server.server_port

    def container(self, node: str, namespace: str, pod: str, name: str) -> Container | None:
        """For the logs."""
        return None if node in self.down else self._logs.get((node, namespace, pod, name))

    # -- nodes -----------------------------------------------------------------------------------------------------

    def _beat(self, node: FakeNode) -> None:
        has = {"cpu": "16", "memory": "64Gi", "pods": "110", node.device: str(node.gpus)}
        ready = {"type": "Ready", "status": "True", "reason": "Fake", "lastHeartbeatTime": stamp()}
        pressed = {"type": "DiskPressure", "status": str(node.name in self.pressed), "message": "its disk is full"}
        said = [{**one, "lastTransitionTime": stamp()} for one in (ready, pressed)]
        status = {
            "capacity": has, "allocatable": has, "conditions": said,
            "addresses": [{"type": "InternalIP", "address": node.address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._ports[node.name]}},
        }  # fmt: skip
        self._client.patch(f"{NODES}/{node.name}/status", {"status": status})

    def press(self, name: str, full: bool) -> None:
        """From now on the disk of a node is full, or no longer."""
        (self.pressed.add if full else self.pressed.discard)(name)
        self._beat(self._nodes[name])

    def _beats(self) -> None:
        while not self._ending.wait(BEAT_S):
            for node in self._nodes.values():
                if node.name not in self.down:
                    with suppress(BackendError):
                        self._beat(node)

    # -- pods ------------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        while not self._ending.is_set():
            due_s = min((one.kill_s for one in self._sandboxes.values()), default=float("inf"))
            longest_s = 0.02 if any(one.said is None for one in self._sandboxes.values()) else 1.0
            self._news.wait(min(longest_s, max(0.0, due_s - time.monotonic())))
            self._news.clear()
            pods = {pod["metadata"]["uid"]: pod for pod in self._pods.objects().values()}
            for uid, pod in pods.items():
                node = pod["spec"].get("nodeName")
                if node in self._nodes and node not in self.down:
                    with suppress(BackendError):  # the next look tries again
                        self._sync(uid, pod)
            for uid in [uid for uid, one in self._sandboxes.items() if uid not in pods and one.node not in self.down]:
                self._remove(uid)

    def _sync(self, uid: str, pod: dict[str, Any]) -> None:
        meta, sandbox = pod["metadata"], self._sandboxes.get(uid)
        leaving = "deletionTimestamp" in meta
        if sandbox is None:
            if leaving and meta["deletionGracePeriodSeconds"]:
                self._client.delete(self._path(pod), 0, uid)
            elif not leaving and pod["status"].get("phase") == "Pending":
                self._begin(uid, pod)
            return
        if leaving and not sandbox.over:
            self._end(sandbox, meta["deletionGracePeriodSeconds"])
        self._report(pod, sandbox)
        if leaving and sandbox.over and meta["deletionGracePeriodSeconds"]:
            self._forget_logs(sandbox)
            self._client.delete(self._path(pod), 0, uid)

    def _begin(self, uid: str, pod: dict[str, Any]) -> None:
        node, meta = self._nodes[pod["spec"]["nodeName"]], pod["metadata"]
        asks: dict[str, int] = {}
        for spec in pod["spec"]["containers"]:
            for device in _DEVICES:
                asks[device] = asks.get(device, 0) + int(spec.get("resources", {}).get("limits", {}).get(device, 0))
        for device, count in asks.items():
            used = sum(one.asks[device] for one in self._sandboxes.values() if one.node == node.name and not one.over)
            if count and count + used > (node.gpus if device == node.device else 0):
                text = f"Node didn't have enough resource: {device}, requested: {count}, used: {used}"
                self._patch(pod, {"phase": "Failed", "reason": f"OutOf{device}", "message": text})
                return
        folder = self._root / uid
        folder.mkdir(parents=True, exist_ok=True)
        sandbox = self._sandboxes[uid] = _Sandbox(node.name, asks, [], folder)
        for spec in pod["spec"]["containers"]:
            one = Container(spec, uid, self._folders(pod, spec, folder), self._news.set)
            sandbox.containers.append(one)
            self._logs[node.name, meta["namespace"], meta["name"], one.name] = one
        self._report(pod, sandbox)

    def _folders(self, pod: Mapping[str, Any], spec: Mapping[str, Any], own: Path) -> dict[str, str]:
        """Where the volumes of a container are on this machine."""
        found = {"": str(own)}
        volumes = {one["name"]: one for one in pod["spec"].get("volumes", ())}
        for mount in spec.get("volumeMounts", ()):
            volume = volumes[mount["name"]]
            if "hostPath" in volume:
                place = Path(volume["hostPath"]["path"])
            elif "persistentVolumeClaim" in volume:
                place = self._root / "claims" / volume["persistentVolumeClaim"]["claimName"]
            else:
                place = own / mount["name"]
            place.mkdir(parents=True, exist_ok=True)
            found[mount["mountPath"]] = str(place)
        return found

    def _end(self, sandbox: _Sandbox, grace_s: int) -> None:
        now_s = time.monotonic()
        if not sandbox.told and all(one.listens() for one in sandbox.containers):
            sandbox.told = True
            for one in sandbox.containers:
                one.tell(signal.SIGTERM)
        sandbox.kill_s = min(sandbox.kill_s, now_s + grace_s)
        if now_s >= sandbox.kill_s:
            sandbox.kill_s = float("inf")
            for one in sandbox.containers:
                one.tell(signal.SIGKILL)

    def _report(self, pod: dict[str, Any], sandbox: _Sandbox) -> None:
        statuses = [one.status() for one in sandbox.containers]
        if statuses == sandbox.said or not all(one.listens() for one in sandbox.containers):
            return  # real kubelets look once a second: what they report to run has begun long since
        if sandbox.over:
            sandbox.kill_s = float("inf")
        good = all(one.code == 0 for one in sandbox.containers)
        phase = "Running" if not sandbox.over else "Succeeded" if good else "Failed"
        address = self._nodes[sandbox.node].address
        told = {"phase": phase, "containerStatuses": statuses, "startTime": sandbox.containers[0].began}
        self._patch(pod, {**told, "hostIP": address, "podIP": address})
        sandbox.said = statuses

    def _patch(self, pod: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        self._client.patch(f"{self._path(pod)}/status", {"status": dict(status)})

    def _path(self, pod: Mapping[str, Any]) -> str:
        return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"

    def _forget_logs(self, sandbox: _Sandbox) -> None:
        """As real kubelets do at once, with the containers of a pod that was deleted."""
        for place in [place for place, one in self._logs.items() if one in sandbox.containers]:
            del self._logs[place]

    def _remove(self, uid: str) -> None:
        sandbox = self._sandboxes[uid]
        for one in sandbox.containers:
            one.tell(signal.SIGKILL)
        if sandbox.over:
            self._forget_logs(sandbox)
            shutil.rmtree(sandbox.folder, ignore_errors=True)
            del self._sandboxes[uid]


class _LogHandler(BaseHTTPRequestHandler):
    of: ClassVar[FakeKubelets]
    node: ClassVar[str]
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        """`/containerLogs/NAMESPACE/POD/CONTAINER`."""
        url = urlsplit(self.path)
        _, _, *parts = url.path.split("/")
        found = self.of.container(self.node, *parts) if len(parts) == 3 else None
        self.close_connection = True
        if found is None:
            text = b"container is not known here"
            self.send_response(404)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with suppress(OSError):
            for data in found.log.read(dict(parse_qsl(url.query))):
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")
