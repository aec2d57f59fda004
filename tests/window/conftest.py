"""One real service for all tests of the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.window_kit import BUILT, Served

from browser_kit import missing


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    if not BUILT:
        missing("the page is not built: make web")
    service = Served(tmp_path_factory.mktemp("window"))
    service.start()
    yield service
    service.end()


@pytest.fixture
def artefacts(tmp_path: Path) -> Path:
    return tmp_path
