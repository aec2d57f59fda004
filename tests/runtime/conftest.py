from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from runtime_service import Service, job_env


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    running = Service(f"unix:{tmp_path / 'runtime.sock'}")
    yield running
    running.close()


@pytest.fixture
def inside(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    """This process is a job of the service."""
    for name, value in job_env(service.addresses[0], tmp_path / "ckpt").items():
        monkeypatch.setenv(name, value)
    return service
