"""All backends pass the suite that third parties import: local with and without cgroups, a fake, and one far away."""

from __future__ import annotations

import heapq
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from local_world import LocalWorld

from cotenant.backends import Backend, LaunchSpec, NodeInfo
from cotenant.backends.fake import FakeBackend
from cotenant.core.node_faults import NodeFault
from cotenant.testing.backend import PATIENCE_S, BackendContract, seen


class TestFake(BackendContract):
    nodes: tuple[NodeInfo, ...] = (NodeInfo("fake", "gpu", 4, 8, 64.0),)
    launch_s = 0.0
    exact_gpus = True
    real_processes = False

    @pytest.fixture
    def backend(self) -> Iterator[FakeBackend]:
        """Where a job's text asks for the runtime, a real process runs it, with nothing but what the job is given."""
        processes: list[subprocess.Popen[bytes]] = []

        def program(spec: LaunchSpec, environment: Mapping[str, str]) -> None:
            if "cotenant.runtime" in spec.script:
                env = {"PATH": os.environ["PATH"], **environment}
                processes.append(subprocess.Popen(spec.script.split(), env=env, stdout=subprocess.DEVNULL))

        yield FakeBackend(self.nodes, launch_s=self.launch_s, program=program, exact_gpus=self.exact_gpus)
        assert [process.wait(PATIENCE_S) for process in processes] in ([], [0])

    def reopen(self, backend: Any) -> FakeBackend:
        return backend.reopen()

    @contextmanager
    def cut_off(self, backend: Any) -> Iterator[None]:
        backend.world.cut = True
        yield
        backend.world.cut = False

    @contextmanager
    def lost_node(self, backend: Any, name: str) -> Iterator[None]:
        backend.set_node(name, up=False)
        yield
        backend.set_node(name, up=True)

    @contextmanager
    def ailing(self, backend: Any, name: str) -> Iterator[str]:
        backend.set_faults(name, NodeFault("ecc", "7 uncorrected ECC errors", 1))
        yield "uncorrected ECC"
        backend.set_faults(name)

    def tell_again(self, backend: Any, key: str) -> None:
        """What the agenda of the world once held of the key comes anew."""
        present = backend.world.jobs[key].version if key in backend.world.jobs else 0
        for version in range(backend.world.order):
            if version == present:
                continue
            backend.world.order += 1
            heapq.heappush(backend.world.agenda, (backend.now_s, backend.world.order, key, version))
        backend.advance(0.0)


class TestFarAway(TestFake):
    """Two nodes, launches that complete late, output in no file, runtimes that call home over TCP."""

    nodes = (
        NodeInfo("n0", "gpu", 4, 8, 64.0, address="10.0.0.1"),
        NodeInfo("n1", "gpu", 4, 8, 64.0, address="10.0.0.2"),
    )
    launch_s = 12.5
    exact_gpus = False

    def test_it_is_far_away(self, backend: Any) -> None:
        """What this class is for is really so."""
        assert all(address.startswith("tcp:") for address in backend.listen_at())
        backend.launch(self.spec("slow-1", "echo hi; sleep 5", gpus=(("n0", (0,)), ("n1", (0, 1)))))
        backend.advance(12.4)
        one = seen(backend, "slow-1")
        assert one is not None
        assert (one.state, one.started_s, one.hint) == ("starting", None, "")
        log = backend.open_log("slow-1", "stdout")
        assert (log.span(), log.ended()) == ((0, 0), False)
        backend.advance(0.1)
        one = seen(backend, "slow-1")
        assert one is not None
        assert (one.state, one.started_s) == ("running", 12.5)
        assert log.read(0, 99).data == b"hi\nhi\n"
        backend.set_node("n1", up=False)
        one = seen(backend, "slow-1")
        assert one is not None
        assert (one.state, one.message) == ("lost", "node n1 is down")


class _Local(BackendContract):
    cgroups = True
    more: Mapping[str, Any] = {}

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[Backend]:
        self.world = LocalWorld(tmp_path, cgroups=self.cgroups, **self.more)
        yield self.world.backend
        self.world.end_all()
        self.world.backend.close()
        self.world.assert_nothing_left()

    def reopen(self, backend: Backend) -> Backend:
        return self.world.another()

    def left(self, backend: Backend) -> list[str]:
        return self.world.leftovers()


class TestLocal(_Local):
    pass


class TestLocalWithoutCgroups(_Local):
    cgroups = False
    more = {"listen": "tcp:127.0.0.1:0"}  # noqa: RUF012
