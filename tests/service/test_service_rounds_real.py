"""Policies of rounds on real processes and virtual GPUs of several types."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cotenant.backends.local.machine import parse_gpus
from cotenant.core.errors import InputError


def test_gpus_by_type() -> None:
    assert parse_gpus("4") == 4
    assert parse_gpus("v100:2,p100:1") == ["v100", "v100", "p100"]
    for wrong in ("", "-1", "v100", "v100:0", "v100:1,v100:1", "v100:x", "a b:1", "v100:99999"):
        with pytest.raises(InputError, match="--gpus"):
            parse_gpus(wrong)


@pytest.mark.slow
def test_serve_shows_virtual_gpus_of_several_types(tmp_path: Path) -> None:
    """As a person sees it: serve, nodes, and a job that learns its type."""
    command = [sys.executable, "-m", "cotenant.cli.main"]
    env = {**os.environ, "COTENANT_HOME": str(tmp_path)}
    options = ["--gpus", "v100:2,k80:1", "--port", "0", "--policy", "gavel:walk=global", "--round", "5"]
    with subprocess.Popen([*command, "serve", *options], env=env, stdout=subprocess.PIPE, text=True) as served:
        try:
            assert served.stdout is not None
            assert "serves 3 GPUs under policy gavel:walk=global" in served.stdout.readline()

            def ask(*words: str) -> str:
                return subprocess.run([*command, *words], env=env, check=True, capture_output=True, text=True).stdout

            nodes = {node["name"]: (node["gpu_type"], node["gpus"]) for node in json.loads(ask("nodes", "--json"))}
            assert nodes == {"local-v100": ("v100", 2), "local-k80": ("k80", 1)}
            job = ask("submit", "--gpus", "k80:1", "--model", "lstm", "--", "printenv", "COTENANT_GPU_TYPE").strip()
            ask("wait", job, "--timeout", "60")
            assert ask("logs", job) == "k80\n"
            assert json.loads(ask("show", job, "--json"))["spec"]["model"] == "lstm"
        finally:
            served.send_signal(signal.SIGINT)
            served.wait(30)


@pytest.mark.slow
def test_time_received_by_real_jobs_converges_to_the_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `python -m bench.gavel_live`, in shorter rounds.

    These lose more to switching, the more the busier the machine is; so what is compared is how the time in which
    GPUs were in use was divided.
    """
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2]))
    from bench.gavel_live import live

    lived = live(tmp_path, "gavel:objective=las,walk=global", round_s=2.0, rounds=40)
    assert lived.solved_once
    share = lived.received / lived.received.sum(axis=0) * lived.target.sum(axis=0)
    assert abs(share - lived.target).max() < 0.1
    assert (lived.stepped.sum(axis=1) > 0).all()
