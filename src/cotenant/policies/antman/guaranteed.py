"""How guaranteed jobs of AntMan get their GPUs in one decision: most by the kernels of `seating`, some one by one."""

from __future__ import annotations

import numpy as np

from cotenant.core import columns as col
from cotenant.core.together import Together
from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints
from cotenant.placement.room import SharedRoom
from cotenant.policies.antman.needs import full_need, least_of, memory_of, needs_by_kind, squeezed_needs
from cotenant.policies.antman.seating import HOLDS, LATER, Floor, asking, fill, lay_floor, seat


class GuaranteedStarts:
    """Who starts where, who holds a part of its gang, who has to leave; the tables last from decision to decision."""

    def __init__(self) -> None:
        self.rows: set[int] = set()  # guaranteed jobs that run or start
        self.seats: dict[int, list[int]] = {}  # GPUs of those that start
        self.reserved: dict[int, list[int]] = {}  # GPUs that others hold
        self.stopped: set[int] = set()  # opportunistic jobs that have to leave
        self._known: Together | None = None  # by which these were worked out:
        self._kinds_gib: Floats = np.zeros(0)  # by kind what squeezed jobs keep
        self._needs_gib: Floats = np.zeros(0)  # and what they need in all
        self._floor: Floor | None = None
        self._room: SharedRoom | None = None
        self._laid = False  # whether the room is that of this decision

    def begin(self, view: View) -> None:
        """A decision begins: nobody has started yet."""
        self.rows = set(view.rows[view.running & (view.opportunistic == 0)].tolist())
        self.seats, self.stopped, self._laid = {}, set(), False

    def board(self, view: View) -> SharedRoom:
        """The GPUs as they are after what was decided so far."""
        if self._room is None or not self._laid:
            self._room = SharedRoom(view) if self._room is None else self._room.following(view)
            self._laid = True
        for row, gpus in self.seats.items():
            if row not in self._room.gpus_of:
                self._room.put(row, gpus, memory_of(view.facts.together, self._room.kind(row)))
        return self._room

    def start(self, view: View, queue: Ints, quota: Ints) -> list[int]:
        """Start whoever finds all its GPUs; the others hold what there is. Who is left without quota."""
        floor, asks, later = self._lay_floor(view, len(queue)), asking(view), list[int]()
        self.reserved = {}
        mine = np.isin(view.rows, list(self.rows)) if view.opportunistic.any() else view.running
        fill(floor, view.held, view.kind, mine.astype(np.int64), self._kinds_gib)
        at = end = 0
        while at < len(queue):
            begin = at
            if not view.site.hosts_bind:
                at = int(seat(floor, asks, queue, begin, end, self._needs_gib, quota))
                end = int(floor.begin[at])
            for k in (begin + np.flatnonzero(floor.outcome[begin:at])).tolist():
                row, gpus = int(view.rows[queue[k]]), floor.seats[floor.begin[k] : floor.begin[k + 1]].tolist()
                if floor.outcome[k] == LATER:
                    later.append(row)
                elif floor.outcome[k] == HOLDS:
                    self.reserved[row] = gpus
                else:
                    self.seats[row] = gpus
                    self.rows.add(row)
            if at < len(queue) and not self._seat_beside(self.board(view), floor, int(view.rows[queue[at]]), quota):
                later.append(int(view.rows[queue[at]]))
            at += at < len(queue)
        return later

    def _lay_floor(self, view: View, queue: int) -> Floor:
        """The GPUs, and room for what becomes of so many jobs."""
        together, site, floor = view.facts.together, view.site, self._floor
        if together is not self._known or len(self._kinds_gib) != len(site.speed):
            self._known, self._kinds_gib = together, squeezed_needs(together, len(site.speed))
            self._needs_gib = needs_by_kind(together, len(site.speed))
        if floor is None or floor.first is not site.gpu_first or (floor.up != site.open).any():
            floor = self._floor = lay_floor(view)
        if len(floor.outcome) < queue or not len(floor.begin):
            floor = self._floor = floor._replace(
                outcome=np.zeros(2 * queue, np.int64), begin=np.zeros(2 * queue + 1, np.int64)
            )
        return floor

    def _seat_beside(self, board: SharedRoom, floor: Floor, row: int, quota: Ints) -> bool:
        """The same for one job, also beside opportunistic ones; False where it is left without quota."""
        tenant, gang, together = board.tenant(row), board.gang(row), board.view.facts.together
        if board.view.tier[board.view.at(row)] > 0 or quota[tenant] < gang:
            return False
        quota[tenant] -= gang
        if floor.taken.all():
            return True
        need = memory_of(together, board.kind(row))
        usable = board.up & (floor.taken == 0) & (floor.jobs < col.SLOTS)
        usable &= need <= board.capacity - floor.least_gib + 1e-9
        gpus = board.consolidated(row, usable, floor.jobs)
        if gpus:
            near = {gpu for job in set().union(*(board.users[gpu] for gpu in gpus)) for gpu in board.gpus_of[job]}
            self._make_room(board, gpus, need, together)
            board.put(row, gpus, need)
            self.seats[row] = gpus
            self.rows.add(row)
            for gpu in near.union(gpus):
                users = board.users[gpu]
                floor.jobs[gpu] = len(users)
                floor.least_gib[gpu] = sum(self._kinds_gib[board.kind(job)] for job in users)
        else:
            gpus = self.reserved[row] = self._partial(board, row, usable.tolist())
        floor.taken[gpus] = 1
        return True

    def _make_room(self, board: SharedRoom, gpus: list[int], need_gib: float, together: Together | None) -> None:
        """Where memory cannot overflow to the host, opportunistic jobs that leave a guaranteed one too little go."""
        for gpu in gpus:
            for job in board.users[gpu][::-1]:
                kept = sum(
                    full_need(together, board, user) * least_of(together, board, user) for user in board.users[gpu]
                )
                if kept + need_gib > board.capacity[gpu] + 1e-9 and least_of(together, board, job) >= 1:
                    board.remove(job)
                    self.stopped.add(job)

    def _partial(self, board: SharedRoom, row: int, usable: list[bool]) -> list[int]:
        """The best part of its gang that a job can hold: on one node if it would fit there, else anywhere."""
        best: list[int] = []
        gang = board.gang(row)
        for pool in board.pools(row):
            here = {node: [gpu for gpu in board.gpus(node) if usable[gpu]] for node in board.nodes(pool)}
            largest = max(board.first[node + 1] - board.first[node] for node in board.nodes(pool))
            groups = list(here.values()) if gang <= largest else [[gpu for gpus in here.values() for gpu in gpus]]
            best = max([best, *(group[:gang] for group in groups)], key=len)
        return best
