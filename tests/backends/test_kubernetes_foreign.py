"""Pods that others make and that name our scheduler: taken, journaled, bound, and their ends seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from ailing_service import jobs_leave_an_ailing_node
from kube_cluster import REAL, KubeCluster

from cotenant.backends.kubernetes.access import find_access
from cotenant.backends.kubernetes.backend import KubernetesBackend
from cotenant.backends.kubernetes.client import KubeClient, KubeRefused
from cotenant.backends.kubernetes.pods import MARK
from cotenant.journal.memory import MemoryJournal, MemoryStore
from cotenant.service.core import CoreService
from cotenant.service.facade import Caller, JobInfo, Role

pytestmark = pytest.mark.slow
ADMIN = Caller("root", Role.ADMIN)
FOR_EVER = "trap 'exit 1' TERM; sleep 600 & wait"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeCluster]:
    found = KubeCluster(tmp_path_factory.mktemp("kube"), 2, ("A100",))
    yield found
    found.close()


class Owner:
    """Somebody with a cluster and a service that schedules for it."""

    def __init__(self, home: Path) -> None:
        self.home, self.store = home, MemoryStore()
        self.client = KubeClient(find_access())
        self.service = self._open()

    def _open(self) -> CoreService:
        backend = KubernetesBackend.open(self.home, image="none")
        journal = MemoryJournal(self.store, clock=time.time)
        service = CoreService(journal, backend, home=self.home, grace_s=1.0, inline=True)
        service.reconcile()
        return service

    def restart(self) -> None:
        self.service.close()
        self.service = self._open()

    def make(self, name: str, script: str, gpus: int = 1, **spec: Any) -> None:
        asked = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
        main = {"name": "trainer", "image": "none", "command": ["bash", "-c", script], "resources": asked}
        body = {"schedulerName": "cotenant", "restartPolicy": "Never", "containers": [main], **spec}
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body}
        self.client.create(PODS, made)

    def job(self, name: str) -> JobInfo | None:
        found = [job for job in self.service.desk.jobs(ADMIN) if job.name == name]
        return self.service.desk.job(ADMIN, found[0].id) if found else None

    def until(self, happens: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30.0
        while not happens():
            assert time.monotonic() < deadline
            self.service.backend.wait_change(min(self.service.tick(), 0.1))

    def until_state(self, name: str, state: str) -> JobInfo:
        self.until(lambda: (job := self.job(name)) is not None and job.state == state)
        found = self.job(name)
        assert found is not None
        return found

    def pod(self, name: str) -> dict[str, Any]:
        return self.client.get(f"{PODS}/{name}")

    def gone(self, name: str) -> bool:
        try:
            return "deletionTimestamp" in self.pod(name)["metadata"]
        except KubeRefused as error:
            return error.code == 404


@pytest.fixture
def owner(cluster: KubeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Owner]:
    monkeypatch.setenv("KUBECONFIG", cluster.kubeconfig)
    made = Owner(tmp_path)
    yield made
    made.service.close()
    for pod in made.client.get(PODS)["items"]:
        made.client.delete(f"{PODS}/{pod['metadata']['name']}", 0, pod["metadata"]["uid"])
    made.client.close()


def test_a_plain_pod_is_bound_and_its_end_seen(owner: Owner) -> None:
    owner.make("train", "trap : TERM; echo hello; sleep 0.5; exit 3", gpus=2)
    owner.until_state("train", "running")
    job = owner.until_state("train", "failed")
    assert (job.gpus, job.attempts[-1].exit_code, job.spec["run"]) == (2, 3, "pod default/train")
    ((node, gpus),) = job.attempts[-1].nodes
    found = owner.pod("train")
    assert (found["spec"]["nodeName"], len(gpus)) == (node, 2)
    owner.until(lambda: MARK not in (owner.pod("train")["metadata"].get("labels") or {}))
    assert not owner.gone("train"), "it is its owner's to delete"
    log = owner.service.desk.open_log(ADMIN, job.id)
    assert log is not None
    assert log.read(0, 100).data == b"hello\n"
    owner.service.tick()
    assert len(owner.service.desk.jobs(ADMIN)) == 1, "what has ended is not taken again"


def test_pods_wait_their_turn_and_survive_a_restart(owner: Owner) -> None:
    for name in ("one", "two", "three"):
        owner.make(name, FOR_EVER, gpus=4)
    owner.until(
        lambda: sorted(job.state for job in owner.service.desk.jobs(ADMIN)) == ["pending", "running", "running"]
    )
    waits = [job for job in owner.service.desk.jobs(ADMIN) if job.state == "pending"]
    assert not owner.pod(waits[0].name)["spec"].get("nodeName")
    owner.restart()
    owner.service.tick()
    assert sorted(job.state for job in owner.service.desk.jobs(ADMIN)) == ["pending", "running", "running"]
    runs = next(job for job in owner.service.desk.jobs(ADMIN) if job.state == "running")
    owner.client.delete(f"{PODS}/{runs.name}", None, owner.pod(runs.name)["metadata"]["uid"])
    owner.until_state(waits[0].name, "running")
    assert owner.until_state(runs.name, "failed").reason


def test_who_is_taken_back_is_cancelled_and_who_is_cancelled_is_let_go(owner: Owner) -> None:
    for name in ("a", "b"):
        owner.make(name, FOR_EVER, gpus=4)
    owner.until(lambda: [job.state for job in owner.service.desk.jobs(ADMIN)].count("running") == 2)
    owner.make("c", "true", gpus=4)
    owner.make("d", "true", gpus=4)
    cancelled = owner.until_state("d", "pending")
    owner.until_state("c", "pending")
    owner.client.delete(f"{PODS}/c", 0, owner.pod("c")["metadata"]["uid"])
    owner.until_state("c", "cancelled")
    owner.service.desk.cancel(ADMIN, cancelled.id)
    owner.until(lambda: owner.gone("d"))


def test_pods_that_choose_their_node_or_ask_too_much_are_left_alone(owner: Owner) -> None:
    owner.make("picky", "true", nodeSelector={"disk": "fast"})
    owner.make("huge", "true", gpus=64)
    owner.make("typed", "true", gpus=1, nodeSelector={"nvidia.com/gpu.product": "A100"})
    owner.make("small", "true", gpus=0)
    owner.until_state("typed", "succeeded")
    assert owner.job("picky") is None
    assert owner.job("huge") is None
    assert owner.job("small") is None, "every job here takes at least 1 GPU"


def test_jobs_leave_a_node_whose_disk_is_full(cluster: KubeCluster, owner: Owner, tmp_path: Path) -> None:
    @contextmanager
    def full(name: str) -> Iterator[str]:
        assert cluster.ask("ill", name) == "done"
        yield "DiskPressure (its disk is full)"
        assert cluster.ask("well", name) == "done"

    with closing(KubernetesBackend.open(tmp_path / "other", image="none", mark="other")) as backend:
        jobs_leave_an_ailing_node(backend, tmp_path / "other", full)


@pytest.mark.skipif(not REAL, reason="the emulator has no controller of Jobs: make test-kubernetes")
def test_a_job_of_kubernetes_runs_to_its_end(owner: Owner) -> None:
    """Its controller makes the pods, two after each other, and counts those that ended well: nobody deletes them."""
    main = {"name": "main", "image": "none", "command": ["bash", "-c", "trap : TERM; sleep 0.2"]}
    main["resources"] = {"limits": {"nvidia.com/gpu": "1"}}  # type: ignore[assignment]
    spec = {"schedulerName": "cotenant", "restartPolicy": "Never", "containers": [main]}
    job = {"completions": 2, "parallelism": 1, "template": {"spec": spec}}
    made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "sweep"}, "spec": job}
    owner.client.create(JOBS, made)
    owner.until(lambda: owner.client.get(f"{JOBS}/sweep").get("status", {}).get("succeeded") == 2)
    owner.until(lambda: [job.state for job in owner.service.desk.jobs(ADMIN)] == ["succeeded"] * 2)
    owner.client.delete(f"{JOBS}/sweep", None)
