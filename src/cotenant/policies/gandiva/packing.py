"""Packing by trial and undo (Gandiva, OSDI'18, section 4.2): jobs join others on their GPUs, and stay while that pays.

Only under overload, only jobs that have been watched alone, only where the memory of all fits. The least busy job joins
a group whose GPUs have time left, or the least busy GPUs; one after the other, up to `most` on the same GPUs. Nobody
has to know such a group beforehand. It is judged by what its members are seen to do: all of them together must make
more progress than the group of before and the newcomer would in turns, (P + 1) / 2, P being what the group made
without it. Watching goes on, and a later drop undoes it too. Jobs that were seen not to go together are not tried
again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cotenant.core import columns as col
from cotenant.core.view import View
from cotenant.placement.room import SharedRoom
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
        self._refused: set[frozenset[int]] = set()  # who did not go together

    def members(self, host: int) -> list[int]:
        """A host and its guests."""
        return [host, *(guest for guest, trial in self.trials.items() if trial.host == host)]

    def unit(self, row: int) -> int:
        """The host of a job's group; itself where it has none."""
        return self.trials[row].host if row in self.trials else row

    @property
    def packed(self) -> dict[int, int]:
        """Guest -> host."""
        return {guest: trial.host for guest, trial in self.trials.items()}

    @property
    def paired(self) -> set[int]:
        """Everybody in a group."""
        return set(self.trials) | {trial.host for trial in self.trials.values()}

    def follow(self, running: set[int], now_s: float) -> None:
        """Some have gone: the eldest guest takes the place of a host, and what is left of a group is watched anew."""
        gone = {row for row in self.paired if row not in running}
        self._refused = {group for group in self._refused if group <= running}
        changed = {self.unit(row) for row in gone}
        left = {guest: trial for guest, trial in self.trials.items() if guest in running}
        self.trials = {}
        heirs: dict[int, int] = {}
        for guest, trial in sorted(left.items(), key=lambda item: (item[1].since_s, item[0])):
            if trial.host in gone and trial.host not in heirs:
                heirs[trial.host] = guest
                continue
            host = heirs.get(trial.host, trial.host)
            fresh = trial.host in changed
            self.trials[guest] = Trial(host, now_s) if fresh else trial

    def progress(self, view: View, rows: list[int]) -> float:
        """What jobs do together while they have their GPUs, as seen in their steps: each 1 if as fast as alone."""
        return sum(pace(view, row) for row in rows)

    def judge(self, board: SharedRoom, view: View, servers: Servers) -> list[int]:
        """Guests whose group makes less progress than in turns: they are to part from it."""
        parted = []
        for guest, trial in list(self.trials.items()):
            if view.now_s < trial.since_s + self.trial_s - 1e-9 or self._busy_with_others(trial):
                continue
            group = self.members(trial.host)
            trial.kept = self.progress(view, group) > trial.base
            if not trial.kept:
                self.counts["undone"] += 1
                self.trial_gpu_s += (view.now_s - trial.since_s) * board.gang(guest)
                self._refused.add(frozenset(group))
                del self.trials[guest]
                servers.unpack(guest)
                parted.append(guest)
        return parted

    def _busy_with_others(self, trial: Trial) -> bool:
        """Whether a younger guest of the same group has still to be judged: who was there before is not to blame."""
        return any(
            other is not trial and other.host == trial.host and other.since_s > trial.since_s and not other.kept
            for other in self.trials.values()
        )

    def pack(
        self, board: SharedRoom, view: View, servers: Servers, moved: set[int], ratio: NDArray[np.float64]
    ) -> None:
        """The least busy job that has been watched joins the least busy GPUs of its size."""
        together = view.facts.together
        assert together is not None
        watched = dict(zip(view.rows.tolist(), view.attained_s.tolist(), strict=True))
        tried = {row for guest, trial in self.trials.items() if not trial.kept for row in board.mates(guest)}
        fixed = {row for row in board.gpus_of if row in moved or row in tried or watched[row] < self.watch_s}
        busy = {row: float(together.busy[board.kind(row)]) for row in board.gpus_of}
        alone = sorted(
            (row for row in board.gpus_of if row not in fixed | self.paired), key=lambda row: (busy[row], row)
        )
        hosts = {row: busy[row] for row in alone}
        for host in {trial.host for trial in self.trials.values()}:
            group = self.members(host)
            if not fixed & set(group) and all(self.trials[guest].kept for guest in group[1:]):
                hosts[host] = sum(busy[row] for row in group)
        for guest in alone:
            if guest not in hosts:  # somebody has just joined it
                continue
            for host in sorted(hosts, key=lambda row: (self._is_full(row, hosts[row] + busy[guest]), hosts[row], row)):
                group = self.members(host)
                if (
                    host != guest
                    and self._may_join(board, guest, group, ratio)
                    and self._seat(board, view, guest, host, moved)
                ):
                    base = (self.progress(view, group) + 1.0) / 2.0 if len(group) > 1 else 1.0
                    self.trials[guest] = Trial(host, view.now_s, base)
                    servers.pack(guest, host)
                    self.counts["packed"] += 1
                    hosts = {row: hosts[row] for row in hosts if row not in board.mates(guest)}
                    break

    def _is_full(self, host: int, busy: float) -> bool:
        """Groups are filled up while their GPUs have time left; all others come by what they use."""
        return busy > 1.0 or len(self.members(host)) == 1

    def _seat(self, board: SharedRoom, view: View, guest: int, host: int, moved: set[int]) -> bool:
        """Put a guest on the GPUs of its host, if these can take one more, and it can go there."""
        before, need = board.gpus_of[guest], board.need[guest]
        board.remove(guest)
        gpus = list(board.gpus_of[host])
        good = all(len(board.users[gpu]) < col.SLOTS for gpu in gpus) and (gpus == before or may_go(view, guest))
        board.put(guest, gpus if good else before, need)
        if board.gpus_of[guest] != before:
            moved.add(guest)
        return good

    def _may_join(self, board: SharedRoom, guest: int, group: list[int], ratio: NDArray[np.float64]) -> bool:
        """Room for one more, memory for all, nobody known not to go with it."""
        if len(group) >= self.most or any(refused <= {guest, *group} for refused in self._refused):
            return False
        there = board.gpus_of[group[0]][0]
        need = board.need[guest] + sum(board.need[row] for row in group)
        fits = need <= board.capacity[there] + 1e-9 and bears(board.view, guest, group, int(board.type_of[there]))
        return fits and all(can_pair(board, guest, row, ratio) for row in group)


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
    there = bool(view.running[at] and not view.promised[at] and not view.leaving[at])
    return there and (movable is None or bool(movable[row]))


def pace(view: View, row: int) -> float:
    """Speed of a job against alone on its GPUs while it has them: pauses between its turns do not count."""
    at = view.at(row)
    alone, share = float(view.alone_speed[at]), float(view.share[at])
    if alone <= 0 or not view.running[at]:
        return 1.0
    return min(float(view.speed[at]) / (alone * (1.0 if view.site.rotates else share)), 1.0)
