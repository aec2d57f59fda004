"""Two kinds of policy: an order says who comes first, a plan says who runs.

* An order names columns to sort by (`OrderPolicy`: everything else is shared and compiled), or computes one number per
  active job with NumPy (`PriorityPolicy`: smaller runs first).
* A plan (`PlanPolicy`) is the whole target state: places, or pools in which the engine finds the places.

What a policy is otherwise (`cotenant.core.traits`) it says in class attributes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np

from cotenant.core import columns as col
from cotenant.core.errors import InputError
from cotenant.core.outcome import Scalar
from cotenant.core.plan import Plan
from cotenant.core.spec import Value
from cotenant.core.state import Rule, make_rule
from cotenant.core.traits import Traits
from cotenant.core.view import View
from cotenant.core.workload import Floats
from cotenant.policies.deadline_answer import DeadlineAnswer
from cotenant.policies.words import by_column

WEIGHING: dict[str, Value] = {"weigh": True, "min_run": 10.0}
"""Parameters of orders that preempt: nobody is stopped unless that gains more than it costs, or in a minimum run of at
most so many seconds."""

_TRAITS = tuple(trait.name for trait in fields(Traits))
_USUAL = Traits()


@dataclass(frozen=True, slots=True)
class Context:
    """What a policy may know of the run before it starts."""

    round_s: float = 360.0
    compat: dict[str, dict[str, str]] = field(default_factory=dict)  # see `cotenant.compat`
    services_gpu_s: Floats = field(default_factory=lambda: np.zeros(0))  # total services of the whole trace
    seed: int = 0


class Policy(ABC):
    """What every policy has. Parameters come as keyword arguments, checked against `defaults`."""

    name: ClassVar[str] = ""
    source: ClassVar[str] = "user"
    preemptive: bool = False
    shares: bool = False
    defaults: ClassVar[dict[str, Value]] = {}

    def __init__(self, **params: Value) -> None:
        self.params: dict[str, Value] = {**self.defaults, **params}

    @classmethod
    def description(cls) -> str:
        """First line of the docstring."""
        return (cls.__doc__ or "").strip().split("\n")[0]

    @property
    def traits(self) -> Traits:
        """What the policy is: whatever of `Traits` it has as an attribute, and the usual for the rest."""
        return Traits(**{name: getattr(self, name, getattr(_USUAL, name)) for name in _TRAITS})

    def begin(self, context: Context) -> None:  # noqa: B027
        """A run begins: forget everything. Called once, before `rule`."""

    @abstractmethod
    def rule(self, context: Context) -> Rule:
        """The policy as data for the engine. May be asked for again, and changes nothing."""

    def why(self, view: View) -> str:
        """Where the first job of a view stands in this order, in words; a plan has reasons of its own."""
        return ""

    def refresh(self) -> None:  # noqa: B027
        """GPUs came or went, or running jobs were moved, since the last decision."""

    def remember(self) -> dict[tuple[int, ...], Any]:
        """What people were told and a crash must not take away: plain data by rows, of a job, a pair, or of nobody."""
        return {}

    def recall(self, kept: Mapping[tuple[int, ...], Any]) -> None:  # noqa: B027
        """The inverse, by the rows of now and before the first decision; what concerns jobs that have ended is gone."""

    def deadline_answers(self) -> Mapping[int, DeadlineAnswer]:
        """What jobs with deadlines were told, by row, where it `promises` anything."""
        return {}

    def story(self) -> str:
        """One line about how deciding went, for the notes of a run; empty when there is nothing to say."""
        return ""

    def figures(self) -> dict[str, Scalar]:
        """What it has counted itself, for the summary of a run."""
        return {}

    def number(self, name: str) -> float:
        """A parameter as a number."""
        value = self.params[name]
        if isinstance(value, str | tuple):
            raise TypeError(f"{name} is not a number")
        return float(value)


class OrderPolicy(Policy):
    """Sort by `order` columns, then by submit time and row; start (and keep) whoever fits in that order."""

    order: ClassVar[tuple[int, ...]] = ()

    @property
    def strict(self) -> bool:
        """Whether the first job that does not fit holds back the rest."""
        return bool(self.params.get("strict"))

    def rule(self, context: Context) -> Rule:
        """Order columns and flags; `stable` because running jobs only gain on waiting ones."""
        traits = self.traits
        flags = {col.PREEMPTIVE: int(traits.preemptive), col.STABLE: 1, col.STRICT: int(traits.strict)}
        return self.weighed(make_rule(self.order, flags, {}), context)

    def weighed(self, rule: Rule, context: Context) -> Rule:
        """The same, weighing what its preemptions cost unless it is told not to, or is to be like somebody else's."""
        if not rule.flags[col.PREEMPTIVE] or not self.params.get("weigh", True) or context.compat:
            return rule
        min_run_s = float(str(self.params.get("min_run", WEIGHING["min_run"])))
        if not min_run_s >= 0:
            raise InputError(f"policy '{self.name}': min_run={min_run_s:g} must be 0 seconds or more")
        rule.flags[col.WEIGHS], rule.numbers[col.MIN_RUN_S] = 1, min_run_s
        return rule

    def why(self, view: View) -> str:
        """What the columns say of it."""
        return "; ".join(by_column(column, view) for column in self.order or (col.BY_NOTHING,))


class PriorityPolicy(Policy):
    """One number per active job; the smallest come first, ties by submit time and row.

    Called after every arrival and completion while somebody waits, and every `round_s` seconds if finite.
    """

    computed: ClassVar[bool] = True
    preemptive: bool = True
    strict: bool = False
    round_s: float = np.inf

    @abstractmethod
    def priority(self, view: View) -> Floats:
        """Priority of each job of the view; smaller is sooner."""

    def rule(self, context: Context) -> Rule:
        """Order by row; the real order comes from `priority`."""
        return make_rule((), {col.EXTERNAL: 1}, {col.ROUND_S: self.traits.round_s})


class PlanPolicy(Policy):
    """The whole target state at once; called after every event, and at the times that its plans name."""

    plans: ClassVar[bool] = True
    preemptive: bool = True
    round_s: float = np.inf
    quantum_s: float = 60.0

    def next_look(self, now_s: float, waiting: int, idle: int) -> float | None:
        """When to be asked next, where no plan would change anything now; None: it has to be asked.

        Known are how many jobs wait and how many GPUs are idle. It spares simulations a view, and changes no result.
        """
        return None

    @abstractmethod
    def decide(self, view: View) -> Plan:
        """Who runs next, and where. The engine checks it and carries out the difference."""

    def rule(self, context: Context) -> Rule:
        """Always ask the policy, or only at its own times (`Plan.next_s`)."""
        traits = self.traits
        return make_rule((), {col.EXTERNAL: 3, col.WAKES: int(traits.wakes)}, {col.ROUND_S: traits.round_s})
