from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_world import LocalWorld


@pytest.fixture(params=["cgroups", "plain"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalWorld]:
    """A local backend, with the machine's cgroups and without; afterwards nothing of it may be left."""
    here = LocalWorld(tmp_path, cgroups=request.param == "cgroups")
    yield here
    here.end_all()
    here.backend.close()
    here.assert_nothing_left()


@pytest.fixture
def fenced(tmp_path: Path) -> Iterator[LocalWorld]:
    here = LocalWorld(tmp_path, cgroups=True)
    roles = here.backend.capabilities()
    if roles.kill_scope != "cgroup" or not roles.memory_limit:
        here.backend.close()
        pytest.skip("no writable memory cgroup here")
    yield here
    here.end_all()
    here.backend.close()
    here.assert_nothing_left()


@pytest.fixture(autouse=True)
def _no_descriptor_leaks() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) <= before
