"""`gavel:objective=...`: any objective, driven by the round mechanism."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cotenant.core.errors import InputError, unknown
from cotenant.core.spec import Value
from cotenant.core.traits import PAIR_RULES
from cotenant.core.view import View
from cotenant.core.workload import Floats
from cotenant.policies.base import Context
from cotenant.policies.gavel import ordered
from cotenant.policies.gavel.targets import OBJECTIVES, TargetOptions, as_believed
from cotenant.policies.rounds.last_good import LastGood
from cotenant.policies.rounds.problem import Problem, Targets
from cotenant.policies.rounds.rounds import RoundPolicy
from cotenant.solvers import SolverError

INNER = ("fairness", "fifo")
WALKS = ("types", "global")


class Gavel(RoundPolicy):
    """Time fractions per GPU type by an objective (las, fifo, sjf, ftf, makespan, ...), in rounds."""

    name = "gavel"
    source = "Gavel, Narayanan et al., OSDI'20"
    defaults: ClassVar[dict[str, Value]] = {
        "objective": "las",
        "aware": True,
        "sharing": False,
        "inner": "fairness",
        "weights": (),
        "budget": 0.0,
        "walk": "types",
        "pairs": "oracle",
        "profiled": 0.2,
        "references": 16,
        "rule": "mixture",
    }

    def __init__(self, **params: Value) -> None:
        super().__init__(**params)
        self.objective = str(self.params["objective"])
        if self.objective not in OBJECTIVES:
            raise unknown("objective of policy 'gavel'", self.objective, OBJECTIVES)
        if self.params["inner"] not in INNER:
            raise unknown("inner of policy 'gavel'", str(self.params["inner"]), INNER)
        if self.params["walk"] not in WALKS:
            raise unknown("walk of policy 'gavel'", str(self.params["walk"]), WALKS)
        if self.params["rule"] not in PAIR_RULES:
            raise unknown("rule of policy 'gavel'", str(self.params["rule"]), PAIR_RULES)
        weights = self.params["weights"]
        self._weights = tuple(float(w) for w in weights) if isinstance(weights, tuple) else ()
        if any(not w > 0 for w in self._weights):
            raise InputError("policy 'gavel': weights=[...] must be above 0, one per tenant in order of appearance")

    def begin(self, context: Context) -> None:
        """The quirks of this family are read once."""
        given = context.compat.get("gavel", {})
        stale = given.get("fifo.type_choice") == "stale"
        self._slots = ordered.Slots(context.seed, stale=stale) if stale or "fifo.queue" in given else None
        self._options = TargetOptions(
            aware=bool(self.params["aware"]),
            sharing=bool(self.params["sharing"]),
            budget_s=self.number("budget") or np.inf,
            entity_weights=dict(enumerate(self._weights)),
            inner=str(self.params["inner"]),
            interior=given.get("solver") == "interior_point",
            bisect=given.get("makespan.method") == "bisect_1.05",
            copy_first_rate=given.get("agnostic_rate") == "v100_copy",
        )
        self._last = LastGood()
        super().begin(context)

    @property
    def shares(self) -> bool:  # type: ignore[override]
        """Whether pairs of jobs may share GPUs."""
        return bool(self.params["sharing"])

    @property
    def pair_belief(self) -> str:  # type: ignore[override]
        """`pairs=online` starts from a few measured pairs, completes them by `rule`, and learns from every round."""
        if self.params["pairs"] != "online":
            return str(self.params["pairs"])
        names = ("profiled", "references", "rule")
        return "online:" + ",".join(f"{name}={self.params[name]}" for name in names)

    @property
    def agnostic(self) -> bool:  # type: ignore[override]
        """Whether GPU types are visited in random order."""
        return not self._options.aware and not self._options.sharing

    @property
    def one_queue(self) -> bool:  # type: ignore[override]
        """`walk=global`: a job may be furthest behind on a type that a walk type by type comes to too late."""
        return self.params["walk"] == "global"

    @property
    def only_targets(self) -> bool:  # type: ignore[override]
        """FIFO never lets a job past the head, not even onto idle GPUs."""
        return self.objective == "fifo"

    def even_rates(self, problem: Problem) -> Floats:
        """As the objective believes them: the released agnostic one copies the first type's rates here too."""
        seen = as_believed(problem, self._options) if self._options.copy_first_rate else problem
        return seen.isolated_rate

    def targets(self, problem: Problem, view: View) -> Targets:
        """The objective's fractions; the last good ones when no solver answers in `budget` seconds (0: no limit)."""
        if self.objective == "fifo" and not self._options.aware:
            if self._slots is not None:
                return self._slots.targets(problem, view.rows)
            return ordered.any_type(problem, view.pool, self.rng)
        try:
            answer = OBJECTIVES[self.objective](problem, self._options)
        except SolverError:
            return self._last.stand_in(view.rows, problem)
        return self._last.keep(view.rows, answer)

    def story(self) -> str:
        """How solving went."""
        return self._last.story() if self._last.stood_in or self._last.notes else ""
