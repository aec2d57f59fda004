"""From transitions to the backend: intents are journaled, acts happen outside any lock.

Order of every change: write the intent, take it into the book, act, write what came of it. Acts may be repeated, and
what is still to do stands in the book: jobs on the rungs `suspend` and `continue`, jobs that are stopping. Launches
that were journaled and not done are undone by the observer after a restart. The executor chooses neither jobs nor
GPUs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf

from cotenant.backends.base import Backend, NodeInfo
from cotenant.core.lifecycle import JobState
from cotenant.journal import Entry
from cotenant.service.executor import ahead
from cotenant.service.executor.errands import AHEAD, LAUNCH, LIMITS, Acts, Errand, Errands
from cotenant.service.executor.evictions import Evictions
from cotenant.service.executor.host_limits import HostLimits
from cotenant.service.executor.ladder import falls_still, may_suspend, next_rung, why_stop
from cotenant.service.executor.stop_times import StopTimes
from cotenant.service.executor.terms import AgreedTerms
from cotenant.service.observer.reports import Reports
from cotenant.service.observer.sight import has_gpus
from cotenant.service.options import Options
from cotenant.service.planner.decision import Act, LiveDecision
from cotenant.service.store.job import ASK, KILL, STOP, SUSPEND, LiveJob
from cotenant.service.store.store import Store

_ORDER = ("stop", "suspend", "end", "resume", "start", "terms", "pause")


class Executor:
    """Carries decisions out. `due_s` is when `press` has something to do next, if nothing happens before.

    `inline`: acts are done within `perform`, in order; for virtual time. Else worker threads do them.
    """

    def __init__(
        self, store: Store, backend: Backend, reports: Reports, options: Options, inline: bool,
        counters: dict[str, float], nodes: Callable[[], Sequence[NodeInfo]],
    ) -> None:  # fmt: skip
        self._store, self._reports = store, reports
        self._options, self._clock = options, options.clock
        self._counters, self._nodes = counters, nodes
        self._capabilities = backend.capabilities  # nodes that come later may be the first to say
        self.limits = HostLimits(options, reports, lambda: self._capabilities().cpu_quota)
        alive = [*store.book.on_gpus.values(), *store.book.suspended.values()]
        self.terms = AgreedTerms(reports, alive, options.deals_out_hosts)
        self._acts = Acts(store, backend, reports, options, self.limits, self.terms, counters)
        self._errands = Errands(self._acts.do, backend.wake, inline)
        for name in store.book.ahead:
            reports.holding.hold(name)
        self._stop_times = StopTimes()
        self.due_s = inf

    @property
    def in_flight(self) -> frozenset[str]:
        """Attempts to which something is being done, or is to be done."""
        return self._errands.keys

    def close(self) -> None:
        """Let what is under way come to its end."""
        self._errands.close()

    # -- carrying out ------------------------------------------------------------------------------------------

    def carry_out(self, decision: LiveDecision) -> tuple[Act, ...]:
        """Journal all intents in one append and queue the acts; those that came too late are handed back."""
        with self._store.lock:
            book, late = self._store.book, []
            self.terms.lines = self.terms.lines if decision.lines is None else decision.lines
            intents: list[Entry] = []
            going: list[LiveJob] = []
            ending = {act.job for act in decision.acts if act.kind in ("end", "resume")}
            todo: list[Act] = []
            for act in sorted(decision.acts, key=lambda act: _ORDER.index(act.kind)):
                if (job := self._subject(act)) is None:
                    late.append(act)
                    continue
                todo.append(act)
                intents += self._intents(act, job, going, ending)
            intents += self._promises(decision, {act.job for act in todo if act.kind in ("resume", "start")})
            starts = ahead.intents(book, decision, {act.job for act in todo if act.kind == "start"})
            intents += [
                *starts,
                *self._memory(decision),
                *self._told(decision),
                *(note for note in decision.notes if note.job in book.active),
            ]
            if intents:
                self._store.write(intents)
            self._begin([(act, book.active[act.job]) for act in todo if act.job in book.active])
            self._start_ahead(starts)
            book.touched.update(act.job for act in late)  # the planner, which counts on them, looks again
            return tuple(late)

    def _subject(self, act: Act) -> LiveJob | None:
        """The job of an act, if it can still be done: people may have held or cancelled it meanwhile."""
        book = self._store.book
        if act.kind in ("stop", "suspend", "pause"):
            job = book.on_gpus.get(act.job)
        elif act.kind in ("end", "resume"):
            job = book.suspended.get(act.job)
        else:
            job = book.active.get(act.job)
        if job is None or act.kind == "terms":
            return job
        wrong = act.kind == "start" and (job.state != JobState.PENDING or not ahead.fits(job, act))
        wrong = wrong or (act.kind == "start" and not act.gpus)  # the same decision has taken them away again
        return None if job.stop_why or wrong or (job.held and act.kind in ("start", "resume")) else job

    def _intents(self, act: Act, job: LiveJob, going: list[LiveJob], ending: Collection[str]) -> list[Entry]:
        """What to journal for an act; `going` collects those who are to be suspended by the same decision."""
        if act.kind == "start":
            level = {"level": act.terms.level} if act.terms.level else {}
            cut = {"slice": act.terms.cut} if act.terms.sliced else {}
            return [Entry("launch", job.id, {"gpus": act.gpus, **level, **cut})]
        if act.kind == "resume":
            return [Entry("continue", job.id)]
        if act.kind == "terms":
            same = not job.attempts or job.last.slice == act.terms.cut
            return [] if same else [Entry("slice", job.id, {"slice": act.terms.cut})]
        if act.kind == "pause":  # for people to read: it goes on by itself, whatever happens to the service
            return [Entry("pause", job.id, {"seconds": act.seconds, "beside": act.why})]
        why = "move" if act.kind == "end" else act.why or "preempt"
        entries = [Entry("stop", job.id, {"why": why, **act.weighed})]
        if act.kind == "suspend" and self._may_suspend(job, going, ending):
            going.append(job)
            entries.append(Entry("rung", job.id, {"rung": ASK if job.last.started_s is None else SUSPEND}))
        return entries

    def _promises(self, decision: LiveDecision, starts: set[str]) -> list[Entry]:
        """Promises that are new or no more; those who start have what they were promised."""
        before = self._store.book.promises
        new = [(job, gpus) for job, gpus in decision.promised.items() if before.get(job) != gpus]
        return [
            *(Entry("promise", job, {"gpus": gpus}) for job, gpus in new if job not in starts),
            *(Entry("promise", job, {"gpus": None}) for job in before if job not in {*decision.promised, *starts}),
        ]

    def _memory(self, decision: LiveDecision) -> list[Entry]:
        before = self._store.book.memory
        plain = {key: json.loads(json.dumps(value)) for key, value in decision.remembered.items()}
        return [Entry("memory", data={"key": key, "value": to}) for key, to in plain.items() if before.get(key) != to]

    def _told(self, decision: LiveDecision) -> list[Entry]:
        """Answers to deadlines that are new: with the policy's memory in one append, so that neither is without the
        other."""
        active = self._store.book.active
        new = [(name, answer) for name, answer in decision.told.items() if name in active]
        return [Entry("deadline", name, dict(answer)) for name, answer in new if active[name].deadline_answer != answer]

    def _begin(self, acts: Sequence[tuple[Act, LiveJob]]) -> None:
        """The intents are journaled: ask whom to ask, queue the rest. Suspending is queued by what the book says."""
        for act, job in acts:
            if act.kind in ("stop", "suspend"):
                self._asked(job, act.why or "preempt")
            elif act.kind == "end":
                self._errands.put(Errand(job.id, job.key, KILL))
            elif act.kind in ("start", "resume", "terms"):
                self.terms.agree(job, act.terms, act.need_gib)
            elif act.kind == "pause":
                self._reports.stand_still(job.id, act.seconds)
        self._press(job for act, job in acts if act.kind in ("stop", "suspend"))
        starts = [(act, job) for act, job in acts if act.kind == "start"]
        if starts:
            self.limits.deal(self._store.book.on_gpus, self._nodes())
        for act, job in starts:
            if job.last.ahead_s:
                self._acts.go(job.id)
            else:
                self._errands.put(Errand(job.id, job.key, LAUNCH, act.need_gib))

    def _start_ahead(self, entries: Iterable[Entry]) -> None:
        """It is journaled who is started ahead of its GPUs, and whose process waits in vain."""
        for entry in entries:
            job = self._store.book.active[entry.job]
            if entry.kind == "ahead":
                self._reports.holding.hold(job.id)
            verb, what = (AHEAD, entry.data["place"]) if entry.kind == "ahead" else (KILL, None)
            self._errands.put(Errand(job.id, job.key, verb, what))

    # -- the ladder --------------------------------------------------------------------------------------------

    def press(self) -> None:
        """Time limits, holds and other sizes that people ask for; then up the ladder with whoever is to stop."""
        with self._store.lock:
            try:
                self._press_all()
            except BaseException:
                self._stop_times.begin_anew()
                raise

    def _press_all(self) -> None:
        """With the lock held."""
        book, now_s = self._store.book, self._clock()
        out, stops = Evictions(book, self._nodes(), now_s), list[Entry]()
        going: list[LiveJob] = []
        changed = self._stop_times.due(book, now_s)
        for job in list(book.on_gpus.values()) if out.anybody else changed:
            why, due_s = why_stop(job, now_s)
            self._stop_times.note(job.id, due_s)
            stop = {"why": why} if why else out.of(job) if out.anybody else {}
            if stop:
                stops.append(Entry("stop", job.id, stop))
            if why == "hold" and not self._reports.can_save(job.id) and self._may_suspend(job, going):
                going.append(job)
                stops.append(Entry("rung", job.id, {"rung": ASK if job.last.started_s is None else SUSPEND}))
        still = book.suspended.values() if out.anybody else ()
        stops += [Entry("stop", job.id, stop) for job in still if (stop := out.of(job))]
        if stops:
            self._store.write(stops)
            for entry in stops:
                if entry.kind == "stop" and entry.job in book.on_gpus:
                    self._asked(book.on_gpus[entry.job], entry.data["why"])
        self.due_s = self._stop_times.next_s()
        if book.stopping:
            self._press([job for job in book.on_gpus.values() if job.state == JobState.STOPPING])
        told = self._acts.told  # others add to it meanwhile
        told.difference_update([key for key in tuple(told) if not has_gpus(book, key)])
        for job in (*book.suspended.values(), *book.ahead.values()):
            if job.stop_why:  # it may not run to hear SIGTERM: its GPUs belong to others; or it has done nothing yet
                self._errands.put(Errand(job.id, job.key, KILL))

    def _asked(self, job: LiveJob, why: str) -> None:
        """It is journaled that a job is to stop: let it save, unless it stands still soon."""
        self._counters["preemptions"] += why in ("preempt", "move", "split")
        self._counters["moves"] += why == "move"
        if job.rung != SUSPEND and not (why == "turn" and job.rung == ASK):
            self._reports.ask_to_stop(job.id, self._options.grace_s)

    def _press(self, stopping: Iterable[LiveJob]) -> None:
        """The next rung for each, where it is time for it; the lock is held."""
        now_s, grace_s = self._clock(), self._options.grace_s
        rungs: list[Entry] = []
        going: list[LiveJob] = []
        for job in stopping:
            suspendable = falls_still(job, self._reports.can_save(job.id)) and self._may_suspend(job, going)
            step = next_rung(job, now_s, grace_s, self._reports.listens(job.id), suspendable)
            self.due_s = min(self.due_s, step.due_s)
            if step.verb == SUSPEND:
                going.append(job)
                rungs.append(Entry("rung", job.id, {"rung": SUSPEND}))
            elif step.verb == KILL or (step.verb == STOP and job.key not in self._acts.told):
                self._errands.put(Errand(job.id, job.key, step.verb))
        if rungs:
            self._store.write(rungs)

    def _may_suspend(self, job: LiveJob, going: Sequence[LiveJob], ending: Collection[str] = ()) -> bool:
        most = self._options.max_suspended
        return may_suspend(job, self._store.book, self._nodes(), self._capabilities(), most, going, ending)

    def stop_all(self) -> None:
        """Whoever has GPUs, or stands still on some, is to leave."""
        with self._store.lock:
            book = self._store.book
            going = [job for job in book.alive() if not job.stop_why]
            if going:
                self._store.write([Entry("stop", job.id, {"why": "shutdown"}) for job in going])
            for job in going:
                self._asked(job, "shutdown")

    def insist(self, asked: Mapping[str, float]) -> None:
        """End jobs whose cancellation could not be journaled: SIGTERM, and SIGKILL after the grace period."""
        with self._store.lock:
            book, now_s = self._store.book, self._clock()
            for name, since_s in asked.items():
                job = book.living(name)
                if job is None:
                    continue
                if name not in book.on_gpus or now_s > since_s + self._options.grace_s:
                    self._errands.put(Errand(job.id, job.key, KILL))
                elif job.key not in self._acts.told:
                    self._errands.put(Errand(job.id, job.key, STOP))
        self._errands.run()

    # -- acting ------------------------------------------------------------------------------------------------

    def perform(self) -> bool:
        """Do what is to be done, or have it done; whether it is worth while to look again at once."""
        with self._store.lock:
            book = self._store.book
            for job in book.turning.values():
                self._errands.put(Errand(job.id, job.key, job.rung))
            self.terms.give_back(book.on_gpus, book.shares)
            self.terms.tell(book.on_gpus, book.suspended)
            self.limits.deal(book.on_gpus, self._nodes())
            for job, given in self.limits.to_change(book.on_gpus):
                self._errands.put(Errand(job.id, job.key, LIMITS, given))
        return self._errands.run()
