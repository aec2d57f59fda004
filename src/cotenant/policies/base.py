"""Four ways to write a policy, from least to most work.

* `OrderPolicy`: names columns to sort by; everything else is shared and compiled.
* `PriorityPolicy`: computes one number per active job with NumPy; smaller runs first.
* `ChoicePolicy`: says who runs in which pool of GPUs, at times of its own.
* `PlanPolicy`: returns the whole target state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

import numpy as np

from cotenant.core import columns as col
from cotenant.core.plan import Choice, Plan, Standing
from cotenant.core.spec import Value
from cotenant.core.state import Rule, make_rule
from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints

_Kept = TypeVar("_Kept")


def carry_over(table: Mapping[int, _Kept], new_row: Mapping[int, int]) -> dict[int, _Kept]:
    """What was kept by row, under the rows of now; without those who are gone (see `PlanPolicy.renumber`)."""
    return {new_row[row]: kept for row, kept in table.items() if row in new_row}


@dataclass(frozen=True, slots=True)
class Context:
    """What a policy may know of the run before it starts."""

    round_s: float = 360.0
    compat: dict[str, dict[str, str]] = field(default_factory=dict)  # see `cotenant.core.compat`
    services_gpu_s: Floats = field(default_factory=lambda: np.zeros(0))  # total services of the whole trace
    seed: int = 0


class Policy(ABC):
    """What every policy has. Parameters come as keyword arguments, checked against `defaults`."""

    name: ClassVar[str] = ""
    source: ClassVar[str] = "user"
    preemptive: ClassVar[bool] = False
    default_estimator: ClassVar[str] = "oracle"  # what is believed of durations where nobody chose
    defaults: ClassVar[dict[str, Value]] = {}
    shares: bool = False  # whether several jobs may sit on one GPU
    overcommits: ClassVar[bool] = False  # whether jobs may run outside the quota of their tenant
    interleaves: ClassVar[bool] = False  # whether jobs that share take turns stage by stage (Muri)

    def __init__(self, **params: Value) -> None:
        self.params: dict[str, Value] = {**self.defaults, **params}

    @classmethod
    def description(cls) -> str:
        """First line of the docstring."""
        return (cls.__doc__ or "").strip().split("\n")[0]

    @abstractmethod
    def rule(self, context: Context) -> Rule:
        """The policy as data for the engine."""

    def reason(self, row: int) -> str:
        """Why a waiting job was passed over at the last decision, in words; empty where the order says it all."""
        return ""

    def story(self) -> str:
        """One line about how deciding went, for the notes of a run; empty when there is nothing to say."""
        return ""

    def number(self, name: str) -> float:
        """A parameter as a number."""
        value = self.params[name]
        if isinstance(value, str | tuple):
            raise TypeError(f"{name} is not a number")
        return float(value)


class OrderPolicy(Policy):
    """Sort by `order` columns, then by submit time and row; start (and keep) whoever fits in that order."""

    order: ClassVar[tuple[int, ...]] = ()

    def rule(self, context: Context) -> Rule:
        """Order columns and flags; `stable` because running jobs only gain on waiting ones."""
        flags = {col.PREEMPTIVE: int(self.preemptive), col.STABLE: 1}
        if self.params.get("strict"):
            flags[col.STRICT] = 1
        return make_rule(self.order, flags, {})


class PriorityPolicy(Policy):
    """One number per active job; the smallest come first, ties by submit time and row.

    Called after every arrival and completion while somebody waits, and every `round_s` seconds if finite.
    """

    preemptive: ClassVar[bool] = True
    strict: ClassVar[bool] = False
    round_s: ClassVar[float] = np.inf

    @abstractmethod
    def priority(self, view: View) -> Floats:
        """Priority of each job of the view; smaller is sooner."""

    def rule(self, context: Context) -> Rule:
        """Order by row; the real order comes from `priority`."""
        return make_rule((), {col.EXTERNAL: 1}, {col.ROUND_S: self.round_s})


class PlanPolicy(Policy):
    """The whole target state at once; called after every event."""

    preemptive: ClassVar[bool] = True
    resizes: ClassVar[bool] = False  # whether it gives elastic jobs other sizes than they asked for
    fixed_batch: ClassVar[bool] = False  # resized jobs keep the batch they asked for, in smaller or larger parts
    round_s: ClassVar[float] = np.inf
    undoes: ClassVar[bool] = False  # whether it parts, or holds back, jobs that do not gain from sharing by itself
    takes_turns: ClassVar[bool] = False  # whether jobs on one GPU may have it one after the other (`Terms.turn`)
    quantum_s: float = 60.0  # of jobs that take turns on a GPU

    @abstractmethod
    def decide(self, view: View) -> Plan:
        """Who runs next, and where. The engine checks it and carries out the difference."""

    def renumber(self, new_row: Mapping[int, int]) -> None:
        """Rows were laid out anew: old row -> new row; whoever is missing is gone. Tables by kind are out of date too.

        Rows keep their order among each other. Whoever remembers rows or kinds between decisions overrides this.
        """

    def rule(self, context: Context) -> Rule:
        """Always ask the policy; where it shares GPUs, also at the times that it asks for (`Plan.next_s`)."""
        if self.shares:
            return make_rule((), {col.EXTERNAL: 3, col.WAKES: 1}, {})
        return make_rule((), {col.EXTERNAL: 2}, {col.ROUND_S: self.round_s})


class ChoicePolicy(Policy):
    """Who runs in which pool (one GPU type of one partition); asked at `Choice.next_s` and at events before it."""

    preemptive: ClassVar[bool] = True
    pair_belief: str = "oracle"  # what it believes of pairs: `oracle`, or `online:...` from what it has seen

    @abstractmethod
    def choose(self, view: View) -> Choice:
        """Who runs next. The engine keeps places where it can and carries out the difference."""

    def refresh(self) -> None:
        """GPUs came or went since the last choice."""

    def renumber(self, new_row: Mapping[int, int]) -> None:
        """Rows and kinds were laid out anew, as for a `PlanPolicy`."""

    def standing(self, ids: Ints) -> Standing | None:
        """Where the jobs of these identities stood at the last choice; None where it does not think in fractions."""
        return None
