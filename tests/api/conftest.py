from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_service import ADMIN, USER_A, USER_B, VIEWER, FakeService
from starlette.testclient import TestClient

from cotenant.api import make_app


@pytest.fixture
def service(tmp_path: Path) -> FakeService:
    return FakeService(tmp_path)


@pytest.fixture
def open_door(service: FakeService) -> Iterator[TestClient]:
    """A client without a token."""
    with TestClient(make_app(service, poll_s=0.01), raise_server_exceptions=False) as client:
        yield client


def _with(client: TestClient, secret: str) -> TestClient:
    """A client with a token, in the same event loop."""
    made = TestClient(client.app, raise_server_exceptions=False, headers={"Authorization": f"Bearer {secret}"})
    made.portal = client.portal
    return made


@pytest.fixture
def admin(open_door: TestClient) -> TestClient:
    return _with(open_door, ADMIN)


@pytest.fixture
def user_a(open_door: TestClient) -> TestClient:
    return _with(open_door, USER_A)


@pytest.fixture
def user_b(open_door: TestClient) -> TestClient:
    return _with(open_door, USER_B)


@pytest.fixture
def viewer(open_door: TestClient) -> TestClient:
    return _with(open_door, VIEWER)
