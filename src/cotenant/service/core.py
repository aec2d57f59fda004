"""The service: its parts, composed, and one look after the other.

    store      journal and book behind one lock
    observer   what really runs, how it ended, what is left of it
    planner    what should run, on which GPUs, on what terms
    forecasts  when jobs will end, made beside all this and kept for whoever asks
    executor   carries that out
    desk       what people ask for: jobs;  admin: nodes, policy, tokens;  tenants: who shares all this;  accounts: who
               has used what

Order of every change: write the intent to the journal, take it into the book, act. After a crash the book is
rebuilt and compared with what the backend really runs before anything is decided; launches carry a key, so
doing one again is harmless.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

from cotenant.backends.base import Backend
from cotenant.journal import Entry, Journal, JournalError
from cotenant.service.accounts.desk import Accounts
from cotenant.service.accounts.share import ShareBoard
from cotenant.service.desk.admin import Admin
from cotenant.service.desk.desk import Desk
from cotenant.service.desk.foreign import ForeignJobs
from cotenant.service.desk.machines import Machines
from cotenant.service.desk.submitting import Rules, Submissions
from cotenant.service.desk.tenants import LiveTenants
from cotenant.service.executor.executor import Executor
from cotenant.service.facade import Caller, Role, Unavailable
from cotenant.service.forecasts.background import Forecasts, InPlace
from cotenant.service.forecasts.worker import Worker
from cotenant.service.notify.notifier import Notifier
from cotenant.service.observer.node_access import NodeAccess
from cotenant.service.observer.observer import Observer
from cotenant.service.observer.reports import Reports
from cotenant.service.observer.usage import Usage
from cotenant.service.options import Options
from cotenant.service.pictures.desk import PictureBoard
from cotenant.service.pictures.trial import Trials
from cotenant.service.planner.decision import LiveDecision
from cotenant.service.planner.interface import PlannerPart
from cotenant.service.power import LivePower
from cotenant.service.retention import Retention
from cotenant.service.store.store import Store

_log = logging.getLogger(__name__)
LONGEST_S = 1.0  # between two looks
_STOPPING_S = 0.2  # while somebody is about to leave: what his runtime says does not wake the scheduler
COUNTERS = ("decisions", "decision_timeouts", "preemptions", "lost_work_s", "decision_s", "suspensions", "moves")


class CoreService:
    """Builds the parts and has them work: `reconcile` once, then `tick` by one thread, then `close`.

    Options are given as an object, or one by one; `planner` makes one of the service with its other parts.
    """

    def __init__(
        self, journal: Journal, backend: Backend, options: Options | None = None, *,
        planner: Callable[[CoreService], PlannerPart] | None = None, **given: Any,
    ) -> None:  # fmt: skip
        self.options = options = options or Options(**given)
        self.backend, self.counters = backend, dict.fromkeys(COUNTERS, 0.0)
        self.store = Store(journal, options.clock, options.hook, options.home / "owed", options.steady)
        self.reports = Reports(options.home, backend.listen_at(), options.clock)
        self.usage = Usage(backend)
        self.retention = Retention(self.store, backend, self.reports, options.keep)
        self.observer = Observer(
            self.store, backend, self.reports, options, self.counters, lambda: self.executor.in_flight
        )
        self.executor = Executor(
            self.store, backend, self.reports, options, options.inline, self.counters, lambda: self.observer.nodes
        )
        self.notifier = Notifier(options.notify)
        self.store.heard = self.notifier.heard
        hosts = not options.deals_out_hosts
        self.power = LivePower(options.power, self.store, backend, lambda: self.observer.nodes, hosts)
        self.openings = NodeAccess(self.store, lambda: self.observer.nodes, hosts)
        rules = Rules(hosts, options.max_priority, options.notify, options.most_unfinished)
        self.planner = planner(self) if planner is not None else _planner(self)
        machines = Machines(self.observer, backend)
        playing = (InPlace(), options.clock) if options.inline else (Worker(), time.monotonic)
        self.forecasts = Forecasts(self.store, self.planner, self.reports.of, options.forecast_every_s, *playing)
        board = ShareBoard(self.store, machines.nodes, self.planner.standing, options.grace_s)
        told = machines, self.reports.of, self.forecasts, rules, self.usage, board
        self.desk = Desk(self.store, self.planner, *told, lambda job: self.reports.told(job).gpu_mem_gib)
        self.foreign = ForeignJobs(self.store, backend, self.desk)
        self.tenants = LiveTenants(self.store, machines)
        self.accounts = Accounts(self.store, board)
        self._winds_down = False
        self._on_over: Callable[[], object] = lambda: None
        self.at_close = ExitStack()  # what else is to be given back in the end
        self.admin = Admin(
            self.store, self.planner, machines, options.home, self.counters, lambda: self.observer.ready,
            self.shut_down, self.usage, board,
        )  # fmt: skip
        trials = Trials(self.store, self.planner, machines, self.forecasts)
        check = Submissions(self.store, machines, rules).check
        self.pictures = PictureBoard(
            self.store, self.planner, machines, self.counters, self.admin.trouble, trials, check
        )  # fmt: skip
        if options.policy:
            self.planner.check(options.policy)

    def reconcile(self) -> None:
        """Compare the book with what really runs. To be done before the first look."""
        self.observer.reconcile()
        self._watch_clock()
        if self.options.policy and self.options.policy != self.store.book.policy:
            self.store.write([Entry("policy", data={"policy": self.options.policy})])
        self._take_cluster()

    def _take_cluster(self) -> None:
        """The tenants of the cluster file, for the first time; from then on those of the journal hold."""
        cluster, book = self.options.cluster, self.store.book.tenants
        if cluster is None or cluster.tenants is None:
            return
        if book.tree is None:
            done, wrong = self.tenants.take(Caller("serve", Role.ADMIN), cluster.tenants, cluster.groups)
            for line in wrong:
                _log.warning("%s: %s", cluster.spec, line)
            _log.info("%s: %s", cluster.spec, done)
        elif book.tree != cluster.tenants:
            take = "`cotenant tenants set --file` takes those of the file"
            _log.warning("%s: this home has tenants of its own, and they stay; %s", cluster.spec, take)

    def _watch_clock(self) -> None:
        if by_s := self.store.watch_clock():
            self.reports.shift(by_s)
            self.planner.begin_anew()

    def tick(self) -> float:
        """One look; seconds after which to look again at the latest.

        While the journal cannot be written nothing is decided and this raises; what happens meanwhile is seen later.
        """
        try:
            self._watch_clock()
            self.store.pay()
            return self._look_and_act()
        except (Unavailable, JournalError):
            self.planner.begin_anew()
            self.executor.insist(self.store.owed)
            raise

    def _look_and_act(self) -> float:
        """Observe, press, decide, act. No backend is called and nothing is decided with the lock held."""
        self.observer.look()
        self.foreign.look()
        if self.options.inline:
            self.usage.sample()
        self.store.check_writable()
        if self._winds_down:
            return self._wind_down()
        self.openings.look(self.options.clock())
        self.executor.press()
        now_s = self.options.clock()
        try:
            decision = self.planner.step(now_s)
        except Exception:
            self.executor.perform()  # whoever is to stop must not wait for a planner that cannot decide
            raise
        late = self.executor.carry_out(decision)
        changed = self.executor.perform()
        starts = tuple(act for act in late if act.kind == "start")
        if starts:  # where leaving takes no time, a job that moves has left by now
            self.observer.look()
            self.executor.carry_out(replace(decision, acts=starts, ahead=None))
            changed |= self.executor.perform()
        self.power.look(self.options.clock())
        self.admin.save_uses()
        if self.options.inline and self.options.forecast_every_s:
            self.forecasts.look()
        self.store.snapshot_if_due()
        self.retention.retire_if_due()
        return 0.0 if changed else self._wait_s(decision, now_s)

    def _wait_s(self, decision: LiveDecision, now_s: float) -> float:
        """A time that was over when the planner was asked is done with."""
        dues_s = (
            self.executor.due_s,
            self.power.due_s,
            decision.next_s if decision.next_s > now_s else now_s + LONGEST_S,
        )
        wait_s = min(LONGEST_S, *(max(due_s - self.options.clock(), 0.0) for due_s in dues_s))
        if self.options.inline:
            return wait_s
        with self.store.lock:
            stopping = bool(self.store.book.stopping)
        return min(wait_s, _STOPPING_S) if stopping else wait_s

    # -- the end ---------------------------------------------------------------------------------------------------

    def shut_down(self, jobs: str) -> None:
        """End the service: at once, or (`stop`) after its jobs have saved and left; they wait for the next start."""
        self._winds_down = jobs == "stop"
        if not self._winds_down:
            self._on_over()
        self.backend.wake()

    def on_over(self, call: Callable[[], object]) -> None:
        """Whom to tell that the service is to end now."""
        self._on_over = call

    def _wind_down(self) -> float:
        """Instead of deciding: everybody leaves, nobody starts."""
        self.executor.stop_all()
        self.executor.press()
        self.executor.perform()
        with self.store.lock:
            book = self.store.book
            if not (book.on_gpus or book.suspended or book.ahead):
                self._on_over()
        return _STOPPING_S

    def close(self) -> None:
        """Let what is under way come to its end, and leave a short replay. Jobs go on."""
        self.forecasts.close()
        self.executor.close()
        self.notifier.close()
        with suppress(JournalError):  # the next start replays more
            self.store.snapshot()
        self.store.journal.close()
        self.backend.close()
        self.at_close.close()


def _planner(core: CoreService) -> PlannerPart:
    from cotenant.service.planner.planner import Planner

    nodes, capabilities = (lambda: core.observer.nodes), core.backend.capabilities
    told = core.options, core.counters, core.openings, core.usage.of
    return Planner(core.store, nodes, core.reports, capabilities, *told)
