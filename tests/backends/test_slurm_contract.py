"""Both modes pass the suite of all backends, against a real Slurm of eight nodes that the tests start."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from ailing_service import jobs_leave_an_ailing_node

from cotenant.backends import Backend, NodeInfo
from cotenant.backends.local import procs
from cotenant.backends.slurm import SlurmBackend
from cotenant.backends.slurm.native import NativeBackend
from cotenant.testing.backend import PATIENCE_S, BackendContract, until
from cotenant.testing.slurm_cluster import SlurmCluster, missing, slurm_cluster

pytestmark = pytest.mark.slow
HELD = ["n1", "n2", "n3"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    if why := missing():
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as found:
        yield found


class TestNative(BackendContract):
    @pytest.fixture
    def backend(self, cluster: SlurmCluster, tmp_path: Path) -> Iterator[Backend]:
        self.cluster, self.home = cluster, tmp_path
        found = self.open()
        yield found
        for one in found.observe():
            if one.alive:
                found.kill(one.key)
        found.close()

    def open(self) -> NativeBackend:
        return NativeBackend(self.home, listen="tcp:127.0.0.1:0", poll_s=0.5, answer_s=2.0)

    def reopen(self, backend: Any) -> Backend:
        return self.open()

    def cut_off(self, backend: Any) -> AbstractContextManager[None]:
        return self.cluster.controller_stopped()

    def ailing(self, backend: Any, name: str) -> AbstractContextManager[str]:
        return drained(self.cluster, name)

    def lost_node(self, backend: Any, name: str) -> AbstractContextManager[None]:
        return self.cluster.node_lost(name)

    def test_a_keeper_that_dies_leaves_nobody_behind(self, backend: Backend) -> None:
        """The job is lost, and will start again: its first process must not do the work a second time."""
        backend.launch(self.spec("orphan-1", "sleep infinity"))
        until(backend, "orphan-1", "running")
        child = json.loads((self.home / "slurm" / "jobs" / "orphan-1" / "child.json").read_text())
        os.kill(child["keeper"], signal.SIGKILL)
        assert not until(backend, "orphan-1", "lost").alive
        assert not procs.is_process(child["pid"], child["ticks"])


def test_jobs_leave_a_node_that_slurm_drains(cluster: SlurmCluster, tmp_path: Path) -> None:
    with contextlib.closing(NativeBackend(tmp_path, listen="tcp:127.0.0.1:0", poll_s=0.5, answer_s=2.0)) as backend:
        jobs_leave_an_ailing_node(backend, tmp_path, lambda name: drained(cluster, name))


@pytest.fixture(scope="module")
def held(cluster: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The home of a service that holds three nodes. No handle stays open: each test brings its own."""
    home = tmp_path_factory.mktemp("pilot")
    with contextlib.closing(open_pilot(home)) as backend:
        backend.wake_nodes(HELD)
        until_up(backend, HELD)
    yield home
    with contextlib.closing(open_pilot(home)) as backend:
        until_up(backend, HELD)
        backend.sleep_nodes(HELD)


class TestPilot(BackendContract):
    """Three nodes are held for all tests."""

    @pytest.fixture
    def backend(self, cluster: SlurmCluster, held: Path) -> Iterator[Backend]:
        self.cluster, self.home = cluster, held
        found = open_pilot(held)
        until_up(found, HELD)
        yield found
        for one in found.observe():
            found.kill(one.key)
            if one.state != "lost":
                until(found, one.key, "exited", "lost")
            found.forget(one.key)
        found.close()

    def reopen(self, backend: Any) -> Backend:
        found = open_pilot(self.home)
        until_up(found, HELD)
        return found

    def machines(self, backend: Backend) -> list[NodeInfo]:
        return [node for node in super().machines(backend) if node.name in HELD]

    def gpu_node(self, backend: Backend) -> NodeInfo:
        return self.machines(backend)[0]

    @contextmanager
    def cut_off(self, backend: Any) -> Iterator[None]:
        pids = [pid for name in HELD for pid in agents(self.cluster, name)]
        assert len(pids) == 3
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def ailing(self, backend: Any, name: str) -> AbstractContextManager[str]:
        return drained(self.cluster, name)

    @contextmanager
    def lost_node(self, backend: Any, name: str) -> Iterator[None]:
        with self.cluster.node_lost(name):
            yield
        backend.wake_nodes([name])
        until_up(backend, [name])

    def test_a_pilot_that_slurm_cannot_end_ends_by_itself(self, backend: Any) -> None:
        """Slurm's own process above it has died: Slurm would give the node to others while our jobs run on there."""
        name = HELD[0]
        backend.launch(self.spec("held-1", "sleep infinity", gpus=((name, (0,)),)))
        pid = int(until(backend, "held-1", "running").hint.split()[1])
        (agent,) = agents(self.cluster, name)
        script = parent_of(agent)
        os.kill(parent_of(script), signal.SIGKILL)
        until(backend, "held-1", "lost")
        deadline = time.monotonic() + PATIENCE_S
        while (
            any(procs.state_of(one) not in "ZX" for one in (pid, agent, script))
            or {node.name: node.state for node in backend.nodes()}[name] != "asleep"
        ):
            assert time.monotonic() < deadline
            backend.wait_change(0.2)
        backend.forget("held-1")
        backend.wake_nodes([name])
        until_up(backend, [name])


@contextmanager
def drained(cluster: SlurmCluster, name: str) -> Iterator[str]:
    """An administrator drains a node of Slurm, and takes that back."""
    reason = "fan 3 is broken"
    cluster.run("scontrol", "update", f"nodename={name}", "state=drain", f"reason={reason}")
    yield reason
    cluster.run("scontrol", "update", f"nodename={name}", "state=resume")


def agents(cluster: SlurmCluster, name: str) -> list[int]:
    """The agent of a node; not what it has just forked and looks like it."""
    found: list[int] = []
    for pid in cluster.processes(name):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"cotenant.backends.slurm.pilot_agent" in words:
                found.append(pid)
    return [pid for pid in found if parent_of(pid) not in found]


def parent_of(pid: int) -> int:
    """0 where it is gone."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def open_pilot(home: Path, **more: Any) -> Any:
    return SlurmBackend.open(home, listen="tcp:127.0.0.1:0", poll=0.5, **more)


def until_up(backend: Any, names: list[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not set(names) <= {node.name for node in backend.nodes() if node.state == "up"}:
        assert time.monotonic() < deadline, backend.nodes()
        backend.wait_change(0.5)
