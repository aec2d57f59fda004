"""One real service and one real browser for all tests of the page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.window_kit import BUILT, Served, browser_arguments


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    if not BUILT:
        _missing("the page is not built: make web")
    service = Served(tmp_path_factory.mktemp("window"))
    service.start()
    yield service
    service.end()


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        _missing("there is no chromium: make components")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as p:
        found = p.chromium.launch(executable_path=chromium, headless=True, args=browser_arguments())
        yield found
        found.close()


def _missing(why: str) -> None:
    """A real component is not there: a failure where everything has to run."""
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture
def artefacts(tmp_path: Path) -> Path:
    return tmp_path
