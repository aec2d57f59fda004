"""One decision, two ways: the kernels compiled and as plain Python write down the very same transitions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from stream_digests import COSTS, POLICIES, streams

SEEDS = 4


def test_every_job_starts_and_nobody_starts_twice_without_leaving() -> None:
    found = streams(False, 1)
    assert len(found) == 2 * len(POLICIES) * len(COSTS)
    assert all(int(text.split()[0]) >= 25 for text in found.values()), "every job starts at least once"
    assert found["srtf, today, 0"] != found["srtf, leaving takes time, 0"]
    assert found["srtf, today, 0"] != found["srtf, today, tenants, 0"]


@pytest.mark.slow
def test_compiled_and_plain_kernels_write_the_same_streams() -> None:
    program = Path(__file__).with_name("stream_digests.py")
    done = subprocess.run(
        [sys.executable, str(program), "compiled", str(SEEDS)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == streams(False, SEEDS)
