"""Moving running jobs (Gandiva, OSDI'18, section 4.3): off crowded servers, together, away from others, out of gaps.

Four reasons, each of which can be switched off:

* `lower`: jobs that take turns go where GPUs have fallen free;
* `gather`: a gang that is spread over more servers than it needs goes where it fits on fewer;
* `part`: a job that is seen to be slower than alone, though nobody shares its GPUs, goes to another server;
* `defragment`: servers of which at least three quarters are free are emptied onto fuller ones.

A move costs what restoring the job takes. It is made if what it gains is more than that, over as long as the job has
run already (who has run for long is believed to run for as long again), at least `residence_s`. Afterwards the job is
watched: one that has become slower goes back, if its old GPUs are free, and no job is moved for the same reason again
that did not gain from it. Jobs that may not be moved (`Facts.movable`), are packed or came lately stay.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from cotenant.core import columns as col
from cotenant.core.view import View
from cotenant.placement.room import SharedRoom
from cotenant.policies.gandiva.packing import may_go, pace
from cotenant.policies.gandiva.server import Servers

LOWER, GATHER, PART, DEFRAGMENT = "lower", "gather", "part", "defragment"
_SLACK = 0.01  # of its speed: less is no news
_SOON_S = 1.0


@dataclass(slots=True)
class Move:
    """A job that was moved: why, off which GPUs, how fast it was there, and since when it runs elsewhere."""

    why: str
    gpus: list[int]
    speed: float
    since_s: float
    begun: bool = False


@dataclass(slots=True)
class Migration:
    """What lasts from decision to decision: limits, moves that are being watched, and what came of others."""

    residence_s: float
    trial_s: float
    interference: float  # part of its speed that a job must have lost on GPUs of its own to be moved away
    spread_loss: float  # what a spread gang is believed to lose at least
    moves: dict[int, Move] = field(default_factory=dict)
    futile: set[tuple[int, str]] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=lambda: {"migrations": 0, "migrations_undone": 0})
    cost_gpu_s: float = 0.0  # as believed
    next_s: float = np.inf  # when the next move is to be judged, or a job could be moved
    seats: dict[int, tuple[list[int], float]] = field(default_factory=dict)  # row -> its GPUs, and since when
    look_s: float = -np.inf  # when jobs have been long enough where they are now to see whether they disturb each other


class Migrator:
    """One decision: jobs in `moved` and `packed` stay."""

    def __init__(
        self, lasting: Migration, board: SharedRoom, view: View, servers: Servers, moved: set[int],
        packed: Collection[int],
    ) -> None:  # fmt: skip
        self._kept, self._board, self._view, self._servers = lasting, board, view, servers
        self._moved, self._packed = moved, packed
        lasting.moves = {row: move for row, move in lasting.moves.items() if row in board.gpus_of}
        lasting.futile = {item for item in lasting.futile if item[0] in board.gpus_of}
        self._later_s = np.inf
        self._take_seats(dict(zip(view.rows.tolist(), view.since_s.tolist(), strict=True)))
        for row, move in lasting.moves.items():
            move.begun = move.begun or not view.promised[view.at(row)]
            move.since_s = move.since_s if move.begun else view.now_s

    def _take_seats(self, since_s: Mapping[int, float]) -> None:
        """Note since when jobs have had their GPUs: turns do not count as moves."""
        seats = self._kept.seats
        if any(row not in seats or seats[row][0] != gpus for row, gpus in self._board.gpus_of.items()):
            self._kept.look_s = self._view.now_s + self._kept.trial_s
        self._kept.seats = {
            row: seats[row] if row in seats and seats[row][0] == gpus else (gpus, since_s.get(row, self._view.now_s))
            for row, gpus in self._board.gpus_of.items()
        }

    # -- what came of moves ----------------------------------------------------------------------------------------

    def judge(self) -> None:
        """Who was moved, and has run for a while since, goes back if that made it slower."""
        view = self._view
        for row, move in list(self._kept.moves.items()):
            if view.now_s < self.due_s(row) - 1e-9 or row in self._packed or not may_go(view, row):
                continue
            del self._kept.moves[row]
            speed, least = seen_speed(view, row), -_SLACK if move.why == DEFRAGMENT else _SLACK
            if speed > move.speed * (1 + least):
                continue
            self._kept.futile.add((row, move.why))
            if speed < move.speed * (1 - _SLACK) and row not in self._moved and self._is_free(row, move.gpus):
                self._seat(row, move.gpus)
                self._kept.counts["migrations_undone"] += 1

    def _is_free(self, row: int, gpus: list[int]) -> bool:
        """Whether a job could have these GPUs, of which some may be its own."""
        board, mine = self._board, self._board.gpus_of[row]
        fed = board.limit_by_hosts(row, [gpu for gpu in gpus if gpu not in mine])
        free = all(not board.users[gpu] and board.up[gpu] for gpu in fed)
        return free and len(fed) == len(set(gpus) - set(mine)) and len(gpus) == len(mine)

    def due_s(self, row: int) -> float:
        """When a job that was moved has been seen for long enough where it is now."""
        move, view = self._kept.moves[row], self._view
        return move.since_s + float(view.restore_s[view.at(row)]) + self._kept.trial_s

    def end(self) -> None:
        """Write down who sits where, and when to look again."""
        self._take_seats({})
        self._kept.next_s = min((self.due_s(row) for row in self._kept.moves), default=np.inf)
        self._kept.next_s = min(self._kept.next_s, self._later_s)

    # -- reasons ---------------------------------------------------------------------------------------------------

    def lower(self) -> None:
        """Jobs that take turns go to free GPUs elsewhere, from the most crowded server on."""
        servers = self._servers
        for node in sorted(servers.crowded(), key=lambda node: (-servers.load(node), node)):
            for row in servers.jobs(node):
                if servers.load(node) <= 1:
                    break
                if self._pays(row, LOWER, 1 - 1 / servers.load(node)):
                    self._move(row, LOWER, self._elsewhere(row))

    def gather(self) -> None:
        """Spread gangs go where they fit on fewer servers, those that lose most by being spread first."""
        board = self._board
        apart = [row for row, gpus in board.gpus_of.items() if board.node_of[gpus[0]] != board.node_of[gpus[-1]]]
        spread = [row for row in apart if len(self._nodes(row)) > self._fewest(row) and not board.parts(row)]
        for row in sorted(spread, key=lambda row: (-self._spread_loss(row), row)):
            if self._pays(row, GATHER, self._spread_loss(row)):
                self._move(row, GATHER, self._together(row))

    def part(self) -> None:
        """Who is slowed down though its GPUs are its own goes to the server with the fewest others."""
        board, servers = self._board, self._servers
        slow = {
            row: lost for row in self._may_be_slow()
            if row not in self._packed and all(len(board.users[gpu]) == 1 for gpu in board.gpus_of[row])
            and (lost := 1 - pace(self._view, row)) >= self._kept.interference
        }  # fmt: skip
        for row in sorted(slow, key=lambda row: (-slow[row], row)):
            if slow[row] < self._kept.interference or not self._pays(row, PART, slow[row]):
                continue
            others = [node for node in self._open_nodes(row) if node not in self._nodes(row)]
            for node in sorted(others, key=lambda node: (len(servers.jobs(node)), node)):
                if len(servers.free(node)) >= board.gang(row) and board.fed(row, node) >= board.gang(row):
                    beside = {other for home in self._nodes(row) for other in servers.jobs(home)} - {row}
                    self._move(row, PART, servers.free(node)[: board.gang(row)])
                    for other in beside:  # it may be well now that this one is gone
                        slow[other] = 0.0
                    break

    def _may_be_slow(self) -> list[int]:
        """Jobs on GPUs that are not seen to run as fast as alone."""
        view, seats = self._view, self._board.gpus_of
        slow = view.running & (view.speed < view.alone_speed)
        return [row for row in view.rows[slow].tolist() if row in seats]

    def defragment(self) -> None:
        """Empty servers of which at least three quarters are free onto fuller ones that are in use."""
        board, servers = self._board, self._servers
        for node in sorted(servers.sparse(), key=lambda node: (-servers.free_count(node), node)):
            for row in servers.jobs(node):
                gang, free = board.gang(row), servers.free_count(node)
                fuller = [
                    other for other in self._open_nodes(row)
                    if board.parts(row) <= 1 and gang <= servers.free_count(other) < free and servers.slots(other) > 0
                    and board.fed(row, other) >= gang
                    and board.site.node[other, col.NODE_POOL] == board.site.node[node, col.NODE_POOL]
                ]  # fmt: skip
                if fuller and self._pays(row, DEFRAGMENT, 1.0):
                    best = min(fuller, key=lambda other: (servers.free_count(other), other))
                    self._move(row, DEFRAGMENT, servers.free(best)[:gang])

    # -- places ----------------------------------------------------------------------------------------------------

    def _nodes(self, row: int) -> set[int]:
        return self._board.nodes_of(row)

    def _open_nodes(self, row: int) -> list[int]:
        board = self._board
        return [node for pool in board.pools(row) for node in board.nodes(pool) if board.gpus(node)]

    def _fewest(self, row: int) -> int:
        """On how many servers of its pool a gang fits at best."""
        board = self._board
        pool = int(board.pool_of[board.gpus_of[row][0]])
        return -(-board.gang(row) // max(int(board.site.pool[pool, col.POOL_LARGEST]), 1))

    def _spread_loss(self, row: int) -> float:
        """Part of its speed that a gang is believed to lose by being spread; a little where nobody knows."""
        kind, here = self._board.kind(row), int(self._board.type_of[self._board.gpus_of[row][0]])
        whole, spread = self._board.site.speed[kind, here].tolist()
        return max(1 - spread / whole if whole > 0 else 0.0, self._kept.spread_loss)

    def _elsewhere(self, row: int) -> list[int]:
        """Free GPUs on other nodes only."""
        board, homes = self._board, self._nodes(row)
        before, need = board.gpus_of[row], board.need[row]
        board.remove(row)
        gpus = self._servers.place(row, oversubscribe=False)
        board.put(row, before, need)
        return [] if homes & {int(board.node_of[gpu]) for gpu in gpus} else gpus

    def _together(self, row: int) -> list[int]:
        """Free GPUs, its own included, on fewer nodes of its pool than it has now."""
        board, now = self._board, len(self._nodes(row))
        before, need = board.gpus_of[row], board.need[row]
        pool = int(board.pool_of[before[0]])
        board.remove(row)
        gpus = board.consolidated(
            row, [not users and board.pool_of[gpu] == pool for gpu, users in enumerate(board.users)]
        )
        board.put(row, before, need)
        return gpus if len({int(board.node_of[gpu]) for gpu in gpus}) < now else []

    # -- moving ----------------------------------------------------------------------------------------------------

    def _may_move(self, row: int) -> bool:
        """Whether nobody minds if a job that runs is moved, now or later."""
        stays = row in self._moved or row in self._packed or row in self._kept.moves
        return not stays and may_go(self._view, row)

    def _pays(self, row: int, why: str, gain: float) -> bool:
        """Whether a job may be moved, and gains more than it costs; `gain` is a part of its time."""
        if not self._may_move(row) or (row, why) in self._kept.futile or gain <= 0:
            return False
        view, at, residence_s = self._view, self._view.at(row), self._kept.residence_s
        wait_s = residence_s - (view.now_s - self._kept.seats[row][1]) if row in self._kept.seats else residence_s
        if gain * max(float(view.attained_s[at]), residence_s) <= float(view.restore_s[at]):
            wait_s = max(wait_s, float(view.restore_s[at]) / gain - float(view.attained_s[at]), _SOON_S)
        if wait_s > 0:
            self._later_s = min(self._later_s, view.now_s + wait_s)
        return wait_s <= 0

    def _move(self, row: int, why: str, gpus: list[int]) -> None:
        if len(gpus) == len(self._board.gpus_of[row]):
            self._kept.moves[row] = Move(why, self._board.gpus_of[row], seen_speed(self._view, row), self._view.now_s)
            self._seat(row, gpus)
            self._kept.counts["migrations"] += 1

    def _seat(self, row: int, gpus: list[int]) -> None:
        self._board.resize(row, gpus)
        self._moved.add(row)
        self._kept.cost_gpu_s += float(self._view.restore_s[self._view.at(row)]) * len(gpus)


def seen_speed(view: View, row: int) -> float:
    """Seconds of work per second of a job, its pauses between turns included."""
    at = view.at(row)
    waits = view.site.rotates and view.turn[at] > 0
    return float(view.speed[at]) * (float(view.share[at]) if waits else 1.0)
