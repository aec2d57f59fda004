"""A Kubernetes cluster for tests, as a program: an emulated API with fake kubelets, or fake kubelets for a real one.

    python -m cotenant.testing.kube_world FOLDER [--nodes 4] [--host ADDRESS] [--real KUBECONFIG] [--rules MANIFEST ...]

It leaves `FOLDER/kubeconfig` and says `ready`. Then it does what lines of its standard input ask for (`away`, `back`,
`down NODE`, `up NODE`, `ill NODE`, `well NODE`, `compact`, `again POD`, `left`), answers each with one line, and ends
with its input: so nothing of it outlives the test. With `--rules` the kubeconfig's user may do only what the roles in
these manifests allow.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import yaml

from cotenant.backends.base import BackendError
from cotenant.backends.kubernetes.access import KubeAccess, from_file
from cotenant.backends.kubernetes.client import KubeClient
from cotenant.backends.local import procs
from cotenant.backends.local.keeper import PR_SET_CHILD_SUBREAPER
from cotenant.testing import kube_server
from cotenant.testing.kube_container import MARK
from cotenant.testing.kube_kubelet import NODES, PODS, FakeKubelets, FakeNode

_ROLES = ("Role", "ClusterRole")


def rules_of(paths: list[Path]) -> list[dict[str, list[str]]]:
    """The rules of all roles in these manifests."""
    found = [one for path in paths for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one]
    return [rule for one in found if one["kind"] in _ROLES for rule in one["rules"]]


class KubeWorld:
    """The cluster and its plugs."""

    def __init__(
        self, folder: Path, types: Sequence[str], real: str, rules: list[Path], host: str = "127.0.0.1"
    ) -> None:
        self._api: kube_server.KubeApi | None = None
        tls = None
        if real:
            access = from_file(Path(real))
            tls = _certificate(folder)
        else:
            self._api = kube_server.KubeApi()
            self._api.tokens["service"] = rules_of(rules) if rules else None
            url = f"http://{host}:{kube_server.start(self._api, host=host).server_port}"
            (folder / "kubeconfig").write_text(yaml.safe_dump(_config(url, "service")), encoding="utf-8")
            access = KubeAccess(url, None, lambda: "admin", "default")
        self._client = KubeClient(access)
        made = [FakeNode(f"gpu-{number}", f"127.0.0.{10 + number}", name) for number, name in enumerate(types)]
        self._names = [node.name for node in made]
        self.kubelets = FakeKubelets(self._client, made, folder / "pods", tls)
        self.kubelets.start()

    def do(self, word: str, *names: str) -> object:
        """One line of input."""
        match word, names:
            case "away" | "back", ():
                assert self._api is not None
                (self._api.away.set if word == "away" else self._api.away.clear)()
            case "down" | "up", (node,):
                self._plug(node, word == "up")
            case "ill" | "well", (node,):
                self.kubelets.press(node, word == "ill")
            case "compact", ():
                assert self._api is not None
                self._api.store.compact()
            case "again", (name,):
                assert self._api is not None
                self._api.store.tell_again(name)
            case "left", ():
                pods = self._client.get(PODS)["items"]
                running = sorted(pid for pid in _ours() if procs.state_of(pid) not in "ZX")
                return [*(pod["metadata"]["name"] for pod in pods), *(f"process {pid}" for pid in running)]
            case _:
                return f"unknown: {word} {' '.join(names)}"
        return "done"

    def _plug(self, node: str, up: bool) -> None:
        """A crash: what ran there is dead, and nobody hears of it. The emulator has no controller that notices."""
        if up:
            self.kubelets.power_on(node)
        else:
            self.kubelets.crash(node)
            if self._api is not None:
                ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
                self._client.patch(f"{NODES}/{node}/status", {"status": {"conditions": [ready]}})

    def close(self) -> None:
        """Unplug everything, and take the nodes out of the cluster."""
        self.kubelets.stop()
        for name in self._names:
            with suppress(BackendError):
                self._client.delete(f"{NODES}/{name}")
        for pid in _ours():
            with suppress(OSError):
                procs.send(pid, signal.SIGKILL, lambda _: True)


def _ours() -> set[int]:
    """Processes of containers of this world's pods: it is their parent's parent at most."""
    return {pid for pid in procs.descendants(os.getpid()) if MARK in procs.environment(pid)}


def _config(url: str, token: str) -> dict[str, object]:
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": url}}],
        "users": [{"name": "me", "user": {"token": token}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
    }  # fmt: skip


def _certificate(folder: Path) -> tuple[str, str]:
    """For kubelets: a real API server asks them over TLS, and believes anybody."""
    cert, key = str(folder / "kubelet.crt"), str(folder / "kubelet.key")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=kubelet"]
    subprocess.run([*made, "-out", cert, "-keyout", key], check=True, capture_output=True)
    return cert, key


def main() -> None:
    """See the module. Whatever a container leaves behind becomes a child of this process, and is found."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--types", nargs="*", default=["A100", "A100", "V100"], help="of GPUs, for nodes in turn")
    parser.add_argument("--real", default="")
    parser.add_argument("--host", default="127.0.0.1", help="where the emulated API listens")
    parser.add_argument("--rules", type=Path, nargs="*", default=[])
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    types = [given.types[number % len(given.types)] for number in range(given.nodes)]
    world = KubeWorld(given.folder, types, given.real, given.rules, given.host)
    print(json.dumps("ready"), flush=True)
    try:
        for line in sys.stdin:
            try:
                answer = world.do(*line.split())
            except BackendError as error:
                answer = f"failed: {error}"
            print(json.dumps(answer), flush=True)
    finally:
        world.close()


if __name__ == "__main__":
    main()
