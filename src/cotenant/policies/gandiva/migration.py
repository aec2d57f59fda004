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

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from cotenant.core import columns as col
from cotenant.core.view import View
from cotenant.placement.room import SharedRoom
from cotenant.policies.gandiva.paces import Paces
from cotenant.policies.gandiva.packing import may_go
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
    due_s: float = np.inf  # when the next move is to be judged, at the earliest
    next_s: float = np.inf  # when that is, or when a job could be moved
    seats: dict[int, tuple[list[int], float]] = field(default_factory=dict)  # row -> its GPUs, and since when
    apart: dict[int, float] = field(default_factory=dict)  # gangs on more servers than they need: what that costs them
    look_s: float = -np.inf  # when jobs have been long enough where they are now to see whether they disturb each other


class Migrator:
    """One decision: jobs in `moved` and `packed` stay."""

    def __init__(
        self, lasting: Migration, board: SharedRoom, view: View, servers: Servers, moved: set[int],
        packed: Collection[int], paces: Paces,
    ) -> None:  # fmt: skip
        self._kept, self._board, self._view, self._servers, self._paces = lasting, board, view, servers, paces
        self._moved, self._packed = moved, packed
        if lasting.moves:
            lasting.moves = {row: move for row, move in lasting.moves.items() if row in board.gpus_of}
        if board.new or any(row not in board.gpus_of for row in board.reseated):
            lasting.futile = {item for item in lasting.futile if item[0] in board.gpus_of}
        self._later_s = np.inf
        self._take_seats(board.reseated, first=True)
        for row, move in lasting.moves.items():
            if not move.begun:
                move.begun = not view.promised[view.at(row)]
                move.since_s = move.since_s if move.begun else view.now_s

    def _take_seats(self, rows: set[int], *, first: bool) -> None:
        """Note since when these jobs have had their GPUs: turns do not count as moves."""
        view, kept, seats, now = self._view, self._kept, self._kept.seats, self._board.gpus_of
        if self._board.new and first:
            kept.seats = seats = {row: seat for row, seat in seats.items() if row in now}
            kept.apart = {}
        for row in rows:
            gpus = now.get(row)
            if gpus is None:
                seats.pop(row, None)
            elif row not in seats or seats[row][0] != gpus:
                kept.look_s = view.now_s + kept.trial_s
                seats[row] = gpus, float(view.since_s[view.at(row)]) if first else view.now_s
            kept.apart.pop(row, None)
            if gpus is not None and self._is_apart(row):
                kept.apart[row] = self._spread_loss(row)

    def _is_apart(self, row: int) -> bool:
        """Whether a gang is spread over more servers than it needs."""
        board, gpus = self._board, self._board.gpus_of[row]
        if len(gpus) == 1 or board.node_of[gpus[0]] == board.node_of[gpus[-1]]:
            return False
        return len(board.nodes_of(row)) > self._fewest(row) and not board.parts(row)

    # -- what came of moves ----------------------------------------------------------------------------------------

    def judge(self) -> None:
        """Who was moved, and has run for a while since, goes back if that made it slower."""
        view = self._view
        if view.now_s < self._kept.due_s - 1e-9:
            return
        for row, due_s in self._dues().items():
            if view.now_s < due_s - 1e-9 or row in self._packed or not may_go(view, row):
                continue
            move = self._kept.moves[row]
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

    def _dues(self) -> dict[int, float]:
        """When jobs that were moved have been seen for long enough where they are now."""
        view, kept = self._view, self._kept
        restore_s = view.restore_s[[view.at(row) for row in kept.moves]].tolist() if kept.moves else []
        moves = zip(kept.moves.items(), restore_s, strict=True)
        return {row: move.since_s + cost_s + kept.trial_s for (row, move), cost_s in moves}

    def end(self) -> None:
        """Write down who sits where, and when to look again."""
        self._take_seats(self._moved, first=False)
        self._kept.due_s = min(self._dues().values(), default=np.inf) if self._kept.moves else np.inf
        self._kept.next_s = min(self._kept.due_s, self._later_s)

    # -- reasons ---------------------------------------------------------------------------------------------------

    def lower(self) -> None:
        """Jobs that take turns go to free GPUs elsewhere, from the most crowded server on."""
        servers = self._servers
        if not servers.is_crowded():
            return
        for node in sorted(servers.crowded(), key=lambda node: (-servers.load(node), node)):
            for row in servers.jobs(node):
                if servers.load(node) <= 1:
                    break
                if self._pays(row, LOWER, 1 - 1 / servers.load(node)):
                    self._move(row, LOWER, self._elsewhere(row))

    def gather(self) -> None:
        """Spread gangs go where they fit on fewer servers, those that lose most by being spread first."""
        for row, loss in sorted(self._kept.apart.items(), key=lambda item: (-item[1], item[0])):
            if row not in self._moved and self._pays(row, GATHER, loss):
                self._move(row, GATHER, self._together(row))

    def part(self) -> None:
        """Who is slowed down though its GPUs are its own goes to the server with the fewest others."""
        board, servers = self._board, self._servers
        slow = {
            row: lost for row in self._may_be_slow()
            if all(len(board.users[gpu]) == 1 for gpu in board.gpus_of[row])
            and (lost := 1 - float(self._paces.pace[self._view.at(row)])) >= self._kept.interference
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
        """Jobs on GPUs that are seen to run clearly slower than alone."""
        return [row for row in self._paces.slow if row not in self._packed and row in self._board.gpus_of]

    def defragment(self) -> None:
        """Empty servers of which at least three quarters are free onto fuller ones that are in use."""
        board, servers = self._board, self._servers
        for node in servers.sparse():
            for row in servers.jobs(node):
                futile = row in self._packed or (row, DEFRAGMENT) in self._kept.futile
                if not futile and servers.has_fuller(row, node) and self._pays(row, DEFRAGMENT, 1.0):
                    self._move(row, DEFRAGMENT, servers.free(servers.fuller(row, node)[0])[: board.gang(row)])

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
        if self._servers.free_elsewhere(homes) < board.gang(row):
            return []
        before, need = board.gpus_of[row], board.need_gib(row)
        board.remove(row)
        gpus = self._servers.place(row, oversubscribe=False)
        board.put(row, before, need)
        return [] if homes & {int(board.node_of[gpu]) for gpu in gpus} else gpus

    def _together(self, row: int) -> list[int]:
        """Free GPUs, its own included, on fewer nodes of its pool than it has now."""
        board, now = self._board, len(self._nodes(row))
        if not self._servers.could_hold(row, now - 1):
            return []
        before, need = board.gpus_of[row], board.need_gib(row)
        pool = int(board.pool_of[before[0]])
        board.remove(row)
        idle = np.array([not users for users in board.users], bool)
        gpus = board.consolidated(row, idle & (board.pool_of == pool))
        board.put(row, before, need)
        return gpus if len({int(board.node_of[gpu]) for gpu in gpus}) < now else []

    # -- moving ----------------------------------------------------------------------------------------------------

    def _may_move(self, row: int) -> bool:
        """Whether nobody minds if a job that runs is moved, now or later."""
        if row in self._packed or row in self._moved or row in self._kept.moves:
            return False
        return may_go(self._view, row)

    def _is_open(self, row: int, why: str) -> bool:
        """Whether a job may be moved, and was not moved for the same reason in vain."""
        return (row, why) not in self._kept.futile and self._may_move(row)

    def _pays(self, row: int, why: str, gain: float) -> bool:
        """Whether a job may be moved, and gains more than it costs; `gain` is a part of its time."""
        if gain <= 0 or not self._is_open(row, why):
            return False
        view, at, residence_s = self._view, self._view.at(row), self._kept.residence_s
        attained_s, restore_s = float(view.attained_s[at]), float(view.restore_s[at])
        wait_s = residence_s - (view.now_s - self._kept.seats[row][1]) if row in self._kept.seats else residence_s
        if gain * max(attained_s, residence_s) <= restore_s:
            wait_s = max(wait_s, restore_s / gain - attained_s, _SOON_S)
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
