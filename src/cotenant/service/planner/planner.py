"""Beliefs and the engine: what should run now, on which GPUs and on what terms, and why the others wait.

The planner keeps one engine whose tables follow the book. A step takes in what changed, lets the engine decide and says
its transitions in names of jobs, nodes and GPUs. Nobody decides after it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cotenant.backends.base import Capabilities, NodeInfo
from cotenant.beliefs.trying import Trying
from cotenant.core.decision import Decision
from cotenant.core.errors import InputError
from cotenant.core.jit_later import LATER
from cotenant.core.reasons import Reason
from cotenant.policies import make_policy
from cotenant.service.accounts.numbers import TenantNumbers
from cotenant.service.accounts.past import PastUse
from cotenant.service.executor.ladder import may_suspend
from cotenant.service.facade import WhatIfWatch
from cotenant.service.forecasts.foretold import Foretold
from cotenant.service.observer.node_access import NodeAccess
from cotenant.service.observer.reports import Reports
from cotenant.service.options import Options
from cotenant.service.planner.acts import acts_of, lines_of, waiting_line
from cotenant.service.planner.ahead import AheadStarts
from cotenant.service.planner.decision import Act, LiveDecision
from cotenant.service.planner.forecast import Patience, forecast
from cotenant.service.planner.memory import told
from cotenant.service.planner.pairs import Kept, UseOf
from cotenant.service.planner.scene import ForecastScene, copy_scene, fill, is_copyable, take_over
from cotenant.service.planner.services import LiveServices
from cotenant.service.planner.session import Session
from cotenant.service.planner.tenant_tables import TenantTables, copied
from cotenant.service.planner.what_if import NOTHING_ELSE, Supposed
from cotenant.service.store.book import Book
from cotenant.service.store.job import Gpus, LiveJob
from cotenant.service.store.store import Store

_SOON_S = 0.5  # within which the scheduler has looked at what has just happened


class Planner:
    """One policy on one cluster; another policy or another cluster begins a new session."""

    def __init__(
        self, store: Store, nodes: Callable[[], Sequence[NodeInfo]], reports: Reports,
        capabilities: Callable[[], Capabilities], options: Options, counters: dict[str, float], openings: NodeAccess,
        use_of: UseOf = lambda job, alone: None,
    ) -> None:  # fmt: skip
        self._store, self._nodes, self._reports, self._options = store, nodes, reports, options
        self._capabilities, self._counters, self._openings = capabilities, counters, openings
        self._able: Capabilities | None = None  # as the backend said at the last step
        self._use_of, self._past = use_of, PastUse(store)
        self._standing: TenantTables | None = None  # after the last decision; replaced as a whole
        self._lock = threading.RLock()  # one step or one answer at a time
        self._session: Session | None = None
        self._remembered: dict[str, Any] = dict(store.book.memory)
        wanted = options.prefetch_starts and bool(reports.addresses) and capabilities().exact_gpus
        apart = capabilities().isolation != "none"
        self._services = LiveServices(store, reports)
        self._ahead = AheadStarts(store, nodes, wanted, apart)

    @property
    def live(self) -> Session | None:
        """The session at work, once there was a decision."""
        return self._session

    # -- deciding ------------------------------------------------------------------------------------------------

    def step(self, now_s: float) -> LiveDecision:
        """Take in what happened since the last step and decide. Called by the scheduler's thread only."""
        with self._lock:
            began = time.perf_counter()
            if self._session is not None and self._session.busy:  # the answer to an earlier question comes first
                return self._live(self._session, self._session.finish_decision(), now_s, ())
            LATER.switch()
            self._past.catch_up()
            with self._store.lock:
                session, changed = self._current(now_s), self._store.changes()
                events = session.take_in(changed, self._openings.shut(now_s), now_s, *session.news())
                events += self._services.look(session, now_s)
                again = [*session.unheard(), *session.partings(), *session.pairs.standstills()]
                again += self._services.surplus(session)
                notes = (*session.pairs.notes(), *self._services.scale(session, now_s))
            decision = session.decide(events, now_s)
            if decision is not None:
                self._standing = copied(session.tables, now_s)
            if decision is not None and decision.asked:
                self._counters["decisions"] += 1
                self._counters["decision_s"] = time.perf_counter() - began
            return replace(self._live(session, decision, now_s, again), notes=notes)

    def _live(self, session: Session, decision: Decision | None, now_s: float, again: Sequence[Act]) -> LiveDecision:
        """A decision in names; none where the policy still thinks, or is no longer the live one."""
        self._counters["decision_timeouts"] += session.late
        if decision is None:
            return LiveDecision(now_s, session.policy_name, tuple(again), promised=self._store.book.promises)
        if session.policy_name != self._store.book.policy:
            self._session = None
            return LiveDecision(now_s, session.policy_name, tuple(again))
        acts = (*again, *self._acts(session, decision))
        return LiveDecision(
            now_s, session.policy_name, acts, decision.next_s, session.promised(),
            self._memory(session, decision.asked), ahead=self._ahead.choose(session, now_s), lines=lines_of(session),
            told=told(session.policy, session.policy_name, session.follower.job_at) if decision.asked else {},
        )  # fmt: skip

    def begin_anew(self) -> None:
        """As after a restart: a new session, and what the journal remembers."""
        with self._lock, self._store.lock:
            self._session, self._remembered = None, dict(self._store.book.memory)

    def check(self, policy: str) -> None:
        """Raise an `InputError` unless there is such a policy, and it can be carried out here."""
        traits = make_policy(policy).traits
        if (traits.shares or traits.takes_turns) and not self._capabilities().exact_gpus:
            raise InputError(
                f"policy '{policy}' lets jobs share GPUs, and this backend does not give jobs exact GPUs: take a policy"
                " that does not share (`cotenant policies`), or a backend or mode with exact GPUs"
            )

    def _current(self, now_s: float) -> Session:
        nodes, book, self._able = list(self._nodes()), self._store.book, self._capabilities()
        if self._session is None or not self._session.fits(book.policy, nodes):
            kept = self._session.kept if self._session is not None else None
            self._session = self.session(book.policy, nodes, now_s, kept)
            self._session.kept.trying = self._session.kept.trying or Trying(self._able.share)
            self._store.changes()
            book.touched.update(book.active)
        return self._session

    def session(
        self, policy: str, nodes: Sequence[NodeInfo], now_s: float, kept: Any = None, book: Book | None = None
    ) -> Session:
        """An engine of its own for a policy, with nothing in its tables yet."""
        return Session(
            policy, nodes, book or self._store.book, self._reports, self._options, self._may_suspend, now_s, kept,
            openings=self._openings, use_of=self._use_of, past_of=self._past.of,
        )  # fmt: skip

    def _may_suspend(self, job: LiveJob) -> bool:
        book = self._store.book  # how many may be suspended at a time is for the engine to count, but for none at all
        most = len(book.active) + 1 if self._options.max_suspended else 0
        return may_suspend(job, book, self._nodes(), self._able or self._capabilities(), most)

    def _acts(self, session: Session, decision: Decision) -> list[Act]:
        return acts_of(session, decision)

    def _memory(self, session: Session, asked: bool) -> dict[str, Any]:
        """What must survive a crash, as far as it has changed."""
        now = session.remembers(asked)
        changed = {key: value for key, value in now.items() if self._remembered.get(key) != value}
        changed |= dict.fromkeys(self._remembered.keys() - now.keys())
        self._remembered = now
        return changed

    def mind(self) -> tuple[Mapping[str, Gpus], Mapping[str, Any]] | None:
        """What jobs are promised and what was measured, as the engine has it; None while a decision is in the making.

        After a look the book says the same.
        """
        with self._lock:
            session = self._session
            return None if session is None or session.busy else (session.promised(), session.remembers(False))

    # -- answering -----------------------------------------------------------------------------------------------

    def why(self, job: str, now_s: float) -> Reason | None:
        """Why a job that could start does not, from the decision itself."""
        with self._lock:
            return self._session.why(job, now_s) if self._session is not None else None

    def line(self, now_s: float) -> list[str]:
        """Who waits, in the order in which the policy looks at them; nobody under a plan, which has no order."""
        with self._lock:
            return waiting_line(self._session, now_s)

    def standing(self) -> Mapping[str, TenantNumbers]:
        """How tenants stand since the last decision, where there is a tree of them."""
        return {} if (seen := self._standing) is None else seen.numbers()

    def forecast(
        self, policies: Sequence[str], watch: WhatIfWatch, supposed: Supposed = NOTHING_ELSE
    ) -> Mapping[str, Mapping[str, Foretold | None]]:
        """When each job is expected to finish under each policy, if nobody else arrives.

        In the caller's thread and without the planner's lock: the scheduler goes on meanwhile.
        """
        found = {}
        for policy in policies:
            scene = self.scene(policy) if supposed is NOTHING_ELSE else self._supposed(policy, supposed)
            watch.policy, watch.done, watch.jobs = policy, 0, len(scene.jobs)
            patience = Patience(watch.budget_s, watch.budget_s / 10, watch.hear)
            found[policy], whole = forecast(scene, patience)
            watch.answers[policy] = patience.answers
            if not whole:
                watch.partial.append(policy)
        return found

    def _supposed(self, policy: str, supposed: Supposed) -> ForecastScene:
        """What is to be played where something is supposed to be otherwise: laid out anew."""
        self._store.view()
        with self._lock:
            kept = None if self._session is None or self._session.busy else self._session.kept.apart()
        return self._laid_out(policy, [*self._nodes(), *supposed.nodes], kept, self._store.clock(), supposed)

    def scene(self, policy: str = "") -> ForecastScene:
        """What is to be played forward under a policy; without a name under the live one.

        Of the live policy it is a copy of its tables, if these know of everything, and that takes milliseconds.
        """
        self._store.view()  # little is new when it is asked for again with the lock held
        nodes, until_s = list(self._nodes()), time.monotonic() + (0.0 if self._options.inline else _SOON_S)
        types = {node.name: node.gpu_type for node in nodes}
        while True:
            now_s = self._store.clock()
            with self._lock:
                session, known = self._session, self._session is not None and not self._session.busy
                with self._store.lock:
                    view = self._store.view()
                    asked = policy or view.policy
                    same = session is not None and session.fits(asked, nodes)
                    whole = session is not None and same and is_copyable(session, self._store.book)
                made = copy_scene(session, now_s) if session is not None and whole else None
                kept = session.kept.apart() if session is not None and known and not same else None
            if session is not None and made is not None:
                return fill(made, view, session.follower.beliefs, types)
            if not same or time.monotonic() > until_s:
                return self._laid_out(asked, nodes, kept, now_s)
            time.sleep(0.02)  # the scheduler is about to look at what has just happened

    def _laid_out(
        self, policy: str, nodes: Sequence[NodeInfo], kept: Kept | None, now_s: float, supposed: Supposed = NOTHING_ELSE
    ) -> ForecastScene:
        """What is to be played forward under a policy that is not at work, from the book."""
        with self._store.lock:
            book, view = supposed.applied(self._store.book, self._store.view())
            fresh = self.session(policy, nodes, now_s, kept, book)
            events = fresh.take_in(set(book.active), self._openings.shut(now_s), now_s)
        fresh.begin_forecast(events, now_s)
        with self._lock:
            if self._session is not None and not self._session.busy:
                take_over(fresh, self._session, now_s)
        types = {node.name: node.gpu_type for node in nodes}
        return fill(copy_scene(fresh, now_s), view, fresh.follower.beliefs, types)
