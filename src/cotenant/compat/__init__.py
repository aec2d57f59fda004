"""Quirks of released simulators that can be switched on to compare with them, by name; one file per system.

`--compat gavel` switches on all that the authors' published runs need; `--compat gavel:name=value` a single one.
Several are joined by commas. The default is always the behaviour that the paper means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from cotenant.core.errors import InputError, unknown
from cotenant.core.spec import Spec
from cotenant.core.stages import Stages
from cotenant.core.traits import Traits
from cotenant.core.workload import Floats, Workload
from cotenant.engine.rates import RateModel
from cotenant.policies.base import Policy

if TYPE_CHECKING:
    from cotenant.compat.base import Speeds, System
    from cotenant.compat.synergy import SynergyQuirks

SYSTEMS = {
    "tiresias": "TiresiasQuirks",
    "muri": "MuriQuirks",
    "gavel": "GavelQuirks",
    "chronus": "ChronusQuirks",
    "synergy": "SynergyQuirks",
}
"""Class names by system; a system is loaded when it is asked for."""


def system(name: str) -> type[System]:
    """What is known of one system."""
    found: type[System] = getattr(import_module(f"cotenant.compat.{name}"), SYSTEMS[name])
    return found


def costs_of_systems() -> dict[str, Callable[[Workload], Floats]]:
    """Names of what a preemption costs -> seconds of each job."""
    return {name: cost for known in SYSTEMS for name, cost in system(known).costs.items()}


_SECONDS = ("reset_interval_s", "first_round_s")


def parse_compat(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """The quirks of each system named, e.g. `("gavel", "gavel:fifo.type_choice=stale")`."""
    found: dict[str, dict[str, str]] = {}
    for name in names:
        spec = Spec.parse(name)
        if spec.name not in SYSTEMS:
            raise unknown("--compat", spec.name, SYSTEMS)
        quirks = found.setdefault(spec.name, {})
        if not spec.params:
            quirks.update(system(spec.name).bundle)
        for key, value in spec.params.items():
            known = system(spec.name).single
            if key not in known:
                raise unknown(f"quirk of --compat {spec.name}", key, known)
            if key in _SECONDS:
                _check_seconds(name, key, value)
            elif value != known[key]:
                raise InputError(f"--compat {name}: {key} can only be {known[key]}")
            quirks[key] = value
    return found


def _check_seconds(name: str, key: str, value: str) -> None:
    try:
        good = 0 <= float(value) < float("inf")
    except ValueError:
        good = False
    if not good:
        raise InputError(f"--compat {name}: {key} must be a number of seconds, 0 or more")


class Compat:
    """The systems that a run is to be like, all of them asked in turn."""

    def __init__(self, names: Sequence[str]) -> None:
        self.quirks = parse_compat(names)
        self.systems = [system(name)(quirks) for name, quirks in self.quirks.items()]

    def policy(self, policy: Policy) -> Policy:
        """The policy as they play it."""
        for one in self.systems:
            policy = one.policy(policy)
        return policy

    def workload(self, work: Workload) -> Workload:
        """The jobs as they read them."""
        for one in self.systems:
            work = one.workload(work)
        return work

    def costs(self, usual: str) -> str:
        """What a preemption costs, by name."""
        return next((quirks["costs"] for quirks in self.quirks.values() if "costs" in quirks), usual)

    def looks_at_memory(self) -> bool:
        """Whether the memory of a GPU limits who shares it."""
        return all(one.looks_at_memory() for one in self.systems)

    def rates(self, stages: Stages | None, traits: Traits, round_s: float, shared: Speeds | None) -> RateModel | None:
        """What moves jobs, where one of them has its own way."""
        found = (one.rates(stages, traits, round_s, shared) for one in self.systems)
        return next((model for model in found if model is not None), None)

    def packer(self) -> SynergyQuirks | None:
        """Who packs cores and memory in its own way."""
        if "synergy" not in self.quirks:
            return None
        from cotenant.compat.synergy import SynergyQuirks

        return next((one for one in self.systems if isinstance(one, SynergyQuirks) and one.packs), None)
