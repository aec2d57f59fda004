"""Large runs in a process of their own: there kernels are compiled, here tests call them plain (see conftest.py)."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from cotenant.core.outcome import Outcome
from cotenant.sim.driver import Experiment, simulate


def simulate_apart(*experiments: Experiment) -> list[Outcome]:
    """What `simulate` gives, with compiled kernels where they are at hand."""
    with ProcessPoolExecutor(1, get_context("spawn")) as apart:
        return list(apart.map(simulate, experiments))
