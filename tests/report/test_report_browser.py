"""The report in a real browser: it renders offline, draws its charts, and asks the network for nothing."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from synthetic_outcomes import outcome

from cotenant.report.html import write_html

pytestmark = pytest.mark.slow

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
)  # fmt: skip


def _chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None and os.environ.get("CI"):
        pytest.fail("no chromium: `make components` installs it")
    if found is None:
        pytest.skip("no chromium on this machine: `make components` installs it")
    return found


def test_charts_are_drawn_without_any_request(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    write_html(
        [outcome("fifo"), outcome("srsf", delay=0.3)], page, title="browser test", command="cotenant compare ..."
    )
    command = [_chromium(), *_FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=20000"]
    command += ["--enable-logging=stderr", "--v=0", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.count('class="main-svg"') >= 6, "plotly drew fewer charts than the report has"
    assert "Uncaught" not in done.stderr, done.stderr[-2000:]
    assert "Refused to" not in done.stderr, "the page tried something its own security policy forbids"
