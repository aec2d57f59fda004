"""Kernels of the service: none is compiled between two decisions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cotenant.core import jit

RUN = Path(__file__).with_name("kernels_later_run.py")


def _cache_without(kernel: str, folder: Path) -> None:
    """The kernels that are compiled already, but for one; all of them would take minutes."""
    known = jit.cache_folder_of_kernels()
    shutil.copytree(known, folder / known.name)
    for file in [*folder.rglob(f"*{kernel}*"), *folder.rglob("wanted.pickle")]:
        file.unlink()


@pytest.mark.slow
def test_decisions_go_on_while_kernels_are_compiled(tmp_path: Path) -> None:
    _cache_without("decide.decide", tmp_path)
    environment = {**os.environ, "COTENANT_CACHE": str(tmp_path)}
    ran = subprocess.run([sys.executable, str(RUN)], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["compiled here"] == 0
    assert found["ready"]
    assert found["loaded"] > 3
    assert found["before"] > 50  # a tick takes a tenth of a second, the compiler most of a minute
    assert found["after"] == 5  # two jobs ended before each, and compiled kernels see that too
    assert found["running"] == 2
