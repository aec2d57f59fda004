"""The cycle for policies written in Python: view, decide, check, commit.

Built-in orders take the compiled `decide` instead; both end in the same walk, ledger and tables.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cotenant.core import columns as col
from cotenant.core.errors import InputError
from cotenant.core.plan import Choice
from cotenant.core.state import Rule, State, has_tiers, with_tiers
from cotenant.core.view import Facts, View, rates_of
from cotenant.core.workload import Floats, Ints
from cotenant.engine.allocate import Allocation
from cotenant.engine.choices import carry_out, fill_idle
from cotenant.engine.decide import decide
from cotenant.engine.observe import Window, keep_active, order_keys
from cotenant.engine.plans import carry_out_plan
from cotenant.engine.rates import RateModel
from cotenant.engine.walk import commit, walk_order
from cotenant.policies.base import ChoicePolicy, PlanPolicy, Policy, PriorityPolicy


class Engine:
    """One policy on one set of tables. A driver moves time and reports events; `cycle` decides."""

    def __init__(
        self,
        state: State,
        policy: Policy,
        rule: Rule,
        facts: Facts | None = None,
        rates: RateModel | None = None,
        allocation: Allocation | None = None,
    ) -> None:
        self.state, self.policy, self.allocation = state, policy, allocation
        self.rule = rule
        self.facts, self.rates = facts or Facts(), rates
        if isinstance(policy, ChoicePolicy):  # asked often: look rates up instead of working them out
            allowed = state.cls[state.i[:, col.CLASS], col.C_POOLS]
            known = rates_of(state.speed, state.i[:, col.SPEED_ROW], allowed, state.pool)
            if allocation is not None:
                known = known * allocation.gains()[state.i[:, col.SPEED_ROW]]
            self.facts = replace(self.facts, rates=known)
        self._window = Window(state)
        self._mark = np.zeros(len(state.f), np.int64)
        self._rows = np.zeros(1024, np.int64)
        self._count = 0
        self._seen = 0  # arrivals already listed

    @property
    def rule(self) -> Rule:
        """The policy as data; the jobs' tiers, where there are any, lead its order."""
        return self._rule

    @rule.setter
    def rule(self, rule: Rule) -> None:
        self._rule = with_tiers(rule) if has_tiers(self.state) else rule

    def active_rows(self) -> Ints:
        """Rows of active jobs, in the order of the last decision: nearly sorted lists sort quickly."""
        arrived = int(self.state.x[col.NEXT_ARRIVAL])
        need = self._count + arrived - self._seen
        if need > len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros(need, np.int64)])
        self._count = keep_active(self.state, self._rows, self._count, self._seen, arrived)
        self._seen = arrived
        return self._rows[: self._count]

    def view(self, now_s: float) -> View:
        """What the policy may see now."""
        return self._window.view(self.facts, self.active_rows(), now_s)

    def cycle(self, now_s: float) -> None:
        """One decision."""
        settle = getattr(self.rates, "settle", None)
        if settle is not None:
            settle(self.state, now_s)
        if self.allocation is not None:
            self.allocation.cycle(self, now_s)
        elif isinstance(self.policy, PriorityPolicy):
            self._by_priority(self.policy, now_s)
        elif isinstance(self.policy, PlanPolicy):
            view = self.view(now_s)
            name = self.policy.name or type(self.policy).__name__
            carry_out_plan(self.state, self.rule, self.policy.decide(view), view, name, now_s)
        elif isinstance(self.policy, ChoicePolicy):
            self._choose(self.policy.choose(self.view(now_s)), now_s)
        else:
            decide(self.state, self.rule, now_s)
        if self.rates is not None:
            self.rates.update(self.state, self.rule, now_s)

    def order(self, now_s: float) -> Ints:
        """Active jobs in the order of the policy (for explanations and tests)."""
        if isinstance(self.policy, PriorityPolicy):
            view = self.view(now_s)
            return view.rows[np.lexsort((view.rows, _checked(self.policy, view), -view.priority))]
        rows = self.active_rows().copy()
        keys = np.zeros((4, len(rows)))
        order_keys(self.state, self.rule, rows, now_s, keys)
        return rows[np.lexsort((rows, keys[3], keys[2], keys[1], keys[0]))]

    def _by_priority(self, policy: PriorityPolicy, now_s: float) -> None:
        view = self.view(now_s)
        priority = _checked(policy, view)
        order = np.argsort(priority, kind="stable")
        ordered = priority[order]
        rows = view.rows[order]
        if has_tiers(self.state):
            rows = view.rows[np.lexsort((view.rows, priority, -view.priority))]
        elif (ordered[1:] == ordered[:-1]).any():
            rows = view.rows[np.lexsort((view.rows, priority))]
        self._rows[: len(rows)] = rows
        walk_order(self.state, rows, policy.preemptive, policy.strict)
        commit(self.state, self.rule, now_s)

    def _choose(self, choice: Choice, now_s: float) -> None:
        """Check a choice, then let the places be found: hosts before guests, larger gangs first."""
        state, rows = self.state, np.asarray(choice.rows, np.int64)
        order = np.lexsort((rows, -state.i[rows, col.GPUS], choice.hosts >= 0))
        pools, hosts = (np.asarray(part, np.int64)[order] for part in (choice.pools, choice.hosts))
        missed = carry_out(state, self.rule, rows[order], pools, hosts, self._mark, now_s)
        if missed < 0:
            name = self.policy.name or type(self.policy).__name__
            raise InputError(f"policy '{name}': its choice names a job twice, or one that is not active")
        if missed:
            fill_idle(state, self.rule, np.sort(self.active_rows()), now_s)
        state.t[col.NEXT_CALL] = choice.next_s


def _checked(policy: PriorityPolicy, view: View) -> Floats:
    """The priorities of a user's policy, or one clear line about what is wrong with them."""
    priority = np.asarray(policy.priority(view), np.float64)
    name = policy.name or type(policy).__name__
    if priority.shape != view.rows.shape:
        raise InputError(f"policy '{name}': priority() returned shape {priority.shape}, not {view.rows.shape}")
    if np.isnan(priority).any():
        raise InputError(f"policy '{name}': priority() returned NaN at {view.now_s:g} s")
    return priority
