"""A real browser for tests that need one: one at a time, and none beside other tests, as its driver runs a loop."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest


def missing(why: str) -> None:
    """A real component is not there: a failure where everything has to run."""
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, driven by Playwright."""
    from bench.window_kit import browser_arguments

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        missing("there is no chromium: make components")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as p:
        found = p.chromium.launch(executable_path=chromium, headless=True, args=browser_arguments())
        yield found
        found.close()
