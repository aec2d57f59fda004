"""The page in a real browser, against a real service."""

from __future__ import annotations

from typing import Any

import pytest
from bench.window_kit import Served, watched

pytestmark = pytest.mark.slow


def test_a_job_is_followed_from_sign_in_to_its_last_line(browser: Any, served: Served) -> None:
    with watched(browser, served) as window:
        window.sign_in(served.token)
        page = window.page
        page.get_by_role("heading", name="Overview").wait_for()
        window.show("queue")
        page.get_by_role("heading", name="Queue").wait_for()
        with served.client() as client:
            go = served.home / "go"
            run = f"echo one; while [ ! -e {go} ]; do sleep 0.1; done; echo '<b>two</b>'"
            job = client.submit([{"run": run, "name": "watched", "gpus": 1}])[0][0]
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name=job, exact=True))
        row.get_by_text("running").wait_for()
        row.get_by_role("link").click()
        page.get_by_role("heading", name=f"Job {job}").wait_for()
        log = page.get_by_role("log")
        log.get_by_text("one").wait_for()
        go.touch()
        log.get_by_text("<b>two</b>").wait_for()
        page.get_by_role("heading", name="succeeded").wait_for()
        window.check()
