"""What a cluster says, in our words; output that is kept; who leads; and that the emulator is as strict as the API."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cotenant.backends.base import LaunchSpec, NodeInfo, Unreachable
from cotenant.backends.kubernetes.access import KubeAccess, find_access, from_file
from cotenant.backends.kubernetes.client import KubeClient, KubeRefused
from cotenant.backends.kubernetes.lease import KubeLease
from cotenant.backends.kubernetes.output import KeptOutput, split_line
from cotenant.backends.kubernetes.pods import PodStyle
from cotenant.backends.kubernetes.seen import node_info, see_gang
from cotenant.backends.local.logs import LocalLog
from cotenant.backends.registry import check_backend
from cotenant.core.errors import InputError
from cotenant.testing import kube_server

NODES = {"n0": NodeInfo("n0", "A100", 4, 16, 64.0, address="10.0.0.1")}
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def client() -> Iterator[KubeClient]:
    server = kube_server.start(kube_server.KubeApi())
    here = KubeClient(KubeAccess(f"http://127.0.0.1:{server.server_port}", None, lambda: "admin", "default"))
    yield here
    here.close()
    server.shutdown()
    server.server_close()


def pod(status: dict[str, Any], node: str = "n0", **meta: Any) -> dict[str, Any]:
    (made,) = PodStyle(image="i").pods(LaunchSpec("job-1", "job", script="x", gpus=(("n0", (1,)),)), NODES, "")
    made["metadata"] |= meta
    made["spec"]["nodeName"] = node
    return {**made, "status": status}


def main(**state: Any) -> dict[str, Any]:
    return {"phase": "Running", "containerStatuses": [{"name": "main", "state": state}]}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"phase": "Pending"}, ("starting", True, None, None, False, "")),
        (main(running={"startedAt": "2026-11-16T15:00:00Z"}), ("running", True, None, None, False, "")),
        (main(terminated={"exitCode": 7}), ("exited", False, 7, None, False, "")),
        (main(terminated={"exitCode": 137, "reason": "OOMKilled"}), ("exited", False, None, 9, True, "")),
        (main(terminated={"exitCode": 255}), ("exited", False, 255, None, False, "")),
        (
            main(waiting={"reason": "ImagePullBackOff", "message": "no such image"}),
            ("lost", True, None, None, False, "ImagePullBackOff on node n0: no such image"),
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "disk pressure"},
            ("lost", False, None, None, False, "its pod failed on node n0: Evicted: disk pressure"),
        ),
    ],
)
def test_pods_in_our_words(status: dict[str, Any], expected: tuple[Any, ...]) -> None:
    one = see_gang([pod(status)], lambda node: False, False)
    assert (one.state, one.alive, one.exit_code, one.signal, one.oom, one.message) == expected


def test_a_silent_node_loses_its_pods_and_no_others() -> None:
    running, ended = main(running={}), main(terminated={"exitCode": 0})
    assert see_gang([pod(running)], lambda node: node == "n0", False).message == "node n0 is down"
    assert see_gang([pod(ended)], lambda node: node == "n0", False).exit_code == 0
    deleted = {"deletionTimestamp": "2026-11-16T15:00:00Z", "deletionGracePeriodSeconds": 0}
    assert see_gang([pod(running, **deleted)], lambda node: False, False).state == "lost"
    assert see_gang([pod({"phase": "Pending"}, **deleted)], lambda node: False, False).signal == 9


def test_nodes_in_our_words() -> None:
    has = {"cpu": "15500m", "memory": "65970184Ki", "nvidia.com/gpu.shared": "8"}
    labels = {"nvidia.com/gpu.product": "L4", "nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.memory": "24576"}
    ready = [{"type": "Ready", "status": "True"}]
    body: dict[str, Any] = {
        "metadata": {"name": "n0", "labels": labels}, "spec": {},
        "status": {
            "allocatable": has, "conditions": ready, "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}],
        },
    }  # fmt: skip
    found = node_info(body, "nvidia.com/gpu.shared", "nvidia.com/gpu.product")
    assert found == NodeInfo("n0", "L4", 8, 15, 65970184 / 2**20, "up", gpu_mem_gib=6.0, address="10.0.0.9")
    for spec, state in (
        ({"unschedulable": True}, "down"),
        ({"taints": [{"key": "cotenant.io/dedicated", "effect": "NoSchedule"}]}, "up"),
        ({"taints": [{"key": "others", "effect": "NoSchedule"}]}, "down"),
        ({"taints": [{"key": "others", "effect": "PreferNoSchedule"}]}, "up"),
    ):
        assert node_info({**body, "spec": spec}, "nvidia.com/gpu.shared", "x").state == state


def test_lines_are_kept_once(tmp_path: Path) -> None:
    """However often they are read, several of one time among them, and whatever a crash left half done."""
    lines = [split_line(f"2026-11-16T15:00:00.{n // 2:09}Z line {n}\n".encode()) for n in range(6)]
    placed = [((at_ns, n % 2 + 1), text) for n, (at_ns, text) in enumerate(lines)]
    kept, limits = KeptOutput(tmp_path / "k"), (1 << 20, 1 << 20)
    kept.add("a", "stdout", limits, placed[:3])
    with open(tmp_path / "k" / "stdout-0.log", "ab") as file:
        file.write(b"half a li")
    again = KeptOutput(tmp_path / "k")
    again.add("a", "stdout", limits, placed[1:])
    again.add("b", "stdout", limits, placed[:1])
    log = LocalLog("k", "stdout", (tmp_path / "k",), lambda: False)
    assert log.read(0, 999).data == b"".join(b"line %d\n" % n for n in (*range(6), 0))
    assert again.place("a") == placed[-1][0]


def test_the_lease_has_one_holder(client: KubeClient) -> None:
    first, second = (KubeLease(client, "default", "cotenant", name, 0.9) for name in ("first", "second"))
    first.acquire()
    first.check()
    with pytest.raises(InputError, match="held by first, who is alive"):
        second.acquire()
    first.release()
    second.acquire()
    second.check()
    stolen = client.get("/apis/coordination.k8s.io/v1/namespaces/default/leases/cotenant")
    assert stolen["spec"]["leaseTransitions"] == 2
    stolen["spec"]["holderIdentity"] = "third"
    while True:
        try:
            client.replace("/apis/coordination.k8s.io/v1/namespaces/default/leases/cotenant", stolen)
            break
        except KubeRefused:  # it was renewed meanwhile
            fresh = client.get("/apis/coordination.k8s.io/v1/namespaces/default/leases/cotenant")
            stolen["metadata"] = fresh["metadata"]
    said, deadline = "", time.monotonic() + 30
    while "third's by now" not in said:
        assert time.monotonic() < deadline, said
        try:
            second.check()
        except Unreachable as error:
            said = str(error)
    second.release()


def test_the_emulator_is_strict(client: KubeClient) -> None:
    """Conflicts, bindings, deletion in two steps, rights: as the API server has them."""
    body = pod({})
    del body["status"], body["spec"]["nodeName"]
    made = client.create(PODS, body)
    name, at = made["metadata"]["name"], f"{PODS}/{made['metadata']['name']}"
    target = {"target": {"apiVersion": "v1", "kind": "Node", "name": "n0"}, "metadata": {"name": name}}

    def code(ask: Any) -> int:
        with pytest.raises(KubeRefused) as refused:
            ask()
        return refused.value.code

    assert code(lambda: client.create(PODS, body)) == 409
    client.create(f"{at}/binding", target)
    assert code(lambda: client.create(f"{at}/binding", target)) == 409
    assert code(lambda: client.replace(at, made)) == 409
    assert code(lambda: client.patch(at, {"spec": {"nodeName": "n1"}})) == 422
    assert client.patch(at, {"status": {"phase": "Failed"}})["status"]["phase"] == "Pending"
    assert client.delete(at)["metadata"]["deletionGracePeriodSeconds"] == 60
    assert client.delete(at, 5)["metadata"]["deletionGracePeriodSeconds"] == 5
    assert client.delete(at, 50)["metadata"]["deletionGracePeriodSeconds"] == 5
    assert client.delete(at, 0)["metadata"]["deletionGracePeriodSeconds"] == 0
    client.patch(at, {"metadata": {"finalizers": None}})
    assert code(lambda: client.get(at)) == 404


def test_a_kubeconfig_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config"
    monkeypatch.setenv("KUBECONFIG", str(path))
    with pytest.raises(InputError, match="which is no file"):
        find_access()
    path.write_text("[", encoding="utf-8")
    with pytest.raises(InputError, match="cannot be used"):
        find_access()
    user = {"name": "u", "user": {"token": "t"}}
    cluster = {"name": "c", "cluster": {"server": "http://h/"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "jobs"}}
    config = {"clusters": [cluster], "users": [user], "contexts": [context], "current-context": "x"}
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    found = from_file(path)
    assert (found.server, found.token(), found.namespace, found.tls) == ("http://h", "t", "jobs", None)
    with pytest.raises(InputError, match="no context 'y': choose one of x"):
        from_file(path, "y")


def test_manifests_are_whole() -> None:
    """What kustomize puts together is there, and names what it needs: the account, the secret, the lease's rights."""
    base = Path(__file__).resolve().parents[2] / "deploy" / "base"
    listed = yaml.safe_load((base / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    found = [one for name in listed for one in yaml.safe_load_all((base / name).read_text(encoding="utf-8"))]
    kinds = {(one["kind"], one["metadata"]["name"]): one for one in found}
    service = kinds["StatefulSet", "cotenant"]["spec"]["template"]["spec"]
    assert ("ServiceAccount", service["serviceAccountName"]) in kinds
    (backend,) = (arg for arg in service["containers"][0]["args"] if arg.startswith("--backend="))
    kind, options = check_backend(backend.removeprefix("--backend="))
    assert (kind.__name__, options["lease"]) == ("KubernetesBackend", "cotenant")  # type: ignore[attr-defined]
    rules = kinds["Role", "cotenant"]["rules"]
    assert any("leases" in rule["resources"] and "update" in rule["verbs"] for rule in rules)
    assert not any("*" in part for rule in rules for part in rule.values())
