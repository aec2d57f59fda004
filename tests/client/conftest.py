from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "api"))
sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))

from client_server import Server
from fake_service import ADMIN, FakeService

from cotenant.client import Client


@pytest.fixture
def service(tmp_path: Path) -> FakeService:
    return FakeService(tmp_path)


@pytest.fixture
def server(service: FakeService) -> Iterator[Server]:
    with Server(service) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url, ADMIN) as made:
        yield made


@pytest.fixture
def at_home(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home as `cotenant serve` leaves it."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "url").write_text(server.url + "\n")
    (home / "token").write_text(ADMIN + "\n")
    (home / "token").chmod(0o600)
    monkeypatch.setenv("COTENANT_HOME", str(home))
    for name in ("COTENANT_URL", "COTENANT_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return home
