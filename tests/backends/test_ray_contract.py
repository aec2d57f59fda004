"""The Ray backend against real Ray on loopback: the suite of all backends, and what is its own."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from cotenant.backends.base import Backend, Unreachable
from cotenant.backends.ray import RayBackend
from cotenant.backends.ray.gateway import GONE_S, RaySettings
from cotenant.backends.ray.link import RayLink
from cotenant.testing.backend import PATIENCE_S, BackendContract, seen, until
from cotenant.testing.ray_world import RayWorld

NODES, GPUS = 8, 4
LABEL = f"test-{os.getpid()}"
LABELS: set[str] = set()  # of all records that there ever were
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None and "CI" not in os.environ,
        reason="Ray is not installed: make components, or pip install -r requirements-ray.txt",
    ),
]


@pytest.fixture(scope="module")
def world() -> Iterator[RayWorld]:
    found = RayWorld(NODES, GPUS)
    yield found
    found.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("agents")


@pytest.fixture(scope="module")
def link(world: RayWorld, folder: Path) -> Iterator[RayLink]:
    found = RayLink(RaySettings(world.address, LABEL, str(folder)))
    try:
        assert found.await_nodes(lambda table: sum(row["facts"] is not None for row in table) == world.nodes, 120)
        yield found
    finally:
        found.call("release", timeout_s=GONE_S)
        found.close()


def processes(where: str, mark: str) -> list[int]:
    """Processes in whose `environ` or `cmdline` this stands."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if os.fsencode(mark) in Path(f"/proc/{name}/{where}").read_bytes():
                found.append(int(name))
    return found


class TestRay(BackendContract):
    @pytest.fixture
    def backend(self, world: RayWorld, link: RayLink, folder: Path, tmp_path: Path) -> Iterator[RayBackend]:
        self.world, self.link, self.folder, self.tmp_path = world, link, folder, tmp_path
        found = RayBackend(link, tmp_path)
        yield found
        for one in found.observe():
            if one.alive:
                found.kill(one.key)
                until(found, one.key, "exited", "lost")
            found.forget(one.key)
        found.close()
        assert self.left(found) == []

    def reopen(self, backend: Backend) -> RayBackend:
        return RayBackend(self.link, self.tmp_path)

    @contextmanager
    def cut_off(self, backend: Backend) -> Iterator[None]:
        self.world.do("stop")
        try:
            yield
        finally:
            self.world.do("cont")

    @contextmanager
    def lost_node(self, backend: Backend, name: str) -> Iterator[None]:
        self.world.do("kill", name)
        try:
            yield
        finally:
            self.world.do("start", name)
        assert self.link.await_nodes(
            lambda table: any(row["name"] == name and row["alive"] and row["facts"] for row in table), 60
        )

    def left(self, backend: Backend) -> list[str]:
        """Records, processes of jobs, keepers, notes in Ray's store."""
        lives = list(self.folder.glob("*/*/lives/*"))
        LABELS.update(hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:12] for path in lives)
        records = [str(path) for life in lives for path in (life / "jobs").glob("*")]
        found = [pid for label in LABELS for pid in processes("environ", f"COTENANT_MARK={label}/")]
        keepers = [pid for pid in processes("cmdline", str(self.folder)) if pid in processes("cmdline", "keeper.main")]
        return records + [f"process {pid}" for pid in found + keepers] + list(self.link.call("list", "job/"))

    def test_an_agent_that_dies_takes_no_job(self, backend: RayBackend) -> None:
        """Ray starts it anew on its node, where it finds them; meanwhile nothing is said to have ended."""
        node = self.gpu_node(backend)
        backend.launch(self.spec("stays-1", "sleep infinity", gpus=((node.name, (0,)),)))
        before = until(backend, "stays-1", "running")
        (life,) = self.folder.glob(f"{LABEL}/{node.name}/lives/*")
        (agent,) = [pid for pid in _agents() if _has_open(pid, life / "notify")]
        os.kill(agent, signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE_S
        while not any(_has_open(pid, life / "notify") for pid in _agents() if pid != agent):
            assert seen(backend, "stays-1") == before
            assert time.monotonic() < deadline
            backend.wait_change(0.1)
        assert seen(backend, "stays-1") == before
        assert backend.kill("stays-1")
        assert until(backend, "stays-1", "exited").signal == 9

    def test_nobody_else_gets_the_gpus(self, backend: RayBackend) -> None:
        """Ray counts them as taken while an agent is there."""
        script = "import ray; ray.init(address=sys.argv[1], logging_level='ERROR', _node_ip_address='127.0.0.1')"
        script = f"import sys; {script}; print(ray.cluster_resources()['GPU'], ray.available_resources().get('GPU', 0))"
        env = {**os.environ, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
        argv = [sys.executable, "-c", script, self.world.address]
        said = subprocess.run(argv, env=env, check=True, capture_output=True, text=True, timeout=120).stdout
        assert said.split() == [f"{float(self.world.nodes * GPUS)}", "0"]

    def test_a_gateway_that_dies_is_started_anew(self, backend: RayBackend) -> None:
        """What runs is found again; until then nothing is known, which is said."""
        backend.launch(self.spec("gate-1", "sleep infinity"))
        before = until(backend, "gate-1", "running")
        os.kill(self.link.pid, signal.SIGKILL)
        deadline, cut = time.monotonic() + PATIENCE_S + 30, 0
        while time.monotonic() < deadline:
            try:
                assert seen(backend, "gate-1") == before
                if cut:
                    break
            except Unreachable:
                cut += 1
            backend.wait_change(0.1)
        assert cut
        assert seen(backend, "gate-1") == before
        assert backend.kill("gate-1")


def test_released_gpus_are_there_for_others(tmp_path: Path) -> None:
    """Whoever comes next hears why it has no agent, and has one as soon as it is said that the others are gone."""
    small = RayWorld(1, 2)
    with ExitStack() as stack:
        stack.callback(small.close)
        first = RayLink(RaySettings(small.address, "first", str(tmp_path)))
        stack.callback(first.close)
        assert first.await_nodes(_has_agent, 120)
        second = RayLink(RaySettings(small.address, "second", str(tmp_path)))
        stack.callback(second.close)
        assert second.await_nodes(lambda table: any("in use by others" in row["trouble"] for row in table), 120)
        assert first.call("release", timeout_s=GONE_S) == 1
        assert second.await_nodes(_has_agent, 120)
        assert second.call("release", timeout_s=GONE_S) == 1


def _has_agent(table: list[dict[str, Any]]) -> bool:
    return any(row["facts"] for row in table)


def test_a_sweep_on_the_cluster(world: RayWorld, tmp_path: Path) -> None:
    """Its outcomes are those of this machine's own processes."""
    start = [sys.executable, "-c", "from cotenant.cli.main import main; main()"]
    sweep = ["compare", "philly-like:jobs=40,seed=1", "--cluster", "2x4", "--policies", "fifo,srtf", "--json"]
    found = []
    for workers in ("1", f"ray:{world.address}"):
        argv = [*start, *sweep, str(tmp_path / "out.json"), "--workers", workers]
        subprocess.run(argv, check=True, capture_output=True, timeout=300, cwd=tmp_path)
        rows = json.loads((tmp_path / "out.json").read_text())
        found.append([{name: row[name] for name in row if name not in ("wall_s", "peak_rss_mib")} for row in rows])
    assert found[0] == found[1]


def _agents() -> list[int]:
    return list(processes("cmdline", "ray::NodeAgent"))


def _has_open(pid: int, path: Path) -> bool:
    try:
        return any(os.path.realpath(handle) == str(path) for handle in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


del BackendContract
