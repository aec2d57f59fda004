"""Horus and Horus+ as policies: queue, cost, placement with the fewest nodes (TPDS 33(1), 2022).

The released simulator starts one job per second of its clock; here the step is repeated until nothing starts. Its
interference never takes effect and its memory term has a slip; both are as the paper means them. Utilisation and
memory are predicted from the model's graph (`belief=predicted`; in simulations by a predictor that has not seen the
model run) and taken from the profile where the predictor knows nothing, or everywhere with `belief=profile`. Memory of
jobs that run is seen. A job whose memory was predicted too small would run out of it: that is counted, its true need is
known from then on, and it looks for another place. `pairs` lets slowdowns that are known, guessed or have been watched
take the place of summed utilisation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from cotenant.core.errors import InputError, unknown
from cotenant.core.plan import Plan, Terms, Why
from cotenant.core.spec import Value
from cotenant.core.together import Together
from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints
from cotenant.placement.room import SharedRoom, as_places
from cotenant.policies.base import Context, PlanPolicy
from cotenant.policies.beliefs import NAMES, NONE, PairBeliefs
from cotenant.policies.horus.cost import MARGIN_MIB
from cotenant.policies.horus.queues import clusters, credit
from cotenant.policies.horus.search import MIB, PricedGpus, choose, lay_out, price
from cotenant.policies.squeezing import bears

BELIEFS = ("predicted", "profile")


class Horus(PlanPolicy):
    """Least utilisation first; each job goes where predicted utilisation comes closest to 100 %."""

    name = "horus"
    source = "Horus, TPDS'22"
    preemptive = False
    shares = True
    defaults: ClassVar[dict[str, Value]] = {
        "look_ahead": 5,
        "margin_mib": MARGIN_MIB,
        "task_weight": 1.0,  # of the tasks on a GPU in its cost
        "gpu_choice": "cheapest",  # or first_fit, as in the released code
        "noise": 0.0,  # standard deviation of the logarithm of predicted utilisation
        "belief": "predicted",  # utilisation and memory: predicted where possible, or profile
        "pairs": "none",  # or oracle, formula, learned: see `policies.beliefs`
    }

    def begin(self, context: Context) -> None:
        """Nothing has been predicted or seen."""
        if self.number("look_ahead") < 1:
            raise InputError(f"policy '{self.name}': look_ahead={self.params['look_ahead']} must be at least 1")
        if str(self.params["gpu_choice"]) not in ("cheapest", "first_fit"):
            raise InputError(f"policy '{self.name}': gpu_choice is cheapest or first_fit")
        if str(self.params["belief"]) not in BELIEFS:
            raise unknown(f"belief of policy '{self.name}'", str(self.params["belief"]), BELIEFS)
        self._pairs = PairBeliefs(self.name, str(self.params["pairs"]), names=(NONE, *NAMES))
        self.out_of_memory = 0
        self._board: PricedGpus | None = None
        self._gib: Floats = np.zeros(0)
        self.rng = np.random.default_rng([context.seed, 2022])
        self._believed: Floats | None = None
        self._draws = np.zeros(0)
        self._basis: Together | None = None  # what it believes by
        self._corrected: dict[int, float] = {}  # kind -> GiB that it turned out to need
        self._later = np.random.default_rng([context.seed, 2023])  # for kinds that come later: queues keep their luck

    def next_look(self, now_s: float, waiting: int, idle: int) -> float | None:
        """While nobody waits nothing is done, unless pairs are watched."""
        return None if waiting or self.params["pairs"] == "learned" else np.inf

    def decide(self, view: View) -> Plan:
        """Take up to `look_ahead` jobs, start the first that can be placed; again until nothing starts."""
        self._pairs.look(view)
        waiting = view.rows[~view.running].tolist()
        if not waiting:
            return Plan(keep=True)
        board, quota = lay_out(view, self.utilisation(view), self._board), view.site.quota_left()
        self._board = board
        seated: dict[int, list[int]] = {}
        refused: dict[int, str] = {}
        while waiting:
            started = -1
            for row in self.next_jobs(view, waiting):
                at = view.at(row)
                tenant, gang = int(view.tenant[at]), int(view.asked_gpus[at])
                if quota[tenant] < gang:
                    refused[row] = "its tenant has no quota left for that"
                    continue
                gpus = self._find(board, view, row, seated)
                while gpus and self._too_large(board, at, gpus):
                    gpus = self._find(board, view, row, seated)
                if gpus:
                    _seat(board, view, at, gpus)
                    seated[row] = gpus
                    quota[tenant] -= gang
                    started = row
                    break
                refused[row] = "too few have the memory, a place and company that is known"
            if started < 0:
                break
            waiting.remove(started)
        first = view.site.gpu_first.tolist()
        run = {row: as_places(gpus, first) for row, gpus in seated.items()}
        return Plan(run, {row: Terms() for row in run}, keep=True, why=self._answers(view, refused))

    def _answers(self, view: View, refused: Mapping[int, str]) -> Why:
        """What kept it from a GPU; whoever is not among the first of the queue has not been looked at."""
        rows, gpus, kinds, util = view.rows, view.gpus, view.kind, self._believed
        first = int(self.number("look_ahead"))

        def why(row: int) -> str:
            at = np.flatnonzero(rows == row)[0]
            asks = f"it asks for {gpus[at]} GPUs"
            if util is not None:
                asks += f" that it is predicted to keep {util[kinds[at]]:.0f} % busy"
            return f"{asks}; {refused.get(row, f'it is not among the first {first} of its queue, the least busy')}"

        return why

    def next_jobs(self, view: View, waiting: list[int]) -> list[int]:
        """The jobs that are looked at, in order: least predicted utilisation, then submit time, then row."""
        return self.in_order(view, waiting)[: int(self.number("look_ahead"))]

    def in_order(self, view: View, waiting: list[int]) -> list[int]:
        """All waiting jobs: priority, then least predicted utilisation, then submit time, then row."""
        rows, places = np.array(waiting, np.int64), view.places_of_rows()
        at = np.array([places[row] for row in waiting], np.int64)
        util = self.utilisation(view)[view.kind[at]]
        order = np.lexsort((rows, view.submit_s[at], util, view.tier[at]))
        return [int(row) for row in rows[order]]

    def utilisation(self, view: View) -> Floats:
        """Predicted utilisation of each kind, per cent; 100 where nothing is known."""
        together = view.facts.together
        if self._believed is None or self._basis is not together or len(self._believed) != len(view.site.speed):
            self._basis = together
            busy = np.ones(len(view.site.speed)) if together is None else together.busy
            self._gib = np.full(len(busy), np.nan)
            if together is not None and together.predicted is not None and self.params["belief"] == "predicted":
                predicted = together.predicted
                busy = np.where(np.isnan(predicted.busy), busy, predicted.busy)
                self._gib = predicted.memory_gib * (1.0 if together.soft is None else together.soft.least)
            for kind, gib in self._corrected.items():
                self._gib[kind] = gib
            more = len(busy) - len(self._draws)
            if more > 0:
                rng = self._later if len(self._draws) else self.rng
                self._draws = np.concatenate([self._draws, rng.standard_normal(more)])
            noise = np.exp(self.number("noise") * self._draws)
            self._believed = np.clip(100 * busy * noise, 1.0, 100.0)
        return self._believed

    def memory_mib(self, view: View, rows: Ints) -> Floats:
        """Predicted memory of waiting jobs per GPU; what the profile says where nothing was predicted."""
        self.utilisation(view)
        at = np.array([view.at(row) for row in rows.tolist()], np.int64)
        gib = self._gib[view.kind[at]]
        return np.asarray(MIB * np.where(np.isnan(gib), view.gpu_gib[at], gib))

    def _too_large(self, board: PricedGpus, at: int, gpus: list[int]) -> bool:
        """Whether a job would run out of memory there: its prediction was too small, and is now corrected."""
        free = board.capacity_mib[gpus] - np.append(board.mib, 0.0)[board.users[gpus]].sum(axis=1)
        if (board.mib[at] <= free + 1e-9 * MIB).all():
            return False
        self.out_of_memory += 1
        self._gib[board.kind[at]] = self._corrected[int(board.kind[at])] = float(board.mib[at]) / MIB
        return True

    def story(self) -> str:
        """What wrong predictions of memory did."""
        count = self.out_of_memory
        return f"{count} placements would have run out of memory by a wrong prediction" if count else ""

    # -- placement ---------------------------------------------------------------------------------------------

    def _find(self, board: PricedGpus, view: View, row: int, seated: Mapping[int, list[int]]) -> list[int]:
        """GPUs for a gang; those who were `seated` meanwhile are on the board."""
        at = view.at(row)
        gang, size = int(view.asked_gpus[at]), max(int(view.gpus[at]), 1)
        each = float(view.cpus[at]) / size, float(view.mem_gib[at]) / size
        need = float(self.memory_mib(view, np.array([row]))[0])
        margin, weight = self.number("margin_mib"), self.number("task_weight")
        cheapest = int(self.params["gpu_choice"] == "cheapest")
        self._look_beside(board, view, row)
        for pool in range(len(view.site.pool)):
            if not int(view.open_pools[at]) >> pool & 1:
                continue
            price(board, at, need, *each, pool, margin, weight, cheapest)
            if view.parts[at]:
                gpus = _in_parts(board, view, row, pool, seated)
            else:
                gpus = board.best[: choose(board, pool, gang)].tolist()
            if gpus:
                return gpus
        return []

    def _look_beside(self, board: PricedGpus, view: View, row: int) -> None:
        """Write down where a job must not squeeze in, and how much it would slow down where that is known."""
        together = view.facts.together
        if not self._pairs.active and (together is None or together.soft is None):
            return
        kind, rows = int(view.kind[view.at(row)]), view.rows
        types = view.site.node_type[view.site.gpu_node].tolist()
        for gpu in np.flatnonzero(board.users[:, 0] >= 0).tolist():
            users = board.users[gpu][board.users[gpu] >= 0]
            board.barred[gpu] = not bears(view, row, rows[users].tolist(), types[gpu])
            board.slow[gpu] = self._slowdown(view, kind, board.kind[users], types[gpu])

    def _slowdown(self, view: View, kind: int, others: Ints, where: int) -> float:
        """The largest slowdown that is known between a kind and others on a GPU; 0 where not all are known."""
        if not self._pairs.active:
            return 0.0
        known = self._pairs.known(view)
        if not (known[kind, others, where].all() and known[others, kind, where].all()):
            return 0.0
        table = self._pairs.slowdown(view)
        return float(max(table[kind, others, where].max(), table[others, kind, where].max()))


def _seat(board: PricedGpus, view: View, at: int, gpus: list[int]) -> None:
    """A job takes GPUs, and cores and memory beside each."""
    size = max(int(view.gpus[at]), 1)
    each = np.array([view.cpus[at], view.mem_gib[at]]) / size
    for gpu in gpus:
        board.users[gpu, int((board.users[gpu] >= 0).sum())] = at
        board.hosts[int(np.searchsorted(board.first, gpu, side="right")) - 1] -= each


def _in_parts(board: PricedGpus, view: View, row: int, pool: int, seated: Mapping[int, list[int]]) -> list[int]:
    """GPUs for a job that asks for equal parts on several nodes, of those that were priced."""
    room = SharedRoom(view)
    for other, gpus in seated.items():
        room.put(other, gpus, 0.0)
    cost = np.full(len(board.users), np.inf)
    for node in room.nodes(pool):
        line = board.line[board.first[node] : board.first[node] + board.fit[node]]
        cost[line] = board.cost[line]
    return room.consolidated(row, np.isfinite(cost).tolist(), cost)


class HorusPlus(Horus):
    """Horus with queues of similar jobs, served by waiting-time credit so that heavy ones do not starve."""

    name = "horus+"
    source = "Horus+, TPDS'22"
    defaults: ClassVar[dict[str, Value]] = {**Horus.defaults, "queues": 3, "scaled": True}

    def begin(self, context: Context) -> None:
        """Clusters are found anew when jobs have arrived."""
        self._of: dict[int, int] = {}
        super().begin(context)

    def next_jobs(self, view: View, waiting: list[int]) -> list[int]:
        """Each pick takes the least used job of the queue with the largest credit."""
        self._cluster(view, waiting)
        since = {row: view.now_s - float(view.since_s[view.at(row)]) for row in waiting}
        lines: dict[int, list[int]] = {}
        for row in self.in_order(view, waiting):
            lines.setdefault(self._of[row], []).append(row)
        picked: list[int] = []
        while len(picked) < int(self.number("look_ahead")) and any(lines.values()):
            credits = {queue: credit([since[row] for row in line]) for queue, line in lines.items()}
            best = max(sorted(lines), key=lambda queue: credits[queue] if lines[queue] else -1.0)
            picked.append(lines[best].pop(0))
        return picked

    def _cluster(self, view: View, waiting: list[int]) -> None:
        if all(row in self._of for row in waiting):
            return
        rows = np.array(sorted(waiting), np.int64)
        at = view.at_rows(rows)
        util, gib = self.utilisation(view)[view.kind[at]], self.memory_mib(view, rows)
        gpus = view.gpus[at].astype(np.float64)
        features = np.stack([gpus, np.ones(len(rows)), gpus, util, util, gib, gib], axis=1)
        of = clusters(features, int(self.number("queues")), self.rng, scaled=bool(self.params["scaled"]))
        self._of = dict(zip(rows.tolist(), of.tolist(), strict=True))
