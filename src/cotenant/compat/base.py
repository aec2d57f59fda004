"""One published simulator: the names of its quirks, and what it does otherwise in a run. By default that is nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol

from cotenant.core.stages import Stages
from cotenant.core.state import State
from cotenant.core.traits import Traits
from cotenant.core.workload import Floats, Ints, Workload
from cotenant.engine.rates import RateModel
from cotenant.policies.base import Policy


class Speeds(RateModel, Protocol):
    """A rate model that can be asked for speeds."""

    def speeds(self, state: State, rows: Ints) -> Floats:
        """Speed of each running job in its present company."""


class System:
    """What its name alone switches on (`bundle`), and what can be switched on one by one (`single`)."""

    bundle: ClassVar[dict[str, str]] = {}
    single: ClassVar[dict[str, str]] = {}
    costs: ClassVar[dict[str, Callable[[Workload], Floats]]] = {}  # seconds per preemption by name
    paces_rounds: ClassVar[bool] = False  # compiled loops of its own, for plans in pools

    def __init__(self, quirks: dict[str, str]) -> None:
        self.quirks = quirks

    def policy(self, policy: Policy) -> Policy:
        """The policy as the system plays it."""
        return policy

    def workload(self, work: Workload) -> Workload:
        """The jobs as the system reads them."""
        return work

    def looks_at_memory(self) -> bool:
        """Whether the memory of a GPU limits who shares it."""
        return True

    def rates(self, stages: Stages | None, traits: Traits, round_s: float, shared: Speeds | None) -> RateModel | None:
        """What moves jobs, where that is the system's own; `shared` is what company does to them."""
        return None
