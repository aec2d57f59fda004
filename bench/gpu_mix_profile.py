"""Profiles for `bench.gpu_mix`, by `cotenant profile`: each model by itself, then pairs."""

from __future__ import annotations

import time

import yaml

from bench.gpu_mix_jobs import MIX, Member, Setting
from bench.gpu_mix_live import Shell
from bench.gpu_mix_table import PROFILE_S

MARGIN_S = 3.0  # of a profile's time, for starting and ending the command


def measure(shell: Shell, setting: Setting, member: Member) -> float:
    """Profile one model; how long it took."""
    raise NotImplementedError


def measure_pairs(shell: Shell, setting: Setting, seconds: float) -> float:
    """Measure what pairs do to each other while there is time; how long it took."""
    raise NotImplementedError
