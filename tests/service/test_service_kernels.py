"""Kernels of the service: none is compiled between two decisions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).with_name("kernels_later_run.py")


@pytest.mark.slow
def test_decisions_go_on_while_kernels_are_compiled(tmp_path: Path) -> None:
    environment = {**os.environ, "COTENANT_CACHE": str(tmp_path)}
    ran = subprocess.run([sys.executable, str(RUN)], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert not found["compiled here"]
    assert found["ready"]
    assert found["before"] > 20  # a tick takes a tenth of a second, the compiler more than ten
    assert found["after"] == 5  # two jobs ended before each, and compiled kernels see that too
    assert found["running"] == 2
