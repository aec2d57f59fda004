"""Both modes pass the suite of all backends, against a real Slurm of eight nodes that the tests start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from cotenant.backends import Backend
from cotenant.backends.slurm.native import NativeBackend
from cotenant.testing.backend import BackendContract
from cotenant.testing.slurm_cluster import SlurmCluster, missing, slurm_cluster

pytestmark = pytest.mark.slow


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

    def lost_node(self, backend: Any, name: str) -> AbstractContextManager[None]:
        return self.cluster.node_lost(name)
