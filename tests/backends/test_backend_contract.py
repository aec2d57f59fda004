"""Both backends, and the local one also without cgroups, pass the suite that third parties import."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local_world import LocalWorld

from cotenant.backends import Backend
from cotenant.backends.fake import FakeBackend
from cotenant.testing.backend import PATIENCE_S, BackendContract, seen


class TestFake(BackendContract):
    @pytest.fixture
    def backend(self) -> FakeBackend:
        return FakeBackend()

    def reopen(self, backend: Any) -> FakeBackend:
        return backend.reopen()


class _Local(BackendContract):
    cgroups = True

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[Backend]:
        self.world = LocalWorld(tmp_path, cgroups=self.cgroups)
        yield self.world.backend
        self.world.end_all()
        self.world.backend.close()
        self.world.assert_nothing_left()

    def reopen(self, backend: Backend) -> Backend:
        return self.world.another()

    def deaf(self, backend: Backend, key: str) -> bool:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            one = seen(backend, key)
            assert one is not None
            fields = Path(f"/proc/{one.pid}/status").read_text().split("\n")
            ignored = next(int(line.split()[1], 16) for line in fields if line.startswith("SigIgn"))
            if ignored & (1 << 14):
                return True
            backend.wait_change(0.005)
        return False


class TestLocal(_Local):
    pass


class TestLocalWithoutCgroups(_Local):
    cgroups = False
