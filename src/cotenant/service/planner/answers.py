"""What people ask of the planner: why a job waits, and when jobs would finish under other policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cotenant.core.plan import ALONE
from cotenant.core.reasons import Cause, Reason
from cotenant.policies import make_policy
from cotenant.service.planner.forecast import forecast
from cotenant.service.planner.live import Tables
from cotenant.service.planner.memory import check_nodes
from cotenant.service.store.job import LiveJob

if TYPE_CHECKING:
    from cotenant.service.executor.host_limits import Host

LONG_QUEUE = 3000
WHY_AGE_S = 2.0  # in a long queue answers to `why` may be this old while jobs come and go
ASKED_LATELY_S = 60.0


class Answers:
    """Answers from the last decision, or from tables made for the purpose."""

    def __init__(self, service: Host) -> None:
        self._service, self._asked_s = service, 0.0
        self._explained: tuple[Tables | None, int] = (None, 0)

    def check(self, policy: str) -> None:
        """See `PlannerAnswers`."""
        check_nodes(make_policy(policy), policy, self._service.backend.nodes())

    def forecast(self, policies: Sequence[str]) -> dict[str, dict[str, float | None]]:
        """See `PlannerAnswers`. The tables are built under the lock, the forecasts run without it."""
        with self._service.store.lock:
            tables = {name: self._service._tables(name) for name in policies}
        return {name: forecast(table) if table is not None else {} for name, table in tables.items()}

    def why(self, job: str, now_s: float) -> Reason | None:
        """See `PlannerAnswers`."""
        service = self._service
        with service.store.lock:
            self._asked_s = now_s
            found = service.book.active.get(job)
            if found is None:
                return None
            if (reason := self._round_reason(found, now_s)) is not None:
                return reason
            tables, seq = self._explained
            row = tables.row_of(job) if tables is not None and self._fresh(tables, seq, WHY_AGE_S) else None
            if tables is None or row is None or not tables.waits(row):
                tables = service._tables()
                self._explained = tables, service.book.seq
                row = tables.row_of(job) if tables is not None else None
            return tables.why(row) if tables is not None and row is not None else None

    def _round_reason(self, job: LiveJob, now_s: float) -> Reason | None:
        """The reason under a policy of rounds, from its last decision; None under others and before the first."""
        plan, promised = self._service._plan, self._service._promised
        if plan.policy != self._service.book.policy:
            return None
        if job.id in promised:
            nodes = ", ".join(f"{count} of {name}" for name, count in promised[job.id])
            mate = " beside another job" if job.id in self._service._beside else ""
            turn = self._service._terms.get(job.id, ALONE).turn
            when = "when its turn comes" if turn else "as soon as others have given them back"
            text = f"it is chosen and has {nodes}{mate} {when}"
            return Reason(job.id, now_s, Cause.CAPACITY, text, job.spec.gpus)
        if job.id in plan.reasons:
            return Reason(job.id, now_s, Cause.BEHIND_HEAD, plan.reasons[job.id], job.spec.gpus)
        return plan.standings.reason(job.id, now_s) if plan.standings is not None else None

    def _fresh(self, tables: Tables, seq: int, age_s: float) -> bool:
        """Whether tables may still serve for explanations: nothing has changed or, in a long queue, not long ago."""
        book = self._service.book
        recent = len(tables.jobs.ids) > LONG_QUEUE and self._service.clock() - tables.now_s <= age_s
        return tables.policy_name == book.policy and (seq == book.seq or recent)

    def renew(self) -> None:
        """While people ask why, the scheduler's thread renews the tables, so that nobody waits for that."""
        service = self._service
        with service.store.lock:
            tables, seq = self._explained
            long_ago = service.clock() - self._asked_s > ASKED_LATELY_S
            if tables is None or long_ago or len(tables.jobs.ids) <= LONG_QUEUE:
                self._explained = None, 0
                return
            if self._fresh(tables, seq, WHY_AGE_S / 2):
                return
            make, seq = service._gathered(), service.book.seq
        renewed = make() if make is not None else None
        if renewed is not None:
            renewed.prepare()
        with service.store.lock:
            self._explained = renewed, seq
