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
from cotenant.backends.base import BackendError
from cotenant.backends.kubernetes import KubernetesBackend
from cotenant.backends.kubernetes.pods import PodStyle
from cotenant.testing.backend import PATIENCE_S, BackendContract

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

    def tell_again(self, backend: Backend, key: str) -> None:
        if REAL:
            pytest.skip("a real API server tells everything once")
        self.cluster.ask("again", PodStyle().gang(key))
