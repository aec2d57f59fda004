"""The runs of a sweep on the cores of a Ray cluster: `cotenant compare --workers ray[:address]`.

Experiments travel there and outcomes back; Cotenant must be installed on the nodes, in the same version.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from cotenant.core import jit
from cotenant.core.errors import InputError
from cotenant.core.outcome import Outcome
from cotenant.sim.driver import Experiment, simulate

_LOOPBACK = ("127.0.0.1:", "localhost:")


def read_workers(text: str) -> tuple[int, str | None]:
    """`--workers`: how many processes of this machine, or `ray[:address]`: then the address, '' for the usual one."""
    word, _, address = text.partition(":")
    if word == "ray":
        return 0, address
    if not text.isdecimal():
        raise InputError(f"--workers {text}: write a number of processes, 0 for every core, or ray[:address]")
    return int(text), None


def play_on_ray(experiments: Sequence[Experiment], address: str) -> Iterator[Outcome]:
    """Outcomes in the order of the experiments, each as soon as it and all before it are there."""
    more: dict[str, Any] = {}
    if address.startswith(_LOOPBACK):  # else Ray takes this machine's outside address instead
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        more["_node_ip_address"] = "127.0.0.1"
    try:
        import ray

        ray.init(address=address or "auto", log_to_driver=False, logging_level="ERROR", **more)
    except ImportError as error:
        raise InputError("--workers ray needs Ray: pip install 'cotenant[ray]'") from error
    except (ConnectionError, ValueError) as error:
        raise InputError(f"--workers ray: no Ray cluster at {address or 'its usual address'}: {error}") from error
    try:
        play, compiled = ray.remote(num_cpus=1)(_play), jit.enabled()
        asked = [play.remote(experiment, compiled) for experiment in experiments]
        for experiment, one in zip(experiments, asked, strict=True):
            outcome, notes = ray.get(one)
            experiment.notes.extend(notes)
            yield outcome
    finally:
        ray.shutdown()


def _play(experiment: Experiment, compiled: bool) -> tuple[Outcome, list[str]]:
    """One run, on whichever node has a core for it."""
    if compiled:
        jit.enable()
    return simulate(experiment), experiment.notes
