"""One step of the engine: observe, admit, plan, place, check, diff. Events in, a decision out.

* observe: what happened is taken into the tables (`events`), and what jobs do by themselves up to now.
* admit: who may be planned with at all: not who is held, pinned, over quota, or larger than the nodes that are up;
  tiers lead every order. Where a tree of tenants shares the cluster, what each may hold is worked out first, and
  borrowed GPUs are taken back (`claims`).
* plan: the policy says who comes first (an order), or who runs (a plan), from a view that is a copy.
* place: exact GPUs for whoever starts (`walk`, `pools`, `allocate`, or the plan itself).
* check: a plan that passes a limit is an error of the policy, and changes nothing.
* diff: the difference to what runs becomes transitions: stops, promises, starts, resizes, terms.

Built-in orders run all of it in one kernel (`decide`). Both ways end in the same walk, ledger and tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

import numpy as np

from cotenant.core import columns as col
from cotenant.core.decision import CHANGES, Change, Decision, Event, Transition
from cotenant.core.errors import InputError
from cotenant.core.plan import ALONE, Plan, Pools, Terms, Why, nothing_said
from cotenant.core.reasons import moment
from cotenant.core.state import Rule, State, has_tiers, with_tiers
from cotenant.core.view import Facts, View, rates_of
from cotenant.core.workload import Floats, Ints
from cotenant.engine.aside import set_aside
from cotenant.engine.claims import admit, share_rest
from cotenant.engine.decide import decide
from cotenant.engine.defrag import Defragmenter
from cotenant.engine.events import begin_step, next_own_time, wants_decision
from cotenant.engine.guard import Guard, decide_guarded, place_waiting
from cotenant.engine.ledger import begin_promised
from cotenant.engine.network import NetworkCare
from cotenant.engine.observe import Window, keep_active, order_keys, pinned_gpus, places_of, running_rows
from cotenant.engine.plans import carry_out_plan
from cotenant.engine.pools import carry_out_pools, fill_idle, name_hosts
from cotenant.engine.rates import RateModel
from cotenant.engine.taking_in import take_in
from cotenant.engine.turns import Overruns, change_turns, forgo_turns
from cotenant.engine.walk import commit, walk_order
from cotenant.policies.base import PlanPolicy, Policy, PriorityPolicy

_NOBODY: Ints = np.zeros(0, np.int64)


@dataclass(slots=True)
class Fixed:
    """Tables that do not grow."""

    state: State


class Tables(Protocol):
    """Whoever holds the tables: `state` may be replaced by larger ones, so it is asked for every time."""

    state: State


class Packer(Protocol):
    """Whoever schedules cores and memory beside the GPUs, in place of the stages of a decision."""

    def cycle(self, engine: Engine, now_s: float) -> None:
        """Decide, if it is time to, and carry it out."""

    def due(self, now_s: float) -> bool:
        """Whether it is."""

    def gains(self) -> Floats:
        """Kind x pool: speed with the best-case demand, against the speed of the GPUs alone."""


class Engine:
    """One policy on one set of tables. A driver moves time and reports events; `step` decides."""

    def __init__(
        self,
        tables: Tables | State,
        policy: Policy,
        rule: Rule,
        facts: Facts | None = None,
        rates: RateModel | None = None,
        allocation: Packer | None = None,
        defrag: Defragmenter | None = None,
        network: NetworkCare | None = None,
        guard: Guard | None = None,
    ) -> None:
        self._fixed = isinstance(tables, State)
        self._tables = Fixed(tables) if isinstance(tables, State) else tables
        self.policy, self.allocation, self.defrag = policy, allocation, defrag
        self.network, self.guard = network, guard
        self.traits, self.rule = policy.traits, rule
        self.facts, self.rates = facts or Facts(), rates
        state = self.state
        state.x[col.ROTATES] &= int(self.traits.takes_turns)
        state.x[col.STACKS] = int(self.traits.shares)
        if state.x[col.TENANTS] and self.traits.own_shares:
            state.x[col.TENANTS] = 2
        self._terms: dict[int, Terms] = {}  # as they were when last reported
        if self.traits.names_pools and self._fixed:  # asked often: look rates up instead of working them out
            allowed = state.cls[state.i[:, col.CLASS], col.C_POOLS]
            known = rates_of(state.speed, state.i[:, col.SPEED_ROW], allowed, state.pool)
            if allocation is not None:
                known = known * allocation.gains()[state.i[:, col.SPEED_ROW]]
            self.facts = replace(self.facts, rates=known)
        self._window, self.overruns = Window(), Overruns()
        self._mark = np.zeros(len(state.f), np.int64)
        self._rows = np.zeros(1024, np.int64)
        self._count = 0
        self._seen = self._back = 0  # arrivals already listed, and who came back since
        self.lines: tuple[tuple[int, ...], ...] = ()  # of the last plan
        self._said: Why = nothing_said  # of the last plan
        self._capacity = -1  # GPUs of nodes that were up at the last decision by a plan
        self._decided = self._chosen = _NOBODY  # rows that the last plan was about, and those that it put into pools

    @property
    def state(self) -> State:
        """The tables."""
        return self._tables.state

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
        self.state.x[col.ROUND] = -1  # whatever was kept is of another order

    def active_rows(self) -> Ints:
        """Rows of active jobs, in the order of the last decision: nearly sorted lists sort quickly."""
        if not self._fixed:
            states = self.state.i[: self.state.x[col.NEXT_ARRIVAL], col.STATE]
            return np.flatnonzero((states == col.WAITING) | (states == col.RUNNING))
        arrived, back = self.state.x[[col.NEXT_ARRIVAL, col.N_BACK]].tolist()
        if back > self._back:  # somebody is not in the list who was set aside
            self._back, self._count, self._seen = back, 0, 0
        need = self._count + arrived - self._seen
        if need > len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros(need, np.int64)])
        self._count = keep_active(self.state, self._rows, self._count, self._seen, arrived)
        self._seen = arrived
        return self._rows[: self._count]

    def view(self, now_s: float) -> View:
        """What the policy may see now."""
        return self.view_of(self.active_rows(), now_s)

    def view_of(self, rows: Ints, now_s: float) -> View:
        """The same of some jobs only."""
        return self._window.view(self.state, self.facts, rows, now_s)

    # -- one step ------------------------------------------------------------------------------------------------

    def step(self, now_s: float, events: Sequence[Event] = ()) -> Decision:
        """Take in what happened and decide, if there is anything to decide; what is to change, and when to look again.

        A look without events, or before anything is due, asks no policy.
        """
        due = self.observe(now_s, events)
        asked = due and bool(wants_decision(self.state, self.rule, now_s))
        if asked:
            self.decide(now_s)
        self.settle(now_s)
        return Decision(now_s, self.transitions(), self.next_s(), asked, self.answers())

    def observe(self, now_s: float, events: Sequence[Event]) -> bool:
        """What jobs do by themselves, then what the world tells; whether anything happened or is due."""
        state = self.state
        state.x[col.N_LOG], state.x[col.LOGGING] = 0, 1
        due = bool(begin_step(state, self.rule, now_s))
        state.x[col.LOGGING] = 0  # whoever tells what happened knows it
        for event in events:
            take_in(state, self.rule, event, now_s)
        state.x[col.LOGGING] = 1
        set_aside(state, self.rule, now_s)
        return due or bool(events)

    def decide(self, now_s: float) -> None:
        """The stages from the plan to the difference: afterwards the tables are as they are to be."""
        if self.state.x[col.ROTATES]:
            forgo_turns(self.state, self.rule, now_s)
        settle = getattr(self.rates, "settle", None)
        if settle is not None:
            settle(self.state, now_s)
        if self.network is not None:
            self.network.before(self.state, self.rule, now_s)
        if self.guard is not None and self.allocation is None:
            place_waiting(self, self.guard, now_s)
        python = self.allocation is not None or self.traits.plans or self.traits.computed
        shared = python and self.state.x[col.TENANTS] == 1
        if shared and (self.allocation is None or self.allocation.due(now_s)):
            admit(self.state, self.rule, now_s)
        if self.allocation is not None:
            self.allocation.cycle(self, now_s)
        elif self.traits.plans:
            self._by_plan(now_s)
        elif self.traits.computed:
            self._by_priority(now_s)
        else:
            decide(self.state, self.rule, now_s)
        whole = self.traits.plans and not self.traits.names_pools  # its next plan would stop whoever starts beside it
        if shared and self.allocation is None and not (whole or self.traits.shares or self.traits.resizes):
            share_rest(self.state, self.rule, now_s)
        self.state.x[col.NEW_TREE] = 0
        if self.defrag is not None and self.state.x[col.N_WAITING] and self.state.x[col.IDLE]:
            self._defragment(self.defrag, now_s)
        if self.network is not None:
            self.network.after(self.state, self.rule, now_s)

    def _defragment(self, defrag: Defragmenter, now_s: float) -> None:
        """Move jobs together for somebody who waits; an order has it start, a policy that plans is asked again."""
        rows = np.sort(self.active_rows()) if self.traits.plans else self.order(now_s)
        waits = rows[self.state.i[rows, col.STATE] == col.WAITING]
        first_only = self.traits.strict or self.rule.flags[col.EASY] or self.rule.flags[col.STRICT]
        moves = defrag.find(self.state, self.facts, waits[: 1 if first_only else None].tolist(), now_s)
        if moves is None:
            return
        defrag.made(moves)
        run = moves.moved if self.traits.plans else {**moves.moved, moves.gang: moves.place}
        carry_out_plan(self.state, self.rule, Plan(run, keep=True), self.view(now_s), "--defrag", now_s)
        self.policy.refresh()
        if self.traits.plans and not self.state.x[col.LAGS]:
            self._by_plan(now_s)

    def settle(self, now_s: float) -> None:
        """Let everybody begin whose GPUs are free by now; then jobs go at the speed of their situation."""
        state = self.state
        if state.x[col.ROTATES]:
            change_turns(state, self.rule, self.traits.quantum_s, now_s, self.overruns)
        elif state.x[col.N_PROMISED]:
            begin_promised(state, self.rule, now_s)
        if self.rates is not None:
            self.rates.update(state, self.rule, now_s)
        state.x[col.DIRTY] = state.x[col.ARRIVED] = 0

    def cycle(self, now_s: float) -> None:
        """`step` for a driver that has taken in the events itself and reads the tables."""
        self.decide(now_s)
        self.settle(now_s)

    def next_s(self) -> float:
        """When something is due by itself."""
        return float(next_own_time(self.state, self.rule))

    def transitions(self) -> tuple[Transition, ...]:
        """What was written down in this step, with exact GPUs, and terms that have changed; the log is emptied."""
        state = self.state
        found = []
        for kind, row, detail in state.log[: state.x[col.N_LOG]].tolist():
            change = CHANGES[kind]
            placed = change in (Change.START, Change.RESUME, Change.PROMISE, Change.RESIZE)
            places = places_of(state, row) if placed else ()
            stops = change in (Change.STOP, Change.SUSPEND)
            weighed = state.f[row, [col.GAIN, col.COST]].tolist() if stops else (np.nan, np.nan)
            found.append(Transition(change, row, places, self.agreed(row), detail, *weighed))
        state.x[col.N_LOG] = 0
        return (*found, *self._new_terms({item.row for item in found}))

    def agreed(self, row: int) -> Terms:
        """What was agreed with a job that has, or will have, GPUs."""
        f, i = self.state.f[row], self.state.i[row]
        share, cap, cut = float(f[col.SHARE]), float(f[col.CAP]), (int(i[col.SLICED]), int(i[col.COLUMN]))
        return Terms(int(i[col.LEVEL]), share, cap, int(i[col.TURN]), bool(i[col.OPPORTUNISTIC]), *cut)

    def _new_terms(self, told: set[int]) -> Iterator[Transition]:
        """Jobs that go on where they are, on other terms than before."""
        if not self.traits.shares:
            return
        terms = {row: self.agreed(row) for row in running_rows(self.state).tolist()}
        for row, agreed in terms.items():
            if row not in told and self._terms.get(row, ALONE) != agreed:
                yield Transition(Change.TERMS, row, (), agreed)
        self._terms = terms

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
        self._said, self._decided, self.lines = plan.why, view.rows, plan.lines
        self._chosen = _NOBODY if plan.pools is None else plan.pools.rows
        return plan

    def said(self) -> tuple[Why, Ints]:
        """The reasons of the last plan, and the rows that it was about."""
        return self._said, self._decided

    def say_also(self, said: Why, rows: Ints) -> None:
        """An earlier plan of the same moment answers for those whom the last one was not about."""
        last, earlier = self._said, np.setdiff1d(rows, self._decided)
        self._said = lambda row: said(row) if (earlier == row).any() else last(row)
        self._decided = np.concatenate([self._decided, earlier])

    def answers(self) -> Why:
        """Why jobs do not run, by the last plan; holds for as long as it is kept."""
        said, decided, chosen, next_s = self._said, self._decided, self._chosen, float(self.state.t[col.NEXT_CALL])
        guarded = nothing_said if self.guard is None else self.guard.answers(self.state)

        def why(row: int) -> str:
            if not (decided == row).any():
                later = f", or at {moment(next_s)}" if len(decided) and np.isfinite(next_s) else ""
                return f"nothing has been decided since it came; the policy is asked when something happens{later}"
            if (chosen == row).any():
                return "it is chosen, but the GPUs of its pool are not free together for it, and others have them"
            return "; ".join(text for text in (said(row), guarded(row)) if text)

        return why

    def _by_plan(self, now_s: float) -> None:
        state, before = self.state, self._capacity
        self._capacity = int(state.node[:, col.NODE_CAP].sum())
        if self._fixed and self.guard is None and not state.x[col.LAGS] and self._capacity == before:
            waiting, idle = state.x[[col.N_WAITING, col.IDLE]].tolist()
            next_s = cast(PlanPolicy, self.policy).next_look(now_s, waiting, idle)
            if next_s is not None:
                state.t[col.NEXT_CALL] = next_s
                self._decided = self.active_rows().copy() if waiting else self._decided  # its last word holds for them
                return
        if self.guard is None or not self.traits.shares:
            self.carry_out(self.view(now_s), now_s)
        else:
            decide_guarded(self, self.guard, now_s)

    def carry_out(self, view: View, now_s: float, plan: Plan | None = None) -> None:
        """Do what the policy plans for these jobs."""
        plan = self.plan(view) if plan is None else plan
        if plan.pools is None:
            carry_out_plan(self.state, self.rule, plan, view, self.name, now_s)
        else:
            pinned = pinned_gpus(self.state)
            self.state.quota[:, col.Q_LIMIT] -= pinned
            self._in_pools(plan.pools, now_s)
            self.state.quota[:, col.Q_LIMIT] += pinned
        t, x = self.state.t, self.state.x
        t[col.NEXT_CALL], t[col.GIVES_UNTIL], t[col.REPEATS_UNTIL] = plan.next_s, plan.idle_until_s, plan.same_until_s
        x[col.N_GIVEN], x[col.HANDLED_THEN] = 0, x[col.N_HANDLED]

    def _by_priority(self, now_s: float) -> None:
        view = self.view(now_s)
        priority = self._priorities(view)
        if self.state.x[col.N_PROMISED]:  # others were stopped for them
            priority = np.where(view.promised == 1, -np.inf, priority)
        order = np.argsort(priority, kind="stable")
        ordered = priority[order]
        rows = view.rows[order]
        if has_tiers(self.state):
            rows = view.rows[np.lexsort((view.rows, priority, -view.priority))]
        elif (ordered[1:] == ordered[:-1]).any():
            rows = view.rows[np.lexsort((view.rows, priority))]
        if self._fixed:
            self._rows[: len(rows)] = rows
        walk_order(self.state, rows, self.traits.preemptive, self.traits.strict)
        commit(self.state, self.rule, now_s)

    def _in_pools(self, wanted: Pools, now_s: float) -> None:
        """Check who runs in which pool, then let the places be found: hosts before guests, larger gangs first."""
        state, rows = self.state, np.asarray(wanted.rows, np.int64)
        if len(self._mark) < len(state.f):  # the tables have grown
            self._mark = np.zeros(len(state.f), np.int64)
        pools, hosts = np.asarray(wanted.pools, np.int64), np.array(wanted.hosts, np.int64)
        if state.x[col.LAGS]:  # it would have to leave for whom it shares with
            name_hosts(state, rows, pools, hosts)
        order = np.lexsort((rows, -state.i[rows, col.GPUS], hosts >= 0))
        pools, hosts = pools[order], hosts[order]
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
