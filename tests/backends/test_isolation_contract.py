"""Jobs of other users and in sandboxes pass the suite of all backends: suspension, adoption, output, the runtime."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local_world import LocalWorld

from cotenant.backends.local.isolation.levels import Isolation
from cotenant.testing.apart import open_folder, reachable_python
from cotenant.testing.backend import BackendContract

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0 and "CI" not in os.environ, reason="only root can have other users"),
]


class IsolatedContract(BackendContract):
    level = "user"
    cgroups = True

    @pytest.fixture
    def backend(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
        monkeypatch.setattr(sys, "executable", reachable_python())
        with open_folder() as folder:
            choice = Isolation(
                self.level, folder=str(folder), network="loopback" if self.level == "sandbox" else "host"
            )
            self.world = LocalWorld(tmp_path, cgroups=self.cgroups, isolation=choice)
            yield self.world.backend
            self.world.end_all()
            self.world.backend.close()
            self.world.assert_nothing_left()

    def reopen(self, backend: Any) -> Any:
        return self.world.another()


class TestUser(IsolatedContract):
    pass


class TestSandbox(IsolatedContract):
    level = "sandbox"


class TestSandboxWithoutGroups(IsolatedContract):
    """Where no control group can be made, pid 1 of the sandbox and the marks of processes have to do."""

    level = "sandbox"
    cgroups = False


del BackendContract, IsolatedContract
