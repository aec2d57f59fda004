"""Gandiva as a policy: over-subscribe, take turns, then improve by trial and undo (OSDI'18, section 4).

Turns are played as shares of time (60 s quanta, less what switching costs): every unit of a server, a job or a packed
pair, gets the same. Packing is tried only under overload and only with jobs that have been watched alone; a pair stays
together while the two make more progress than in turns. A job moves when GPUs fall free elsewhere and the cluster's
height sinks, or to empty a server that is mostly free. Elastic jobs grow onto idle GPUs of their server and give
them back as soon as anybody needs them (`growth`). Every mechanism can be switched off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cotenant.core import columns as col
from cotenant.core.errors import InputError
from cotenant.core.plan import Plan, Terms, Why
from cotenant.core.spec import Value
from cotenant.core.view import View
from cotenant.core.workload import Ints
from cotenant.placement.room import SharedRoom
from cotenant.policies.base import Context, PlanPolicy
from cotenant.policies.beliefs import NAMES, NONE, PairBeliefs
from cotenant.policies.gandiva.growth import Growth
from cotenant.policies.gandiva.server import Servers
from cotenant.policies.gandiva.turns import fair_share, height


@dataclass(slots=True)
class Trial:
    """Two jobs on the same GPUs: the guest, since when, and whether the packing has been found to pay."""

    host: int
    since_s: float
    kept: bool = False


class Gandiva(PlanPolicy):
    """Starts jobs at once by taking turns of 60 s; packs, migrates and grows by trial and undo."""

    name = "gandiva"
    source = "Gandiva, OSDI'18"
    preemptive = True
    shares = True
    undoes = True
    takes_turns = True
    resizes = True
    fixed_batch = True
    defaults: ClassVar[dict[str, Value]] = {
        "time_slicing": True,
        "packing": True,
        "migration": True,
        "defragmentation": True,
        "grow_shrink": True,  # of jobs that may change their size
        "quantum": 60.0,  # seconds of a turn
        "switch_s": 0.5,  # suspend and resume; the paper: below 0.1 s to 1 s
        "watch_s": 60.0,  # seconds of running before a job may be packed
        "trial_s": 60.0,
        "residence_s": 300.0,  # least time between two moves of a job
        "idle_s": 30.0,  # for which GPUs must have been idle before a job grows onto them
        "pairs": "none",  # or oracle, formula, learned: try only pairs that are believed to pay (`policies.beliefs`)
    }

    @property
    def quantum_s(self) -> float:  # type: ignore[override]
        """Of a turn."""
        return self.number("quantum")

    def begin(self, context: Context) -> None:
        """Nothing has been tried."""
        for name in ("switch_s", "watch_s", "trial_s", "residence_s", "idle_s"):
            if self.number(name) < 0:
                raise InputError(f"policy '{self.name}': {name}={self.params[name]} must not be negative")
        if not self.quantum_s > 0:
            raise InputError(f"policy '{self.name}': quantum={self.params['quantum']} must be above 0")
        self._pairs = PairBeliefs(self.name, str(self.params["pairs"]), names=(NONE, *NAMES))
        self.trials: dict[int, Trial] = {}  # guest -> trial
        self.refused: set[tuple[int, int]] = set()
        self.refused_rows: dict[int, str] = {}  # why jobs found no place at the last decision
        self.counts = {"packed": 0, "undone": 0, "migrations": 0, "grown": 0, "shrunk": 0}
        self.growth = Growth(self.number("idle_s"), self.number("watch_s"), self.number("trial_s"))

    def decide(self, view: View) -> Plan:
        """Judge packings, place arrivals, improve, give away what is idle, share out the time."""
        self._pairs.look(view)
        board = SharedRoom(view)
        running = set(board.gpus_of)
        before = {row: list(gpus) for row, gpus in board.gpus_of.items()}
        given = self.growth.send_home(board)
        self.trials = {g: t for g, t in self.trials.items() if g in running and t.host in running}
        servers = Servers(board, {guest: trial.host for guest, trial in self.trials.items()})
        moved: set[int] = set()
        self._judge(board, view, servers, moved)
        quota = view.site.quota_left()
        for row, gpus in given.items():
            quota[board.tenant(row)] += len(gpus)
        placed = self._place(board, view, servers, quota)
        if self.params["migration"]:
            self._lower(board, view, servers, moved)
        if self.params["defragmentation"]:
            self._defragment(board, view, servers, moved)
        if self.params["packing"]:
            self._pack(board, view, servers, moved)
        if self.params["grow_shrink"] and view.facts.elastic is not None:
            still = running - moved - set(self.trials) - {trial.host for trial in self.trials.values()}
            calm = placed and not self._overloaded(board, servers)
            self.growth.grow(board, servers, given, still, quota, calm)
        run = {row: board.places(row) for row, gpus in board.gpus_of.items() if gpus != before.get(row)}
        terms, next_s = self._terms(board, servers), self._next_s(board, view, servers)
        pause_s = self._pauses(board, view, before)
        return Plan(run, terms, keep=True, next_s=next_s, pause_s=pause_s, why=self._answers(view))

    def story(self) -> str:
        """What was tried, and how often."""
        counts = self.counts
        text = f"{counts['packed']} packings ({counts['undone']} undone), {counts['migrations']} migrations"
        if counts["grown"]:
            text += f"; jobs grew {counts['grown']} times and shrank {counts['shrunk']} times"
        return text

    def _pauses(self, board: SharedRoom, view: View, before: dict[int, list[int]]) -> dict[int, float]:
        """What changes cost elastic jobs that run: a move a restore, shrinking a pause; growing is the driver's."""
        training, pause_s = view.facts.training, {}
        for row, old in before.items():
            new = board.gpus_of[row]
            if training is None or new == old:
                continue
            self.counts["grown"] += len(new) > len(old)
            self.counts["shrunk"] += len(new) < len(old)
            if not set(new) & set(old) or len(new) == len(old):
                pause_s[row] = float(view.restore_s[view.at(row)])
            elif len(new) < len(old):
                pause_s[row] = training.resize_s
        return pause_s

    def _answers(self, view: View) -> Why:
        """Jobs start at once, and take turns, unless all places are taken."""
        rows, gpus, refused = view.rows, view.gpus, self.refused_rows

        def why(row: int) -> str:
            gang = gpus[np.flatnonzero(rows == row)[0]]
            return f"it needs {gang} GPUs: {refused[row]}" if row in refused else ""

        return why

    def _next_s(self, board: SharedRoom, view: View, servers: Servers) -> float:
        """When the first trial ends or, under overload, the first job has been watched for long enough."""
        times = [trial.since_s + self.number("trial_s") for trial in self.trials.values() if not trial.kept]
        if self.params["packing"] and view.facts.together is not None and self._overloaded(board, servers):
            attained = dict(zip(view.rows.tolist(), view.attained_s.tolist(), strict=True))
            short = (self.number("watch_s") - attained[row] for row in board.gpus_of)
            times += [view.now_s + seconds for seconds in short if seconds > 0]
        if self.params["grow_shrink"] and view.facts.elastic is not None:
            times.append(self.growth.next_s)
        return min((time_s for time_s in times if time_s > view.now_s), default=np.inf)

    # -- reactive ----------------------------------------------------------------------------------------------

    def _place(self, board: SharedRoom, view: View, servers: Servers, quota: Ints) -> bool:
        """Seat whoever waits, within the quotas; whether nobody was left without GPUs."""
        waiting = np.flatnonzero(~view.running)
        at = waiting[np.lexsort((view.rows[waiting], view.submit_s[waiting], -view.priority[waiting]))]
        columns = (view.rows[at], view.tenant[at], view.asked_gpus[at], view.class_number[at])
        failed: set[tuple[int, int]] = set()
        turns = bool(self.params["time_slicing"])
        full = (
            f"on every GPU that it could use {col.SLOTS} jobs take turns already" if turns else "too few GPUs are free"
        )
        self.refused_rows = {}
        for row, tenant, asked, kind in zip(*(column.tolist() for column in columns), strict=True):
            gang = board.gang(row) if row in board.gpus_of else asked
            shape = gang, kind
            if quota[tenant] < gang:
                self.refused_rows[row] = "its tenant has no quota left for them"
                continue
            self.refused_rows[row] = full
            if shape in failed:
                continue
            gpus = servers.place(row, oversubscribe=turns)
            if len(gpus) < gang:
                failed.add(shape)
                continue
            del self.refused_rows[row]
            board.put(row, gpus, float(view.gpu_gib[view.at(row)]))
            quota[tenant] -= gang
        return not failed

    def _terms(self, board: SharedRoom, servers: Servers) -> dict[int, Terms]:
        """Equal parts of the time for every unit of a server; a gang over several has that of the fullest."""
        share: dict[int, float] = {}
        for node in range(len(board.first) - 1):
            size = len(board.gpus(node))
            part = fair_share(servers.slots(node), size, self.number("switch_s"), self.quantum_s)
            for gpu in board.gpus(node):
                for job in board.users[gpu]:
                    share[job] = min(share.get(job, 1.0), part)
        terms = {}
        for row, part in share.items():
            unit = self.trials[row].host if row in self.trials else row
            terms[row] = Terms(share=part, turn=unit + 1)
        return terms

    # -- introspective -----------------------------------------------------------------------------------------

    def _overloaded(self, board: SharedRoom, servers: Servers) -> bool:
        nodes = range(len(board.first) - 1)
        return any(height(servers.slots(node), len(board.gpus(node))) > 1 for node in nodes)

    def _judge(self, board: SharedRoom, view: View, servers: Servers, moved: set[int]) -> None:
        """Undo a packing whose members make less progress than in turns, as seen in their step times."""
        seen = dict(zip(view.rows.tolist(), zip(view.slowdown, view.running, strict=True), strict=True))
        for guest, trial in list(self.trials.items()):
            if view.now_s < trial.since_s + self.number("trial_s") - 1e-9:
                continue
            share = float(view.share[view.at(guest)])
            progress = sum(1 / (float(seen[row][0]) * share) for row in (guest, trial.host) if share > 0)
            trial.kept = progress > 1.0
            if not trial.kept:
                self.counts["undone"] += 1
                self.refused.add((guest, trial.host))
                del self.trials[guest]
                servers.packed.pop(guest, None)
                self._separate(board, view, servers, guest, moved)

    def _separate(self, board: SharedRoom, view: View, servers: Servers, row: int, moved: set[int]) -> None:
        """Back to taking turns, on free GPUs if there are some."""
        before = board.gpus_of[row]
        need = board.need[row]
        board.remove(row)
        gpus = servers.place(row, oversubscribe=True)
        board.put(row, gpus if len(gpus) == len(before) else before, need)
        if board.gpus_of[row] != before:
            moved.add(row)

    def _pack(self, board: SharedRoom, view: View, servers: Servers, moved: set[int]) -> None:
        """Under overload the least busy job that has been watched joins the least busy GPUs of its size."""
        together = view.facts.together
        if together is None or not self._overloaded(board, servers):
            return
        ratio = self._pairs.worth_packing(view) if self._pairs.active else together.ratio
        paired = set(self.trials) | {trial.host for trial in self.trials.values()}
        watched = dict(zip(view.rows.tolist(), view.attained_s.tolist(), strict=True))
        jobs = [
            row for row in board.gpus_of
            if row not in paired and row not in moved and watched[row] >= self.number("watch_s")
        ]  # fmt: skip
        jobs.sort(key=lambda row: (float(together.busy[board.kind(row)]), row))
        taken: set[int] = set()
        for guest in jobs:
            for host in jobs:
                if guest == host or guest in taken or host in taken or (guest, host) in self.refused:
                    continue
                if not self._can_pack(board, guest, host, ratio):
                    continue
                before, need = board.gpus_of[guest], board.need[guest]
                board.remove(guest)
                gpus = list(board.gpus_of[host])
                if any(len(board.users[gpu]) >= col.SLOTS for gpu in gpus):
                    board.put(guest, before, need)
                    continue
                board.put(guest, gpus, need)
                if board.gpus_of[guest] != before:
                    moved.add(guest)
                self.trials[guest] = Trial(host, view.now_s)
                servers.packed[guest] = host
                self.counts["packed"] += 1
                taken |= {guest, host}

    def _can_pack(self, board: SharedRoom, guest: int, host: int, ratio: np.ndarray) -> bool:
        """Same size and pool, memory for both, and not known to be impossible."""
        if board.gang(guest) != board.gang(host) or board.parts(guest) or board.parts(host):
            return False
        ours, theirs = board.gpus_of[guest][0], board.gpus_of[host][0]
        if board.pool_of[ours] != board.pool_of[theirs]:
            return False
        nodes = {int(board.node_of[gpu]) for gpu in board.gpus_of[host]}
        if nodes != {int(board.node_of[gpu]) for gpu in board.gpus_of[guest]} and board.site.hosts_bind:
            return False
        first, second, here = board.kind(guest), board.kind(host), int(board.type_of[theirs])
        fits = board.need[guest] + board.need[host] <= board.capacity[theirs] + 1e-9
        return bool(fits and ratio[first, second, here] > 0 and ratio[second, first, here] > 0)

    def _movable(self, view: View, row: int, moved: set[int]) -> bool:
        if row in moved or row in self.trials or any(trial.host == row for trial in self.trials.values()):
            return False
        at = view.at(row)
        return bool(view.running[at] and view.now_s - view.since_s[at] >= self.number("residence_s"))

    def _lower(self, board: SharedRoom, view: View, servers: Servers, moved: set[int]) -> None:
        """Move jobs that take turns to free GPUs elsewhere."""
        nodes = range(len(board.first) - 1)
        crowded = [node for node in nodes if servers.load(node) > 1 and board.gpus(node)]
        for node in sorted(crowded, key=lambda node: (-servers.load(node), node)):
            for row in servers.jobs(node):
                if servers.load(node) <= 1:
                    break
                if self._movable(view, row, moved):
                    self._move(board, servers, row, moved)

    def _move(
        self, board: SharedRoom, servers: Servers, row: int, moved: set[int], gpus: list[int] | None = None
    ) -> None:
        """Move a job to these GPUs, or to any free ones on other nodes."""
        before, need = board.gpus_of[row], board.need[row]
        homes = {int(board.node_of[gpu]) for gpu in before}
        board.remove(row)
        gpus = servers.place(row, oversubscribe=False) if gpus is None else gpus
        away = {int(board.node_of[gpu]) for gpu in gpus}
        good = len(gpus) == len(before) and not homes & away
        board.put(row, gpus if good else before, need)
        if good:
            moved.add(row)
            self.counts["migrations"] += 1

    def _defragment(self, board: SharedRoom, view: View, servers: Servers, moved: set[int]) -> None:
        """Empty servers of which at least three quarters are free onto fuller ones."""
        nodes = [node for node in range(len(board.first) - 1) if board.gpus(node)]
        sparse = [
            node for node in nodes
            if servers.slots(node) > 0 and 4 * len(servers.free(node)) >= 3 * len(board.gpus(node))
        ]  # fmt: skip
        for node in sorted(sparse, key=lambda node: (-len(servers.free(node)), node)):
            for row in servers.jobs(node):
                gang, free = board.gang(row), len(servers.free(node))
                pools = board.pools(row)
                fuller = [
                    other for other in nodes
                    if board.parts(row) <= 1 and gang <= len(servers.free(other)) < free
                    and board.fed(row, other) >= gang
                    and int(board.site.node[other, col.NODE_POOL]) in pools
                    and board.site.node[other, col.NODE_POOL] == board.site.node[node, col.NODE_POOL]
                ]  # fmt: skip
                if fuller and self._movable(view, row, moved):
                    best = min(fuller, key=lambda other: (len(servers.free(other)), other))
                    self._move(board, servers, row, moved, servers.free(best)[:gang])
