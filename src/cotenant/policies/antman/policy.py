"""AntMan's global scheduler: quota makes a job guaranteed, everybody else is opportunistic (OSDI'20, section 4).

Guaranteed jobs look only at other guaranteed ones, and hold what they have found while the rest of their gang is
missing; opportunistic jobs may use those GPUs meanwhile. An opportunistic job whose GPUs and quota have become free is
upgraded as a whole, before any new job starts. Nobody is ever stopped: opportunistic jobs are squeezed instead (live,
where no framework can keep a part of a job's memory on the host, those that do not fit have to leave).
A job is marked opportunistic by a negative priority; others are when their tenant has no quota left and the estimated
wait for it is longer than `ot_after_s`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from cotenant.core import columns as col
from cotenant.core.errors import InputError
from cotenant.core.plan import Plan, Terms
from cotenant.core.spec import Value
from cotenant.core.together import Together
from cotenant.core.view import View
from cotenant.core.workload import Ints
from cotenant.placement.room import SharedRoom, as_places
from cotenant.policies.antman.guaranteed import GuaranteedStarts
from cotenant.policies.antman.memory import caps
from cotenant.policies.antman.needs import full_need, held_by_a_gpu, least_of, memory_of, part_of_kind
from cotenant.policies.antman.throttle import LOWEST, Throttle
from cotenant.policies.antman.words import QueueStanding, answers
from cotenant.policies.base import Context, PlanPolicy
from cotenant.policies.beliefs import NAMES, NONE, PairBeliefs
from cotenant.policies.squeezing import bears

MOST_THROTTLED = 0.99  # the largest share that is still a limit


class AntMan(PlanPolicy):
    """Jobs within quota run as if alone; jobs without use what those leave over, throttled by feedback."""

    name = "antman"
    source = "AntMan, OSDI'20"
    preemptive = False
    shares = True
    undoes = True
    overcommits = True
    own_shares = True
    defaults: ClassVar[dict[str, Value]] = {
        "busy_limit": 0.8,  # a GPU busier than this takes no more opportunistic jobs
        "ot_after_s": 0.0,
        "ot_max_gpus": 0,  # largest opportunistic gang; 0: any
        "tolerance": 0.01,  # slowdown of a guaranteed job above which its neighbours are cut
        "start": 0.1,
        "step": 0.2,
        "cut": 0.5,
        "control_s": 5.0,
        "pairs": "none",  # or oracle, formula, learned: first where the guaranteed are believed to suffer least
        "believe": True,  # climb at once to what neighbours are believed to leave idle, no further
        "budget": 0.005,  # part of its time that a guaranteed job may lose to tries beyond that
    }

    def begin(self, context: Context) -> None:
        """Nobody is throttled, and nobody holds a part of a gang."""
        for name in ("busy_limit", "start", "step", "cut"):
            if not 0 < self.number(name) <= 1:
                raise InputError(f"policy '{self.name}': {name}={self.params[name]} must be above 0 and at most 1")
        if not self.number("budget") >= 0:
            raise InputError(f"policy '{self.name}': budget={self.params['budget']} must not be negative")
        if not self.number("control_s") > 0:
            raise InputError(f"policy '{self.name}': control_s={self.params['control_s']} must be above 0")
        self._pairs = PairBeliefs(self.name, str(self.params["pairs"]), names=(NONE, *NAMES))
        self._throttles: dict[int, Throttle] = {}
        self._lost_s: dict[int, float] = {}  # by guaranteed job: what its neighbours have cost it so far
        self._felt_s = np.inf  # when that was counted last
        self.guaranteed: set[int] = set()
        self.reserved: dict[int, list[int]] = {}
        self._later: set[int] = set()
        self._rivals: dict[int, set[int]] = {}
        self._held: dict[int, Terms] = {}
        self._seen: tuple[bytes, ...] = ()
        self._believed: Together | None = None  # by which the last schedule was made
        self._starts = GuaranteedStarts()
        self._quiet = False  # whether everybody who runs is guaranteed, beside nobody, at full speed
        self._quota_left: Ints = np.zeros(0, np.int64)  # by tenant, after the last schedule

    def refresh(self) -> None:
        """Think anew: jobs were moved, or nodes came or went."""
        self._seen, self._quiet = (), False

    def next_look(self, now_s: float, waiting: int, idle: int) -> float | None:
        """While nobody waits, and nobody shares, there is nothing to do and nothing to be lost."""
        if waiting or not self._quiet:
            return None
        self._felt_s = now_s
        return np.inf

    def decide(self, view: View) -> Plan:
        """Upgrade, start guaranteed jobs, start opportunistic jobs, set shares and memory."""
        self._pairs.look(view)
        seen, together = self._situation(view), view.facts.together
        if seen == self._seen and together is self._believed:
            return self._adjust(view)
        self._believed = together
        if self._is_calm(view):
            self._seen = seen
            self._quiet = self._feels_nobody(view)
            return self._let_run(view)
        self._quiet = False
        plan = self._schedule(view)
        self._seen = () if plan.run else seen
        return plan

    def _feels_nobody(self, view: View) -> bool:
        """Whether jobs on GPUs of their own cannot be slowed down, and nobody watches them."""
        together = view.facts.together
        return self.params["pairs"] != "learned" and (together is None or together.nearby is None)

    @staticmethod
    def _is_calm(view: View) -> bool:
        """Whether everybody runs and is guaranteed, with all its memory: then there is nothing to decide."""
        together = view.facts.together
        whole = together is None or together.soft is None
        return bool(
            whole and view.running.all() and not view.opportunistic.any() and (view.share * view.cap == 1.0).all()
        )

    def _let_run(self, view: View) -> Plan:
        """Everybody goes on as it is."""
        self.guaranteed, self.reserved, self._later = set(view.rows.tolist()), {}, set()
        self._held, self._throttles, self._rivals = {}, {}, {}
        self._quota_left = view.site.guaranteed_left()
        self._count_losses(view)
        return Plan(keep=True, why=answers(self._said(), view))

    @staticmethod
    def _situation(view: View) -> tuple[bytes, ...]:
        """Who is there, in which tier, who of them runs, on how many GPUs of which nodes, and whose quota is left."""
        order = np.argsort(view.rows)
        columns = view.rows[order], view.tier[order], view.running[order]
        return tuple(one.tobytes() for one in (*columns, view.site.node[:, col.NODE_CAP], view.site.guaranteed_left()))

    def _adjust(self, view: View) -> Plan:
        """Nothing but time has passed: only shares may change."""
        self._count_losses(view)
        terms = {}
        for row, throttle in self._throttles.items():
            before = throttle.share
            self._observe(row, throttle, self._rivals[row], view)
            if throttle.share != before:
                self._held[row] = terms[row] = replace(self._held[row], share=throttle.share)
        return Plan({}, terms, keep=True, next_s=self._next_s(), why=answers(self._said(), view))

    def _count_losses(self, view: View) -> None:
        """Add up what guaranteed jobs have lost to their neighbours; those that have lost nothing are left out."""
        passed_s, self._felt_s = max(view.now_s - self._felt_s, 0.0), view.now_s
        lost_s, self._lost_s, slow = self._lost_s, {}, view.slowdown
        if not lost_s and not (slow > 1.0).any():
            return
        slowed, running = set(view.rows[slow > 1.0].tolist()), set(view.rows[view.running].tolist())
        for row in (slowed | lost_s.keys()) & running & self.guaranteed:
            lost = passed_s * (1.0 - 1.0 / max(float(slow[view.at(row)]), 1.0))
            self._lost_s[row] = lost_s.get(row, 0.0) + lost

    def _observe(self, row: int, throttle: Throttle, rivals: set[int], view: View) -> None:
        """Tell a throttle how much slower the slowest rival is than alone, and the seconds that one may still lose."""
        at = np.array([view.at(rival) for rival in rivals & self.guaranteed], np.int64)
        at = at[view.running[at]]
        begun = throttle.share == 0 or view.progress_s[view.at(row)] > 0  # who is suspended makes no progress
        if not begun or (view.progress_s[at] <= 0).any():
            throttle.wait(view.now_s)
            return
        worst = float(view.slowdown[at].max()) if len(at) else 1.0
        lost = np.array([self._lost_s.get(row, 0.0) for row in view.rows[at].tolist()])
        spare = float((self.number("budget") * view.attained_s[at] - lost).min()) if len(at) else 0.0
        tolerance, step, cut = (self.number(name) for name in ("tolerance", "step", "cut"))
        throttle.observe(worst, view.now_s, tolerance=tolerance, step=step, cut=cut, spare_s=spare)

    def _next_s(self) -> float:
        """When the first share is looked at again."""
        return min((throttle.next_s for throttle in self._throttles.values()), default=np.inf)

    def _schedule(self, view: View) -> Plan:
        """Upgrade, start guaranteed jobs, start opportunistic jobs, set shares and memory."""
        together, quota = view.facts.together, view.site.guaranteed_left()
        order = np.lexsort((view.rows, view.submit_s, -view.priority))
        running = view.running[order]
        starts = self._starts
        starts.begin(view)
        self.guaranteed = starts.rows
        if len(self.guaranteed) < running.sum():
            self._upgrade(starts.board(view), view.rows[order[running]].tolist(), quota)
        later = starts.start(view, order[~running], quota)
        self.reserved = starts.reserved
        self._later, self._quota_left = set(later), quota
        if not later and not starts.stopped and self._is_whole(view):
            return self._only_start(view)
        board = starts.board(view)
        self._start_opportunistic(board, later, view, together)
        self._held = self._terms(board, view, together)
        was = set(view.rows[view.running].tolist())
        run = {row: board.places(row) for row in board.gpus_of if row not in was}
        columns = view.rows, view.share, view.cap, view.opportunistic == 1
        now = {row: terms for row, *terms in zip(*(column.tolist() for column in columns), strict=True)}
        new = {
            row: terms for row, terms in self._held.items()
            if row in run or now[row] != [terms.share, terms.cap, terms.opportunistic]
        }  # fmt: skip
        stop, why = frozenset(starts.stopped & was), answers(self._said(), view)
        return Plan(run, new, keep=True, stop=stop, next_s=self._next_s(), why=why)

    def _is_whole(self, view: View) -> bool:
        """Whether everybody who runs is guaranteed and has all its time and memory."""
        together = view.facts.together
        return (
            (together is None or together.soft is None)
            and len(self.guaranteed) == int(view.running.sum()) + len(self._starts.seats)
            and bool((view.opportunistic == 0).all() and (view.share == 1.0).all() and (view.cap == 1.0).all())
        )

    def _only_start(self, view: View) -> Plan:
        """Guaranteed jobs start, beside nobody; all others go on as they are."""
        self._held, self._throttles, self._rivals = {}, {}, {}
        self._quiet = self._feels_nobody(view)
        self._count_losses(view)
        first, alone = view.site.gpu_first.tolist(), Terms()
        run = {row: as_places(gpus, first) for row, gpus in self._starts.seats.items()}
        return Plan(run, dict.fromkeys(run, alone), keep=True, why=answers(self._said(), view))

    def _said(self) -> QueueStanding:
        """What jobs that wait are told by."""
        limit, most = self.number("busy_limit"), int(self.number("ot_max_gpus"))
        return QueueStanding(self.reserved, self._later, self._quota_left, limit, most, self.number("ot_after_s"))

    # -- the global scheduler ----------------------------------------------------------------------------------

    def _upgrade(self, board: SharedRoom, running: list[int], quota: Ints) -> None:
        """Whole opportunistic jobs whose GPUs nobody else holds, while their tenant has the quota."""
        if self.guaranteed.issuperset(running):
            return
        holds = {gpu for row in self.guaranteed for gpu in board.gpus_of[row]}
        holds |= {gpu for gpus in self.reserved.values() for gpu in gpus}
        for row in running:
            tenant, gang = board.tenant(row), board.gang(row)
            if row in self.guaranteed or board.view.tier[board.view.at(row)] > 0 or quota[tenant] < gang:
                continue
            if not holds.intersection(board.gpus_of[row]):
                self.guaranteed.add(row)
                holds.update(board.gpus_of[row])
                quota[tenant] -= gang

    def _start_opportunistic(
        self, board: SharedRoom, waiting: list[int], view: View, together: Together | None
    ) -> None:
        """The freest GPUs below the limit, whoever runs there."""
        if not waiting:
            return
        busy = [self._busy(board, gpu, together) for gpu in range(len(board.users))]
        limit, most = self.number("busy_limit"), int(self.number("ot_max_gpus"))
        failed: set[tuple[int, int]] = set()
        for row in waiting:
            gang = board.gang(row)
            shape = int(view.class_number[view.at(row)]), board.kind(row)
            if shape in failed or (most and gang > most) or self._wait_s(row, view) < self.number("ot_after_s"):
                continue
            failed.add(shape)
            kind = board.kind(row)
            need = memory_of(together, kind) * part_of_kind(together, kind)
            for pool in board.pools(row):
                open_ = [
                    gpu for gpu, users in enumerate(board.users)
                    if board.pool_of[gpu] == pool and board.up[gpu] and busy[gpu] < limit and len(users) < col.SLOTS
                    and need <= self._squeezed(board, gpu, together) + 1e-9
                    and self._shareable(board, row, users, together)
                    and bears(view, row, users, int(board.type_of[gpu]))
                ]  # fmt: skip
                harm = {gpu: self._harm(board, view, board.kind(row), gpu) for gpu in open_}
                open_.sort(key=lambda gpu: (harm[gpu], busy[gpu], len(board.users[gpu]), gpu))
                open_ = board.limit_by_hosts(row, open_)
                if board.parts(row):
                    chosen = set(open_)
                    open_ = board.consolidated(row, [gpu in chosen for gpu in range(len(board.users))])
                if len(open_) >= gang:
                    board.put(row, open_[:gang], need)
                    failed.discard(shape)
                    for gpu in open_[:gang]:
                        busy[gpu] = self._busy(board, gpu, together)
                    break

    def _harm(self, board: SharedRoom, view: View, kind: int, gpu: int) -> float:
        """Believed slowdown of guaranteed jobs on a GPU beside this kind; 1 where nothing is believed."""
        if not self._pairs.active:
            return 1.0
        kinds = [board.kind(job) for job in board.users[gpu] if job in self.guaranteed]
        return float(self._pairs.slowdown(view)[kinds, kind, int(board.type_of[gpu])].max(initial=1.0))

    def _wait_s(self, row: int, view: View) -> float:
        """Estimated seconds until a tenant's quota is free: the work that its guaranteed jobs have left."""
        at = view.at(row)
        tenant = view.tenant[at]
        limit = int(view.site.quota[tenant, col.Q_GUARANTEED])
        if limit <= 0 or view.tier[at] > 0:
            return np.inf
        mine = np.isin(view.rows, list(self.guaranteed)) & (view.tenant == tenant)
        return float((view.remaining_s[mine] * view.gpus[mine]).sum()) / limit

    @staticmethod
    def _shareable(board: SharedRoom, row: int, users: list[int], together: Together | None) -> bool:
        """Whether a job can sit beside these at all."""
        if not users:
            return True
        if together is None:
            return False
        kind = board.kind(row)
        return all(together.ratio[kind, board.kind(user)].max() > 0 for user in users)

    def _busy(self, board: SharedRoom, gpu: int, together: Together | None) -> float:
        """Utilisation of a GPU: what its jobs keep busy at the shares they are allowed."""
        total = 0.0
        for job in board.users[gpu]:
            share = self._throttles[job].share if job in self._throttles else 1.0
            total += share * (1.0 if together is None else float(together.busy[board.kind(job)]))
        return min(total, 1.0)

    def _squeezed(self, board: SharedRoom, gpu: int, together: Together | None) -> float:
        """Memory left on a GPU when every opportunistic job there has only its least part."""
        used = 0.0
        for job in board.users[gpu]:
            need = full_need(together, board, job)
            used += need if job in self.guaranteed else need * least_of(together, board, job)
        return float(board.capacity[gpu]) - used

    # -- the local coordinators --------------------------------------------------------------------------------

    def _terms(self, board: SharedRoom, view: View, together: Together | None) -> dict[int, Terms]:
        """Shares by feedback, memory by what is left."""
        self._count_losses(view)
        part = self._memory_parts(board, together)
        terms: dict[int, Terms] = {}
        throttles: dict[int, Throttle] = {}
        self._rivals = {}
        shares = {row: throttle.share for row, throttle in self._throttles.items()}
        for row, gpus in board.gpus_of.items():
            if row in self.guaranteed:
                terms[row] = Terms(cap=held_by_a_gpu(together, board.kind(row)))
                continue
            rivals = {job for gpu in gpus for job in board.users[gpu] if job in self.guaranteed}
            share = 1.0
            if rivals:
                throttle = self._throttles.get(row)
                if throttle is None or not all(view.running[view.at(job)] for job in rivals):
                    idle = self._idle(board, row, view, shares)
                    throttle = Throttle.low(self.number("start"), view.now_s, self.number("control_s"), idle)
                elif len(rivals) < throttle.rivals:  # one has gone, and what it used with it
                    throttle.ceiling = max(throttle.ceiling, self._idle(board, row, view, shares))
                else:
                    self._observe(row, throttle, rivals, view)
                throttle.rivals = len(rivals)
                throttles[row] = throttle
                self._rivals[row] = rivals
                share = throttle.share
            terms[row] = Terms(share=share, cap=part[row], opportunistic=True)
        self._throttles = throttles
        return terms

    def _idle(self, board: SharedRoom, row: int, view: View, shares: dict[int, float]) -> float:
        """Share at which a job is believed to fill only what its neighbours leave idle; `shares`: of throttled ones.

        Beside one that is believed to suffer nothing anyhow (`pairs`) it needs no limit; beside one that leaves nothing
        it is suspended.
        """
        together = view.facts.together
        if together is None or not self.params["believe"]:
            return 1.0
        idle, kind = 1.0, board.kind(row)
        for gpu in board.gpus_of[row]:
            if self._pairs.active and self._harm(board, view, kind, gpu) <= 1 + self.number("tolerance"):
                continue
            others = [job for job in board.users[gpu] if job != row and (job in self.guaranteed or job in shares)]
            if self.guaranteed.intersection(others):
                taken = [float(together.busy[board.kind(job)]) * shares.get(job, 1.0) for job in others]
                idle = min(idle, (1.0 - sum(taken)) / max(float(together.busy[kind]), 1e-9), MOST_THROTTLED)
        return idle if idle >= LOWEST else 0.0

    def _memory_parts(self, board: SharedRoom, together: Together | None) -> dict[int, float]:
        """Part of its memory that each opportunistic job may keep on its GPUs: the least over its gang."""
        part = {row: 1.0 for row in board.gpus_of if row not in self.guaranteed}
        if together is None or not part:
            return part
        for gpu, users in enumerate(board.users):
            others = [job for job in users if job not in self.guaranteed]
            if not others:
                continue
            needs = [full_need(together, board, job) for job in others]
            left = float(board.capacity[gpu]) - sum(
                full_need(together, board, job) for job in users if job in self.guaranteed
            )
            least = [least_of(together, board, job) for job in others]
            given = caps(left, needs, [together.curve[board.kind(job)] for job in others], least)
            for job, value in zip(others, given or [least_of(together, board, job) for job in others], strict=True):
                part[job] = min(part[job], value * held_by_a_gpu(together, board.kind(job)))
        return part
