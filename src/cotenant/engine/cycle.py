"""The cycle for policies written in Python: view, decide, check, commit.

Built-in orders take the compiled `decide` instead; both end in the same walk, ledger and tables.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from cotenant.core import columns as col
from cotenant.core.errors import InputError
from cotenant.core.plan import Plan, Pools, Why, nothing_said
from cotenant.core.reasons import moment
from cotenant.core.state import Rule, State, has_tiers, with_tiers
from cotenant.core.view import VIEW_COLUMNS, Facts, View, rates_of
from cotenant.core.workload import Floats, Ints
from cotenant.engine.allocate import Allocation
from cotenant.engine.decide import decide
from cotenant.engine.observe import keep_active, look, order_keys
from cotenant.engine.plans import carry_out_plan
from cotenant.engine.pools import carry_out_pools, fill_idle
from cotenant.engine.rates import RateModel
from cotenant.engine.walk import commit, walk_order
from cotenant.policies.base import PlanPolicy, Policy, PriorityPolicy

_NOBODY: Ints = np.zeros(0, np.int64)


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
        self.traits, self.rule = policy.traits, rule
        self.facts, self.rates = facts or Facts(), rates
        if self.traits.names_pools:  # asked often: look rates up instead of working them out
            known = rates_of(state, np.arange(len(state.f)))
            if allocation is not None:
                known = known * allocation.gains()[state.i[:, col.SPEED_ROW]]
            self.facts = replace(self.facts, rates=known)
        self._mark = np.zeros(len(state.f), np.int64)
        self._rows = np.zeros(1024, np.int64)
        self._count = 0
        self._seen = 0  # arrivals already listed
        self._said: Why = nothing_said  # of the last plan
        self._decided = self._chosen = _NOBODY  # rows that the last plan was about, and those that it put into pools

    @property
    def name(self) -> str:
        """Of the policy."""
        return self.policy.name or type(self.policy).__name__

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
        rows = self.active_rows().copy()
        return self.view_of(rows, now_s)

    def view_of(self, rows: Ints, now_s: float) -> View:
        """The same of some jobs only."""
        computed = np.empty((VIEW_COLUMNS, len(rows)))
        look(self.state, rows, now_s, computed)
        return View(now_s, rows, computed, self.state, self.facts)

    def cycle(self, now_s: float) -> None:
        """One decision."""
        settle = getattr(self.rates, "settle", None)
        if settle is not None:
            settle(self.state, now_s)
        if self.allocation is not None:
            self.allocation.cycle(self, now_s)
        elif self.traits.plans:
            self._by_plan(now_s)
        elif self.traits.computed:
            self._by_priority(now_s)
        else:
            decide(self.state, self.rule, now_s)
        if self.rates is not None:
            self.rates.update(self.state, self.rule, now_s)

    def order(self, now_s: float) -> Ints:
        """Active jobs in the order of the policy (for explanations and tests)."""
        if self.traits.computed:
            view = self.view(now_s)
            return view.rows[np.lexsort((view.rows, self._priorities(view), -view.priority))]
        rows = self.active_rows().copy()
        keys = np.zeros((4, len(rows)))
        order_keys(self.state, self.rule, rows, now_s, keys)
        return rows[np.lexsort((rows, keys[3], keys[2], keys[1], keys[0]))]

    def plan(self, view: View) -> Plan:
        """What the policy plans; its reasons stand until the next plan."""
        plan = cast(PlanPolicy, self.policy).decide(view)
        self._said, self._decided = plan.why, view.rows
        self._chosen = _NOBODY if plan.pools is None else plan.pools.rows
        return plan

    def answers(self) -> Why:
        """Why jobs do not run, by the last plan; holds for as long as it is kept."""
        said, decided, chosen, next_s = self._said, self._decided, self._chosen, float(self.state.t[col.NEXT_CALL])

        def why(row: int) -> str:
            if not (decided == row).any():
                later = f", or at {moment(next_s)}" if len(decided) and np.isfinite(next_s) else ""
                return f"nothing has been decided since it came; the policy is asked when something happens{later}"
            if (chosen == row).any():
                return "it is chosen, but the GPUs of its pool are not free together for it, and others have them"
            return said(row)

        return why

    def _by_plan(self, now_s: float) -> None:
        view = self.view(now_s)
        plan = self.plan(view)
        if plan.pools is None:
            carry_out_plan(self.state, self.rule, plan, view, self.name, now_s)
        else:
            self._in_pools(plan.pools, now_s)
        self.state.t[col.NEXT_CALL] = plan.next_s

    def _by_priority(self, now_s: float) -> None:
        view = self.view(now_s)
        priority = self._priorities(view)
        order = np.argsort(priority, kind="stable")
        ordered = priority[order]
        rows = view.rows[order]
        if has_tiers(self.state):
            rows = view.rows[np.lexsort((view.rows, priority, -view.priority))]
        elif (ordered[1:] == ordered[:-1]).any():
            rows = view.rows[np.lexsort((view.rows, priority))]
        self._rows[: len(rows)] = rows
        walk_order(self.state, rows, self.traits.preemptive, self.traits.strict)
        commit(self.state, self.rule, now_s)

    def _in_pools(self, wanted: Pools, now_s: float) -> None:
        """Check who runs in which pool, then let the places be found: hosts before guests, larger gangs first."""
        state, rows = self.state, np.asarray(wanted.rows, np.int64)
        order = np.lexsort((rows, -state.i[rows, col.GPUS], wanted.hosts >= 0))
        pools, hosts = (np.asarray(part, np.int64)[order] for part in (wanted.pools, wanted.hosts))
        missed = carry_out_pools(state, self.rule, rows[order], pools, hosts, self._mark, now_s)
        if missed < 0:
            raise InputError(f"policy '{self.name}': plan names a job twice, or one that is not active")
        if missed:
            fill_idle(state, self.rule, np.sort(self.active_rows()), now_s)

    def _priorities(self, view: View) -> Floats:
        """The priorities of a user's policy, or one clear line about what is wrong with them."""
        priority = np.asarray(cast(PriorityPolicy, self.policy).priority(view), np.float64)
        if priority.shape != view.rows.shape:
            raise InputError(f"policy '{self.name}': priority() returned shape {priority.shape}, not {view.rows.shape}")
        if np.isnan(priority).any():
            raise InputError(f"policy '{self.name}': priority() returned NaN at {view.now_s:g} s")
        return priority
