"""Which jobs should run: let the policy decide on what was gathered, within its time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from cotenant.backends.base import Backend
from cotenant.core.lifecycle import JobState
from cotenant.journal import Entry, Journal
from cotenant.policies import Context
from cotenant.service.options import Options
from cotenant.service.planner.budget import Budget
from cotenant.service.planner.gathering import Gatherer
from cotenant.service.planner.live import Tables, Verdict
from cotenant.service.planner.memory import Memory
from cotenant.service.planner.sharing import can_share, guests_of
from cotenant.service.store.job import LiveJob

_PAST = {JobState.FAILED: "failed", JobState.CANCELLED: "been cancelled"}


class Decider(Gatherer):
    """Asks the policy when there is something to ask, and keeps its last answer."""

    def __init__(self, journal: Journal, backend: Backend, options: Options) -> None:
        super().__init__(journal, backend, options)
        self._budget = Budget(options.budget_s)
        self._plan = Verdict()

    def _recalled(self) -> Memory:
        """The policy with what it remembers; a fresh one when another was set, or other GPU types are there."""
        types = tuple(dict.fromkeys(node.gpu_type for node in self.backend.nodes()))
        if self._memory is None or (self._memory.name, self._memory.types) != (self.book.policy, types):
            self._memory = Memory(self.book.policy, types, Context(round_s=self.round_s))
            self._promised, self._beside, self._plan = {}, {}, Verdict()
            self._places, self._terms, self._need_gib, self._forgiven_s = {}, {}, {}, {}
        return self._memory

    def _question(self) -> Callable[[], Tables] | None:
        """What to ask the policy now, if anything; with the lock held.

        Orders are asked while somebody waits. A policy that chooses is asked when its time has come, and whenever
        anything has happened.
        """
        memory = self._recalled()
        if not (memory.shares and can_share(self.backend.nodes())):
            self._part()
        else:
            self._watch_pairs(memory)
        if not memory.names_gpus:
            self._part_partial()
        if not memory.chooses:
            return self._gathered(memory=memory) if self._anything_to_decide() else None
        self._promised = {
            job_id: slices
            for job_id, slices in self._promised.items()
            if (job := self.book.active.get(job_id)) is not None
            and (self._startable(job) or self._comes_back(job))
            and self._right_size(job, slices)
        }
        if memory.takes_turns:
            self._promise_turns()
        asked = self.book.seq == self._plan.seq and self.clock() < self._plan.next_s
        return None if asked else self._gathered(memory=memory)

    def _promise_turns(self) -> None:
        """Suspended jobs of which the policy does not know have a turn on their GPUs: elsewhere they would begin anew.

        It does not after a restart of the service, when it was not the policy before, and when they were held.
        """
        for job in self.book.suspended.values():
            if job.id not in self._promised and self._startable(job):
                self._places[job.id] = job.last.gpus
                self._promised[job.id] = tuple((node, len(indexes)) for node, indexes in job.last.gpus)

    def _last_plan(self) -> Verdict:
        """What of the last plan was promised and is still to come."""
        return Verdict(list(self._promised.items()))

    def _watch_pairs(self, memory: Memory) -> None:
        """Note which pairs do not pay; the policy hears of it with the next question, which this is a reason for.

        A policy that never stops what it has started would leave such a pair together: here the younger one leaves.
        """
        running = [job for job in self.book.on_gpus.values() if job.state == JobState.RUNNING]
        paced = {job for job, terms in self._terms.items() if terms.share < 1}
        for split in self._pairing.look(running, self.reports.of, self._types, paced):
            self.write([
                Entry("split", job, {"beside": other, "worth": round(split.worth, 3)})
                for job, other in ((split.one, split.two), (split.two, split.one))
            ])  # fmt: skip
            if memory.names_gpus and not memory.undoes:
                pair = [self.book.on_gpus[job] for job in (split.one, split.two)]
                self._leave(max(pair, key=lambda job: (job.last.launched_s, job.order)))

    def _leave(self, job: LiveJob) -> None:
        """A job gives its GPUs back and waits again; it is promised nothing."""
        self._promised.pop(job.id, None)
        self._places.pop(job.id, None)
        self._ask_to_stop(job, "preempt")

    def _part(self) -> None:
        """Whoever came to the GPUs of others, under a policy that shared, has to leave under one that does not."""
        for job_id in guests_of(self.book.on_gpus.values()) if self.book.shared_gpus else ():
            self._ask_to_stop(self.book.on_gpus[job_id], "preempt")

    def _part_partial(self) -> None:
        """Guests on some of the GPUs of a host, or of several, have to leave under a policy that cannot say so."""
        hosts = guests_of(self.book.on_gpus.values()) if self.book.shared_gpus else {}
        for job_id, host in hosts.items():
            job = self.book.on_gpus[job_id]
            if job.last.gpus != self.book.on_gpus[host].last.gpus:
                self._ask_to_stop(job, "preempt")

    def _right_size(self, job: LiveJob, slices: Sequence[tuple[str, int]]) -> bool:
        """Whether it is still to have that many GPUs: somebody may have set another number since it was planned."""
        if job.state == JobState.SUSPENDED or (job.elastic and self._memory is not None and self._memory.resizes):
            return True  # one goes on as it is and is resized when it runs, the other has what the policy gives
        return sum(count for _, count in slices) == (job.resize_to or job.spec.gpus)

    def _give_up_orphans(self) -> None:
        """A job whose predecessor failed will never start: say so now."""
        entries = []
        for job in self.book.chained.values():
            before = (other for name in job.spec.after for other in self.book.members(name))
            failed = next((other for other in before if other.state in _PAST), None)
            if failed is not None:
                why = f"job {failed.id}, which it comes after, has {_PAST[failed.state]}"
                entries.append(Entry("reject", job.id, {"why": why}))
        if entries:
            self.write(entries)
            self._give_up_orphans()  # whoever comes after those

    def _anything_to_decide(self) -> bool:
        """Whether somebody waits who may start."""
        not_free = self.book.held.keys() | self.book.chained.keys() | self.book.on_gpus.keys()
        if len(self.book.active) > len(not_free):
            return True
        return any(self._startable(job) for job in self.book.chained.values())

    def _decide(self, tables: Tables, began: float) -> Verdict:
        """A verdict in time, or the starts of the last one that were not possible yet.

        One that comes late and from a policy that is no longer the live one counts for nothing.
        """
        verdict = tables.decide() if tables.quick else self._budget.decide(tables.decide)
        self.counters["decisions"] += 1
        self.counters["decision_s"] = time.perf_counter() - began
        if verdict is None or verdict.policy != self.book.policy:
            self.counters["decision_timeouts"] += verdict is None
            return self._last_plan() if tables.chooses else Verdict(self._plan.starts)
        self._plan, self._beside = verdict, verdict.hosts
        self._forgiven_s |= verdict.promoted
        self._places, self._terms, self._need_gib = verdict.places, verdict.terms, verdict.need_gib
        if tables.chooses:
            self._promised = dict(verdict.starts)
        return verdict
