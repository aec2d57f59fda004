"""Packing by trial and undo (Gandiva, OSDI'18, section 4.2): jobs join others on their GPUs, and stay while that pays.

Only under overload, only jobs that have been watched alone, only where the memory of all fits. The least busy job joins
a group whose GPUs have time left, or the least busy GPUs; one after the other, up to `most` on the same GPUs. Nobody
has to know such a group beforehand. It is judged by what its members are seen to do: all of them together must make
more progress than the group of before and the newcomer would in turns, (P + 1) / 2, P being what the group made
without it. Watching goes on, and a later drop undoes it too. Jobs that were seen not to go together are not tried
again.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cotenant.core import columns as col
from cotenant.core.view import V_RUNNING, View
from cotenant.core.workload import Ints
from cotenant.placement.room import SharedRoom
from cotenant.policies.gandiva.paces import Paces, pace
from cotenant.policies.gandiva.server import Servers
from cotenant.policies.squeezing import bears


@dataclass(slots=True)
class Trial:
    """A guest on the GPUs of a host: since when, what all of them have to surpass, and whether they were seen to."""

    host: int
    since_s: float
    base: float = 1.0
    kept: bool = False


class JobPacking:
    """Who shares GPUs with whom: guest -> trial. Guests of one host are one group, and have one turn."""

    def __init__(self, watch_s: float, trial_s: float, most: int) -> None:
        self.watch_s, self.trial_s, self.most = watch_s, trial_s, most
        self.trials: dict[int, Trial] = {}
        self.counts = {"packed": 0, "undone": 0}
        self.trial_gpu_s = 0.0  # of packings that were undone
        self._guests: dict[int, list[int]] = {}  # by host
        self._refused: dict[int, list[frozenset[int]]] = {}  # by row: who did not go together with it
        self._fresh = False  # whether trials are to be put in order
        self._paired: set[int] | None = None  # where it is known
        self._units: Ints = np.zeros(0, np.int64)  # by row: its `unit`
        self._waits: set[int] = set()  # guests that were not seen to pay yet
        self._altered: set[int] = set()  # hosts of groups that somebody has joined or left since the last look
        self._unsettled: set[int] = set()  # hosts of groups that are judged at this one

    def members(self, host: int) -> list[int]:
        """A host and its guests."""
        return [host, *self._guests.get(host, ())]

    def unit(self, row: int) -> int:
        """The host of a job's group; itself where it has none."""
        return self.trials[row].host if row in self.trials else row

    @property
    def units(self) -> Ints:
        """The same of all rows that ever shared, and of some more."""
        return self._units

    def _reach(self, row: int) -> None:
        """Let the table of units reach a row."""
        if row >= len(self._units):
            self._units = np.concatenate([self._units, np.arange(len(self._units), 2 * row + 64)])

    def unjudged(self) -> list[Trial]:
        """Trials of guests that were not seen to pay yet."""
        return [self.trials[guest] for guest in self._waits]

    @property
    def packed(self) -> dict[int, int]:
        """Guest -> host."""
        return {guest: trial.host for guest, trial in self.trials.items()}

    @property
    def paired(self) -> set[int]:
        """Everybody in a group."""
        if self._paired is None:
            self._paired = self.trials.keys() | self._guests.keys()
        return self._paired

    def follow(self, running: AbstractSet[int], now_s: float) -> bool:
        """Some have gone: the eldest guest takes the place of a host, and what is left of a group is watched anew.

        Whether groups may be others now.
        """
        for row in [row for row in self._refused if row not in running]:
            for group in self._refused.pop(row):
                for other in group - {row}:
                    left = [one for one in self._refused.get(other, ()) if one != group]
                    self._refused[other] = left
        gone = set() if self.paired <= running else {row for row in self.paired if row not in running}
        if not gone and not self._fresh:
            return False
        self._fresh = bool(gone)  # those who are watched anew come last from then on
        self._regroup(running, gone, now_s)
        return True

    def _regroup(self, running: AbstractSet[int], gone: set[int], now_s: float) -> None:
        changed = {self.unit(row) for row in gone}
        left = {guest: trial for guest, trial in self.trials.items() if guest in running}
        self._units[list(self.trials)] = list(self.trials)
        self.trials, self._guests, self._waits, self._paired = {}, {}, set(), None
        heirs: dict[int, int] = {}
        for guest, trial in sorted(left.items(), key=lambda item: (item[1].since_s, item[0])):
            if trial.host in gone and trial.host not in heirs:
                heirs[trial.host] = guest
                continue
            host = heirs.get(trial.host, trial.host)
            fresh = trial.host in changed
            self._join(guest, Trial(host, now_s) if fresh else trial)

    def _join(self, guest: int, trial: Trial) -> None:
        self.trials[guest], self._paired = trial, None
        self._reach(guest)
        self._units[guest] = trial.host
        if not trial.kept:
            self._waits.add(guest)
        self._guests.setdefault(trial.host, []).append(guest)
        self._altered.add(trial.host)

    def _part(self, guest: int) -> None:
        host, self._paired = self.trials.pop(guest).host, None
        self._units[guest] = guest
        self._waits.discard(guest)
        self._altered.add(host)
        self._guests[host].remove(guest)
        if not self._guests[host]:
            del self._guests[host]

    def progress(self, view: View, rows: list[int]) -> float:
        """What jobs do together while they have their GPUs, as seen in their steps: each 1 if as fast as alone."""
        return sum(pace(view, row) for row in rows)

    def judge(self, board: SharedRoom, view: View, servers: Servers, paces: Paces) -> list[int]:
        """Guests whose group makes less progress than in turns: they are to part from it."""
        parted: list[int] = []
        if not self.trials:
            return parted
        self._look(paces.changed)
        if not self._unsettled:
            return parted
        for guest, trial in [item for item in self.trials.items() if item[1].host in self._unsettled]:
            if view.now_s < trial.since_s + self.trial_s - 1e-9 or self._busy_with_others(trial):
                self._altered.add(trial.host)  # it has still to be judged as it is now
                continue
            group = self.members(trial.host)
            trial.kept = sum(float(paces.pace[view.at(row)]) for row in group) > trial.base
            self._waits.discard(guest)
            if not trial.kept:
                self.counts["undone"] += 1
                self.trial_gpu_s += (view.now_s - trial.since_s) * board.gang(guest)
                for row in group:
                    self._refused.setdefault(row, []).append(frozenset(group))
                self._part(guest)
                servers.unpack(guest)
                parted.append(guest)
        return parted

    def _look(self, changed: list[int]) -> None:
        """Groups in which the pace of somebody has changed, or which are not settled yet, are judged.

        Settled are those who were kept at the last look with the company and the pace that they have now.
        """
        units = {self.unit(row) for row in changed if row in self.trials or row in self._guests}
        waits = {self.trials[guest].host for guest in self._waits}
        self._unsettled, self._altered = units | waits | self._altered, set()

    def _busy_with_others(self, trial: Trial) -> bool:
        """Whether a younger guest of the same group has still to be judged: who was there before is not to blame."""
        others = self._guests[trial.host]
        return len(others) > 1 and any(
            self.trials[one].since_s > trial.since_s and not self.trials[one].kept for one in others
        )

    def pack(
        self, board: SharedRoom, view: View, servers: Servers, moved: set[int], ratio: NDArray[np.float64]
    ) -> None:
        """The least busy job that has been watched joins the least busy GPUs of its size."""
        together = view.facts.together
        assert together is not None
        watched = dict(zip(view.rows.tolist(), view.attained_s.tolist(), strict=True))
        tried = {row for guest in self._waits for row in board.mates(guest)}
        fixed = {row for row in board.gpus_of if row in moved or row in tried or watched[row] < self.watch_s}
        busy = {row: float(together.busy[board.kind(row)]) for row in board.gpus_of}
        paired = self.paired
        alone = sorted(
            (row for row in board.gpus_of if row not in fixed and row not in paired), key=lambda row: (busy[row], row)
        )
        hosts = {row: busy[row] for row in alone}
        for host, guests in self._guests.items():
            if host not in fixed and not fixed.intersection(guests) and all(self.trials[one].kept for one in guests):
                hosts[host] = sum(busy[row] for row in self.members(host))
        for guest in alone:
            if guest not in hosts:  # somebody has just joined it
                continue
            gang = board.gang(guest)
            alike = [row for row in hosts if row != guest and board.gang(row) == gang]
            for host in sorted(alike, key=lambda row: (self._is_full(row, hosts[row] + busy[guest]), hosts[row], row)):
                group = self.members(host)
                if self._may_join(board, guest, group, ratio) and self._seat(board, view, guest, host, moved):
                    base = (self.progress(view, group) + 1.0) / 2.0 if len(group) > 1 else 1.0
                    self._join(guest, Trial(host, view.now_s, base))
                    self._fresh = True
                    servers.pack(guest, host)
                    self.counts["packed"] += 1
                    for row in board.mates(guest):
                        hosts.pop(row, None)
                    break

    def _is_full(self, host: int, busy: float) -> bool:
        """Groups are filled up while their GPUs have time left; all others come by what they use."""
        return busy > 1.0 or host not in self._guests

    def _seat(self, board: SharedRoom, view: View, guest: int, host: int, moved: set[int]) -> bool:
        """Put a guest on the GPUs of its host, if these can take one more, and it can go there."""
        before, need = board.gpus_of[guest], board.need_gib(guest)
        board.remove(guest)
        gpus = list(board.gpus_of[host])
        good = all(len(board.users[gpu]) < col.SLOTS for gpu in gpus) and (gpus == before or may_go(view, guest))
        board.put(guest, gpus if good else before, need)
        if board.gpus_of[guest] != before:
            moved.add(guest)
        return good

    def _may_join(self, board: SharedRoom, guest: int, group: list[int], ratio: NDArray[np.float64]) -> bool:
        """Room for one more, memory for all, nobody known not to go with it."""
        if len(group) >= self.most or self._went_wrong({guest, *group}):
            return False
        there = board.gpus_of[group[0]][0]
        need = board.need_gib(guest) + sum(board.need_gib(row) for row in group)
        fits = need <= board.capacity[there] + 1e-9 and bears(board.view, guest, group, int(board.type_of[there]))
        return fits and all(can_pair(board, guest, row, ratio) for row in group)

    def _went_wrong(self, rows: set[int]) -> bool:
        """Whether some of these were seen not to go together."""
        return any(group <= rows for row in rows for group in self._refused.get(row, ()))


def can_pair(board: SharedRoom, guest: int, host: int, ratio: NDArray[np.float64]) -> bool:
    """Same size and pool, cores on the node, and not known to be impossible."""
    if board.gang(guest) != board.gang(host) or board.parts(guest) or board.parts(host):
        return False
    ours, theirs = board.gpus_of[guest][0], board.gpus_of[host][0]
    if board.pool_of[ours] != board.pool_of[theirs]:
        return False
    nodes = {int(board.node_of[gpu]) for gpu in board.gpus_of[host]}
    if nodes != {int(board.node_of[gpu]) for gpu in board.gpus_of[guest]} and board.site.hosts_bind:
        return False
    first, second, here = board.kind(guest), board.kind(host), int(board.type_of[theirs])
    return bool(ratio[first, second, here] > 0 and ratio[second, first, here] > 0)


def may_go(view: View, row: int) -> bool:
    """Whether a job that runs could go on elsewhere: nobody minds, and it is on its GPUs just now.

    Whoever waits for its turn, or leaves, could not take its work along.
    """
    at, movable = view.at(row), view.facts.movable
    there = bool(view.floats[V_RUNNING, at] > 0 and not view.promised[at] and not view.leaving[at])
    return there and (movable is None or bool(movable[row]))
