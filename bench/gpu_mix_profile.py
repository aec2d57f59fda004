"""Profiles for `bench.gpu_mix`, by `cotenant profile`: each model by itself, then pairs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from subprocess import DEVNULL, Popen

import yaml

from bench.gpu_mix_jobs import MIX, Member, Setting
from bench.gpu_mix_live import Shell
from bench.gpu_mix_table import PROFILE_S

MEASURED = "suspend,restart"  # no job of the mix needs its batch cut
MARGIN_S = 4.0  # of a profile's time, for starting and ending the command
SHARES = {True: "time", False: "time,mps"}  # with stand-ins, on the GPU


def warm_up(setting: Setting) -> float:
    """Start every script twice, all at once, for a step or two of a tiny model; how long it took.

    Who starts first on a machine reads the libraries' files, and writes their bytecode. That is no part of a start.
    """
    began = time.monotonic()
    for _ in range(2):
        runs = []
        for script in dict.fromkeys(member.script for member in MIX):
            env = {**os.environ, **setting.environment()}
            words = [sys.executable, str(setting.script(script)), "--size", "tiny", "--steps", "2"]
            runs.append(Popen(words, env=env, stdout=DEVNULL, stderr=DEVNULL))
        for run in runs:
            run.wait()
    return time.monotonic() - began


def measure(shell: Shell, setting: Setting, member: Member, what: str = MEASURED) -> float:
    """Profile one model; how long it took."""
    began = time.monotonic()
    words = ["--budget", f"{PROFILE_S - MARGIN_S:g}", "--measure", what]
    print(shell.run("profile", "--jobs", str(_file(setting, [member])), "--out", str(setting.profile), *words))
    return time.monotonic() - began


def measure_pairs(shell: Shell, setting: Setting, seconds: float) -> float:
    """Measure what pairs do to each other while there is time; how long it took."""
    began = time.monotonic()
    words = [
        "--pairs",
        "--no-twins",
        "--seconds",
        "0.7",
        "--share",
        SHARES[setting.stand_in],
        "--within",
        f"{seconds:g}",
    ]
    print(shell.run("profile", "--jobs", str(_file(setting, MIX)), "--out", str(setting.profile), *words))
    return time.monotonic() - began


def _file(setting: Setting, members: Sequence[Member]) -> Path:
    file = setting.state / "profiled.yaml"
    file.write_text(yaml.safe_dump_all([setting.job(member) for member in members]))
    return file
