"""Horus and Horus+ as policies: queue, cost, placement with the fewest nodes (TPDS 33(1), 2022).

The released simulator starts one job per second of its clock; here the step is repeated until nothing starts. Its
interference never takes effect and its memory term has a slip; both are as the paper means them. Utilisation and memory
come from the profile, or from the predictor that a user put there, with noise if asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from cotenant.core import columns as col
from cotenant.core.errors import InputError
from cotenant.core.plan import Plan, Terms
from cotenant.core.spec import Value
from cotenant.core.state import Rule
from cotenant.core.view import View
from cotenant.core.workload import Floats
from cotenant.placement.board import Board
from cotenant.policies.base import Context, PlanPolicy, carry_over
from cotenant.policies.horus.cost import MARGIN_MIB, feasible, gpu_cost
from cotenant.policies.horus.queues import clusters, credit
from cotenant.policies.steady_kinds import SteadyKinds

MIB = 1024.0


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
    }

    def rule(self, context: Context) -> Rule:
        """Asked after every event."""
        if self.number("look_ahead") < 1:
            raise InputError(f"policy '{self.name}': look_ahead={self.params['look_ahead']} must be at least 1")
        if str(self.params["gpu_choice"]) not in ("cheapest", "first_fit"):
            raise InputError(f"policy '{self.name}': gpu_choice is cheapest or first_fit")
        self.rng = np.random.default_rng([context.seed, 2022])
        self._believed: Floats | None = None
        self._kinds, self._draws = SteadyKinds(), np.zeros(0)
        self._later = np.random.default_rng([context.seed, 2023])  # for kinds that come later: queues keep their luck
        self.refused: dict[int, str] = {}
        return super().rule(context)

    def renumber(self, new_row: Mapping[int, int]) -> None:
        """Beliefs are worked out anew; what was drawn for a kind stays with its jobs."""
        self._believed = None
        self._kinds.renumber(new_row)
        self.refused = carry_over(self.refused, new_row)

    def decide(self, view: View) -> Plan:
        """Take up to `look_ahead` jobs, start the first that can be placed; again until nothing starts."""
        board = Board(view)
        running = set(board.gpus_of)
        quota = view.state.quota[:, col.Q_LIMIT] - view.state.quota[:, col.Q_USED]
        waiting = [row for row in view.rows.tolist() if row not in running]
        self.refused = {}
        if self.number("noise") > 0:
            self._kinds.look(view)
        while waiting:
            started = -1
            for row in self.next_jobs(view, waiting):
                if quota[view.state.i[row, col.TENANT]] < board.gang(row):
                    self.refused[row] = "quota"
                    continue
                gpus = self._find(board, view, row)
                if gpus:
                    board.put(row, gpus, float(view.state.f[row, col.GPU_GIB]))
                    quota[view.state.i[row, col.TENANT]] -= board.gang(row)
                    started = row
                    break
                self.refused[row] = "no GPU with the memory, a place and company that is known"
            if started < 0:
                break
            waiting.remove(started)
        run = {row: board.places(row) for row in board.gpus_of if row not in running}
        return Plan(run, {row: Terms() for row in run}, keep=True)

    def next_jobs(self, view: View, waiting: list[int]) -> list[int]:
        """The jobs that are looked at, in order: least predicted utilisation, then submit time, then row."""
        return self.in_order(view, waiting)[: int(self.number("look_ahead"))]

    def in_order(self, view: View, waiting: list[int]) -> list[int]:
        """All waiting jobs: priority, then least predicted utilisation, then submit time, then row."""
        rows = np.array(waiting, np.int64)
        util = self.utilisation(view)[view.state.i[rows, col.SPEED_ROW]]
        order = np.lexsort((rows, view.state.f[rows, col.SUBMIT], util, view.state.f[rows, col.TIER]))
        return [int(row) for row in rows[order]]

    def utilisation(self, view: View) -> Floats:
        """Predicted utilisation of each kind, per cent; 100 where nothing is known."""
        if self._believed is None:
            together = view.facts.together
            busy = np.ones(len(view.state.speed)) if together is None else together.busy
            numbers = self._kinds.look(view)
            more = int(numbers.max(initial=-1)) + 1 - len(self._draws)
            if more > 0:
                rng = self._later if len(self._draws) else self.rng
                self._draws = np.concatenate([self._draws, rng.standard_normal(more)])
            noise = np.exp(self.number("noise") * self._draws[numbers])
            self._believed = np.clip(100 * busy * noise, 1.0, 100.0)
        return self._believed

    # -- placement ---------------------------------------------------------------------------------------------

    def _find(self, board: Board, view: View, row: int) -> list[int]:
        """GPUs for a gang: of the complete placements from the best seeds the one with the fewest nodes."""
        gang = board.gang(row)
        for pool in board.pools(row):
            cost = self._costs(board, view, row, pool)
            if board.parts(row):
                price = {gpu: value for gpus in cost.values() for gpu, value in gpus}
                rank = np.array([price.get(gpu, np.inf) for gpu in range(len(board.users))])
                found = board.consolidated(row, [gpu in price for gpu in range(len(board.users))], rank)
                if found:
                    return found
                continue
            value = {node: min(c for _, c in gpus) for node, gpus in cost.items()}
            seeds = sorted(value, key=lambda node: (value[node], node))[:gang]
            best: list[int] = []
            fewest = len(cost) + 1
            for seed in seeds:
                others = sorted((node for node in cost if node != seed), key=lambda node: (abs(node - seed), node))
                gpus: list[int] = []
                nodes = 0
                for node in (seed, *others):
                    if len(gpus) < gang:
                        gpus += [gpu for gpu, _ in cost[node]][: gang - len(gpus)]
                        nodes += 1
                if len(gpus) == gang and nodes < fewest:
                    best, fewest = gpus, nodes
            if best:
                return best
        return []

    def _costs(self, board: Board, view: View, row: int, pool: int) -> dict[int, list[tuple[int, float]]]:
        """Feasible GPUs of each node with their costs, cheapest first (or by index)."""
        util = self.utilisation(view)
        kind = board.kind(row)
        need = float(view.state.f[row, col.GPU_GIB]) * MIB
        found: dict[int, list[tuple[int, float]]] = {}
        for node in board.nodes(pool):
            here = []
            for gpu in board.gpus(node):
                users = board.users[gpu]
                if not self._may_join(board, view, kind, need, gpu):
                    continue
                capacity = float(board.capacity[gpu]) * MIB
                residents = [(float(util[board.kind(job)]), board.need[job] * MIB) for job in users]
                weight = self.number("task_weight")
                here.append((gpu, gpu_cost(residents, float(util[kind]), need, capacity, task_weight=weight)))
            if self.params["gpu_choice"] == "cheapest":
                here.sort(key=lambda pair: (pair[1], pair[0]))
            here = here[: board.fed(row, node)]
            if here:
                found[node] = here
        return found

    def _may_join(self, board: Board, view: View, kind: int, need_mib: float, gpu: int) -> bool:
        """An empty GPU takes whatever fits; others only with the margin, a place and a company that is known."""
        users = board.users[gpu]
        if not users:
            return True
        together = view.facts.together
        if together is None or (together.ratio[kind, [board.kind(job) for job in users]].max(axis=1) <= 0).any():
            return False
        held = sum(board.need[job] for job in users) * MIB
        return feasible(held, len(users), need_mib, float(board.capacity[gpu]) * MIB, self.number("margin_mib"))


class HorusPlus(Horus):
    """Horus with queues of similar jobs, served by waiting-time credit so that heavy ones do not starve."""

    name = "horus+"
    source = "Horus+, TPDS'22"
    defaults: ClassVar[dict[str, Value]] = {**Horus.defaults, "queues": 3, "scaled": True}

    def rule(self, context: Context) -> Rule:
        """Clusters are found anew when jobs have arrived."""
        self._of: dict[int, int] = {}
        return super().rule(context)

    def renumber(self, new_row: Mapping[int, int]) -> None:
        """Queues go with their jobs."""
        super().renumber(new_row)
        self._of = carry_over(self._of, new_row)

    def next_jobs(self, view: View, waiting: list[int]) -> list[int]:
        """Each pick takes the least used job of the queue with the largest credit."""
        self._cluster(view, waiting)
        since = {row: view.now_s - float(view.state.f[row, col.SINCE]) for row in waiting}
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
        kinds = view.state.i[rows, col.SPEED_ROW]
        util, gib = self.utilisation(view)[kinds], view.state.f[rows, col.GPU_GIB] * MIB
        gpus = view.state.i[rows, col.GPUS].astype(np.float64)
        features = np.stack([gpus, np.ones(len(rows)), gpus, util, util, gib, gib], axis=1)
        of = clusters(features, int(self.number("queues")), self.rng, scaled=bool(self.params["scaled"]))
        self._of = dict(zip(rows.tolist(), of.tolist(), strict=True))
