"""The Kubernetes backend against the suite of all backends, on an emulated API or, if there is one, a real one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kube_cluster import REAL, KubeCluster, ended

from cotenant.backends import Backend
from cotenant.backends.kubernetes import KubernetesBackend
from cotenant.backends.kubernetes.access import find_access
from cotenant.backends.kubernetes.client import KubeClient
from cotenant.backends.kubernetes.pods import PodStyle
from cotenant.testing.backend import PATIENCE_S, BackendContract
from cotenant.testing.backend_kit import printed, seen, until, whole

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeCluster]:
    here = KubeCluster(tmp_path_factory.mktemp("kube"))
    yield here
    here.close()


class TestKubernetes(BackendContract):
    gpus = "counted"

    @pytest.fixture
    def backend(
        self, cluster: KubeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[KubernetesBackend]:
        monkeypatch.setenv("KUBECONFIG", cluster.kubeconfig)
        self.cluster, self.home = cluster, tmp_path / "home"
        self.home.mkdir()
        backend = self._open()
        with ended(backend):
            yield backend
        self._expect(self._none_left)

    def _open(self) -> KubernetesBackend:
        return KubernetesBackend.open(self.home, image="none", gpus=self.gpus)

    def reopen(self, backend: Backend) -> KubernetesBackend:
        return self._open()

    def left(self, backend: Backend) -> list[str]:
        found: list[str] = self.cluster.ask("left")
        return found

    def _none_left(self) -> bool:
        return self.cluster.ask("left") == []

    def _expect(self, happens: Any) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not happens():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    @contextmanager
    def cut_off(self, backend: Backend) -> Iterator[None]:
        if REAL:
            pytest.skip("a real API server is not stopped")
        self.cluster.ask("away")
        yield
        self.cluster.ask("back")

    @contextmanager
    def lost_node(self, backend: Backend, name: str) -> Iterator[None]:
        assert self.cluster.ask("down", name) == "done"
        yield
        assert self.cluster.ask("up", name) == "done"

        def is_up() -> bool:
            return next(node.state for node in backend.nodes() if node.name == name) == "up"

        self._expect(is_up)

    @contextmanager
    def ailing(self, backend: Backend, name: str) -> Iterator[str]:
        assert self.cluster.ask("ill", name) == "done"
        yield "DiskPressure (its disk is full)"
        assert self.cluster.ask("well", name) == "done"

    def tell_again(self, backend: Backend, key: str) -> None:
        if REAL:
            pytest.skip("a real API server tells everything once")
        self.cluster.ask("again", PodStyle().gang(key))

    # -- what only pods can do ------------------------------------------------------------------------------------

    def test_history_that_is_gone_is_listed_anew(self, backend: KubernetesBackend) -> None:
        """A watch that is told 410 begins again, and misses nothing."""
        if REAL:
            pytest.skip("a real API server forgets when it likes")
        backend.launch(self.spec("past-1", "sleep infinity"))
        until(backend, "past-1", "running")
        self.cluster.ask("compact")
        backend.launch(self.spec("past-2", "exit 6"))
        assert until(backend, "past-2", "exited").exit_code == 6
        assert until(backend, "past-1", "running").alive

    def test_a_launch_that_was_cut_short(self, backend: KubernetesBackend) -> None:
        """All pods made and none bound: whoever comes next binds them. Without the first one it was no launch."""
        first, second = self.two_machines(backend)
        spec = self.spec("short-1", "echo $COTENANT_NODE_RANK", gpus=((first.name, (0,)), (second.name, (0,))))
        style = PodStyle(image="none")
        zero, one = style.pods(spec, {node.name: node for node in backend.nodes()}, "")
        client = KubeClient(find_access())
        client.create(f"/api/v1/namespaces/{style.namespace}/pods", one)
        again = self._open()
        assert seen(again, "short-1") is None
        client.create(f"/api/v1/namespaces/{style.namespace}/pods", zero)
        client.close()
        assert until(again, "short-1", "exited").exit_code == 0
        assert sorted(whole(again.open_log("short-1", "stdout")).split()) == [b"0", b"1"]
        again.close()

    def test_last_words_are_kept(self, backend: KubernetesBackend) -> None:
        """A node forgets the log of a pod that was deleted: what a job says while it leaves was read in time."""
        script = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
        backend.launch(self.spec("words-1", script))
        log = backend.open_log("words-1", "stdout")
        printed(backend, log, lambda data: data == b"ready\n")
        assert backend.terminate("words-1")
        assert until(backend, "words-1", "exited").exit_code == 0
        assert whole(log) == b"ready\nsaved\n"
        backend.forget("words-1", keep_log=True)
        assert whole(backend.open_log("words-1", "stdout")) == b"ready\nsaved\n"
        backend.drop_log("words-1")

    def test_more_gpus_than_a_node_has_left(self, backend: KubernetesBackend) -> None:
        """The kubelet refuses; the gang is lost as a whole, and says why."""
        first, second = self.two_machines(backend)
        backend.launch(self.spec("big-1", "sleep infinity", gpus=((second.name, (0, 1, 2)),)))
        until(backend, "big-1", "running")
        gpus = ((first.name, (0,)), (second.name, (0, 1)))
        backend.launch(self.spec("big-2", "sleep infinity", gpus=gpus))
        assert "OutOfnvidia.com/gpu" in until(backend, "big-2", "lost").message
        assert seen(backend, "big-1").alive

    def test_what_shells_and_kubelets_read_arrives(self, backend: KubernetesBackend) -> None:
        """Dollars, parentheses and quotes: kubelets have variables of their own."""
        env = {"A": "$(B) $$ ${C}", "B": "b"}
        script = "printf '%s|%s|%s' \"$A\" '$(B)' \"$(echo $$$$ | tr -d 0-9)\""
        backend.launch(self.spec("dollar-1", script, env=env, setup='export X=1; [ "$(echo $B)" = b ]'))
        assert until(backend, "dollar-1", "exited").exit_code == 0
        assert whole(backend.open_log("dollar-1", "stdout")) == b"$(B) $$ ${C}|$(B)|"
        launched = backend.launched("dollar-1")
        assert launched is not None
        assert (launched.script, launched.env["A"]) == (script, env["A"])


class TestExactGpus(TestKubernetes):
    """GPUs by number, past the device plugin: only what differs."""

    gpus = "exact"
    __test__ = False


def test_gpus_by_number(cluster: KubeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the contract asks where `exact_gpus`: a job is told which, and several may be on one."""
    monkeypatch.setenv("KUBECONFIG", cluster.kubeconfig)
    backend = KubernetesBackend.open(tmp_path, image="none", gpus="exact")
    with ended(backend):
        TestExactGpus().test_gpus_are_exact_or_told(backend)
