"""Gandiva as a policy: over-subscribe, take turns, then improve by trial and undo (OSDI'18, section 4).

Where jobs cannot be suspended turns are played as shares of time (60 s quanta, less what switching costs): the units of
a server, jobs or packed groups, get theirs by weight, those of higher priority first (`turns`). Under overload jobs
that have been watched alone are packed, and stay so while that pays (`packing`). Jobs move for four reasons, and back
where they lost by it (`migration`). Elastic jobs grow onto idle GPUs of their server and give them back as soon as
anybody needs them (`growth`). Every mechanism can be switched off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cotenant.core import columns as col
from cotenant.core.errors import InputError
from cotenant.core.outcome import Scalar
from cotenant.core.plan import Places, Plan, Terms, Why
from cotenant.core.spec import Value
from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints
from cotenant.placement.room import SharedRoom
from cotenant.policies.base import Context, PlanPolicy
from cotenant.policies.beliefs import NAMES, NONE, PairBeliefs
from cotenant.policies.gandiva.growth import Growth
from cotenant.policies.gandiva.migration import Migration, Migrator
from cotenant.policies.gandiva.paces import Paces, on_other_terms
from cotenant.policies.gandiva.packing import JobPacking, may_go
from cotenant.policies.gandiva.server import Servers
from cotenant.policies.gandiva.turns import shares


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
        "group": col.SLOTS,  # most jobs packed onto the same GPUs
        "migration": True,  # off servers on which jobs take turns
        "colocation": True,  # of gangs that are spread over more servers than they need
        "parting": True,  # of jobs that are slowed down on GPUs of their own
        "defragmentation": True,
        "grow_shrink": True,  # of jobs that may change their size
        "quantum": 60.0,  # seconds of a turn
        "switch_s": 0.5,  # suspend and resume; the paper: below 0.1 s to 1 s
        "watch_s": 60.0,  # seconds of running before a job may be packed
        "trial_s": 60.0,
        "residence_s": 300.0,  # least time between two moves of a job
        "interference": 0.1,  # part of its speed that a job must have lost on GPUs of its own to be moved away
        "spread_loss": 0.05,  # what a spread gang is believed to lose at least
        "idle_s": 30.0,  # for which GPUs must have been idle before a job grows onto them
        "pairs": "none",  # or oracle, formula, learned: try only pairs that are believed to pay (`policies.beliefs`)
    }

    @property
    def quantum_s(self) -> float:  # type: ignore[override]
        """Of a turn."""
        return self.number("quantum")

    def begin(self, context: Context) -> None:
        """Nothing has been tried."""
        for name in ("switch_s", "watch_s", "trial_s", "residence_s", "idle_s", "interference", "spread_loss"):
            if self.number(name) < 0:
                raise InputError(f"policy '{self.name}': {name}={self.params[name]} must not be negative")
        if not self.quantum_s > 0:
            raise InputError(f"policy '{self.name}': quantum={self.params['quantum']} must be above 0")
        if not 2 <= self.number("group") <= col.SLOTS:
            raise InputError(f"policy '{self.name}': group={self.params['group']} must be 2 to {col.SLOTS}")
        self._pairs = PairBeliefs(self.name, str(self.params["pairs"]), names=(NONE, *NAMES))
        self.refused_rows: dict[int, str] = {}  # why jobs found no place at the last decision
        self._sizes = {"grown": 0, "shrunk": 0}
        watch_s, trial_s = self.number("watch_s"), self.number("trial_s")
        self.packing = JobPacking(watch_s, trial_s, int(self.number("group")))
        limits = self.number("interference"), self.number("spread_loss")
        self.migration = Migration(self.number("residence_s"), trial_s, *limits)
        self.paces = Paces(self.number("interference"))
        self.growth = Growth(self.number("idle_s"), watch_s, trial_s)
        self._room: SharedRoom | None = None
        self._servers: Servers | None = None
        self._parts: dict[int, tuple[int, list[tuple[int, float]]]] = {}  # by node: at which look, who has how much

    @property
    def counts(self) -> dict[str, int]:
        """How often what was done."""
        return self.packing.counts | self.migration.counts | self._sizes

    def decide(self, view: View) -> Plan:
        """Judge packings and moves, place arrivals, improve, give away what is idle, share out the time."""
        self._pairs.look(view)
        self.paces.look(view)
        board = self._room = SharedRoom(view) if self._room is None else self._room.following(view)
        packing, elastic = self.packing, view.facts.elastic
        running = set() if elastic is None else set(board.gpus_of)
        given = self.growth.send_home(board)
        regrouped = packing.follow(board.gpus_of.keys(), view.now_s)
        servers = self._servers
        if servers is None:
            servers = Servers(board, packing.packed)
        elif regrouped or servers.board is not board:
            servers = servers.following(board, packing.packed)
        self._servers = servers
        moved: set[int] = set()
        for guest in packing.judge(board, view, servers, self.paces):
            if may_go(view, guest):
                self._separate(board, servers, guest, moved)
        quota = view.site.quota_left()
        for row, gpus in given.items():
            quota[board.tenant(row)] += len(gpus)
        placed = self._place(board, view, servers, quota)
        self._migrate(board, view, servers, moved)
        if self.params["packing"] and view.facts.together is not None and servers.is_crowded():
            ratio = self._pairs.worth_packing(view) if self._pairs.active else view.facts.together.ratio
            packing.pack(board, view, servers, moved, ratio)
        if self.params["grow_shrink"] and elastic is not None:
            calm = placed and not servers.is_crowded()
            self.growth.grow(board, servers, given, running - moved - packing.paired, quota, calm)
        moves = [(row, before) for row, before in board.former.items() if board.gpus_of.get(row, []) != before]
        run = {row: board.places(row) for row, _ in moves if row in board.gpus_of}
        terms, next_s = self._terms(board, view, servers, run), self._next_s(board, view, servers)
        pause_s = self._pauses(board, view, moves)
        return Plan(run, terms, keep=True, next_s=next_s, pause_s=pause_s, why=self._answers(view))

    def _migrate(self, board: SharedRoom, view: View, servers: Servers, moved: set[int]) -> None:
        """Move jobs, for the reasons that are switched on."""
        mover = Migrator(self.migration, board, view, servers, moved, self.packing.paired, self.paces)
        mover.judge()
        if self.params["migration"]:
            mover.lower()
        if self.params["colocation"]:
            mover.gather()
        if self.params["parting"]:
            mover.part()
        if self.params["defragmentation"]:
            mover.defragment()
        mover.end()

    def story(self) -> str:
        """What was tried, and how often."""
        counts = self.counts
        text = f"{counts['packed']} packings ({counts['undone']} undone)"
        text += f", {counts['migrations']} migrations ({counts['migrations_undone']} undone)"
        if counts["grown"]:
            text += f"; jobs grew {counts['grown']} times and shrank {counts['shrunk']} times"
        return text

    def figures(self) -> dict[str, Scalar]:
        """What was tried, how often, and what it cost in GPU-seconds: undone packings, and moves as believed."""
        counts = self.counts
        return {
            "packings": counts["packed"], "packings_undone": counts["undone"],
            "trial_gpu_s": self.packing.trial_gpu_s, "migrations": counts["migrations"],
            "migrations_undone": counts["migrations_undone"], "migration_gpu_s": self.migration.cost_gpu_s,
        }  # fmt: skip

    def _pauses(self, board: SharedRoom, view: View, moves: list[tuple[int, list[int]]]) -> dict[int, float]:
        """What changes cost elastic jobs that run: a move a restore, shrinking a pause; growing is the driver's."""
        training, pause_s = view.facts.training, {}
        for row, old in moves if training is not None else ():
            new = board.gpus_of[row]
            if not old:
                continue
            self._sizes["grown"] += len(new) > len(old)
            self._sizes["shrunk"] += len(new) < len(old)
            if not set(new) & set(old) or len(new) == len(old):
                pause_s[row] = float(view.restore_s[view.at(row)])
            elif len(new) < len(old) and training is not None:
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
        """When the first trial or move is to be judged or, under overload, a job has been watched for long enough."""
        times = [trial.since_s + self.number("trial_s") for trial in self.packing.unjudged()]
        times += [self.migration.next_s, self.migration.look_s if self.params["parting"] else np.inf]
        if self.params["packing"] and view.facts.together is not None and servers.is_crowded():
            short = self.number("watch_s") - view.attained_s
            short = short[(short > 0) & _seated(board, view)]
            times += [view.now_s + float(short.min())] if len(short) else []
        if self.params["grow_shrink"] and view.facts.elastic is not None:
            times.append(self.growth.next_s)
        return min((time_s for time_s in times if time_s > view.now_s), default=np.inf)

    # -- reactive ----------------------------------------------------------------------------------------------

    def _place(self, board: SharedRoom, view: View, servers: Servers, quota: Ints) -> bool:
        """Seat whoever waits, within the quotas; whether nobody was left without GPUs."""
        self.refused_rows = {}
        at = waiting = self.paces.waiting
        if not len(waiting):
            return True
        if len(at) > 1:
            at = waiting[np.lexsort((view.rows[waiting], view.submit_s[waiting], -view.priority[waiting]))]
        columns = (view.rows[at], view.tenant[at], view.asked_gpus[at], view.class_number[at])
        failed: set[tuple[int, int]] = set()
        turns = bool(self.params["time_slicing"])
        full = (
            f"on every GPU that it could use {col.SLOTS} jobs take turns already" if turns else "too few GPUs are free"
        )
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

    def _terms(self, board: SharedRoom, view: View, servers: Servers, run: Mapping[int, Places]) -> dict[int, Terms]:
        """Parts of the time by weight for every unit of a server; a gang over several has that of the fullest.

        Whoever goes on with what it has is not named. Where nobody waits for a turn everybody has all of the time.
        """
        share: dict[int, float] = {}
        crowded = servers.crowded()
        if not crowded or board.new or not self.paces.equal:  # people may change weights and priorities any time
            self._parts = {}
        for node in crowded:
            look, parts = self._parts.get(node, (-1, []))
            if look != servers.looks[node]:
                look, parts = int(servers.looks[node]), self._on_server(board, view, node)
                self._parts[node] = look, parts
            for job, part in parts:
                share[job] = min(share.get(job, 1.0), part)
        shown: Floats = np.ones(len(view.rows) if share else 0)
        if share:
            at = view.places_of_rows()
            shown[[at[row] for row in share]] = list(share.values())
        new = on_other_terms(view, shown, self.packing.units)
        new = [row for row in new if row in board.gpus_of and (board.all_up or board.up[board.gpus_of[row]].any())]
        return {row: Terms(share=share.get(row, 1.0), turn=self.packing.unit(row) + 1) for row in {*run, *new}}

    def _on_server(self, board: SharedRoom, view: View, node: int) -> list[tuple[int, float]]:
        """The part of the time of each job on a server."""
        gpus = board.gpus(node)
        units: dict[int, list[int]] = {}
        for job in sorted({job for gpu in gpus for job in board.users[gpu]}):
            units.setdefault(self.packing.unit(job), []).append(job)
        size = {unit: sum(unit in board.users[gpu] for gpu in gpus) for unit in units}
        asked = [
            (size[unit], max(float(view.weight[view.at(job)]) for job in jobs),
             max(float(view.priority[view.at(job)]) for job in jobs))
            for unit, jobs in units.items()
        ]  # fmt: skip
        parts = shares(asked, len(gpus), self.number("switch_s"), self.quantum_s)
        return [(job, part) for jobs, part in zip(units.values(), parts, strict=True) for job in jobs]

    def _separate(self, board: SharedRoom, servers: Servers, row: int, moved: set[int]) -> None:
        """Back to taking turns, on free GPUs if there are some."""
        before, need = board.gpus_of[row], board.need_gib(row)
        board.remove(row)
        gpus = servers.place(row, oversubscribe=True)
        board.put(row, gpus if len(gpus) == len(before) else before, need)
        if board.gpus_of[row] != before:
            moved.add(row)


def _seated(board: SharedRoom, view: View) -> NDArray[np.bool_]:
    """Whether each job of a view has GPUs in a room."""
    found = view.running.copy()
    for row in board.reseated:
        found[view.rows == row] = row in board.gpus_of
    return found
