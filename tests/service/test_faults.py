"""A sample of `bench.faults` on real worlds: nothing acknowledged is lost, nothing runs twice."""

from __future__ import annotations

import os

import pytest
from bench.faults import main

SAMPLE = ["--sample", "20", "--seed", "2359", "--at-once", "--away", "5"]
FAULTS = ["node", "agent", "control", "service", "leader", "PostgreSQL", "disk", "clock"]


@pytest.mark.slow
@pytest.mark.skipif("CI" not in os.environ, reason="it starts Ray, Slurm and PostgreSQL: python -m bench.faults")
def test_a_sample_of_faults(capfd: pytest.CaptureFixture[str]) -> None:
    code = main([*SAMPLE, "--fault", *FAULTS])
    assert code == 0, capfd.readouterr().out
