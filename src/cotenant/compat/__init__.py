"""Quirks of released simulators that can be switched on to compare with them, by name; one file per system.

`--compat gavel` switches on all that the authors' published runs need; `--compat gavel:name=value` a single one.
Several are joined by commas. The default is always the behaviour that the paper means.
"""

from __future__ import annotations

from collections.abc import Sequence

from cotenant.compat.base import Speeds, System
from cotenant.compat.chronus import ChronusQuirks
from cotenant.compat.gavel import GavelQuirks
from cotenant.compat.muri import MuriQuirks
from cotenant.compat.synergy import SynergyQuirks
from cotenant.compat.tiresias import TiresiasQuirks
from cotenant.core.errors import InputError, unknown
from cotenant.core.spec import Spec
from cotenant.core.stages import Stages
from cotenant.core.traits import Traits
from cotenant.core.workload import Workload
from cotenant.engine.rates import RateModel
from cotenant.policies.base import Policy

SYSTEMS: dict[str, type[System]] = {
    "tiresias": TiresiasQuirks,
    "muri": MuriQuirks,
    "gavel": GavelQuirks,
    "chronus": ChronusQuirks,
    "synergy": SynergyQuirks,
}
COSTS = {name: cost for system in SYSTEMS.values() for name, cost in system.costs.items()}
"""Names of what a preemption costs -> seconds of each job."""

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
            quirks.update(SYSTEMS[spec.name].bundle)
        for key, value in spec.params.items():
            known = SYSTEMS[spec.name].single
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
        self.systems = [SYSTEMS[name](quirks) for name, quirks in self.quirks.items()]

    def policy(self, policy: Policy) -> Policy:
        """The policy as they play it."""
        for system in self.systems:
            policy = system.policy(policy)
        return policy

    def workload(self, work: Workload) -> Workload:
        """The jobs as they read them."""
        for system in self.systems:
            work = system.workload(work)
        return work

    def costs(self, usual: str) -> str:
        """What a preemption costs, by name."""
        return next((quirks["costs"] for quirks in self.quirks.values() if "costs" in quirks), usual)

    def looks_at_memory(self) -> bool:
        """Whether the memory of a GPU limits who shares it."""
        return all(system.looks_at_memory() for system in self.systems)

    def rates(self, stages: Stages | None, traits: Traits, round_s: float, shared: Speeds | None) -> RateModel | None:
        """What moves jobs, where one of them has its own way."""
        found = (system.rates(stages, traits, round_s, shared) for system in self.systems)
        return next((model for model in found if model is not None), None)

    def packer(self) -> SynergyQuirks | None:
        """Who packs cores and memory in its own way."""
        return next((system for system in self.systems if isinstance(system, SynergyQuirks) and system.packs), None)
