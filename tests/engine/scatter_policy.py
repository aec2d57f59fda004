"""A policy that does anything a plan may do within the limits: random seats, sizes, company, turns, pauses, stops."""

from __future__ import annotations

import numpy as np

from cotenant.core import columns as col
from cotenant.core.plan import Plan, Terms
from cotenant.core.view import View
from cotenant.placement.room import SharedRoom
from cotenant.policies.base import PlanPolicy


class Scatter(PlanPolicy):
    """Seats jobs at random, elastic ones on any number of GPUs; the moment alone decides the dice."""

    name = "scatter"
    shares = True
    resizes = True

    def decide(self, view: View) -> Plan:
        """Some go, some stay, some sit elsewhere or on more or fewer GPUs than before."""
        rng = np.random.default_rng(int(view.now_s * 1000))
        board, terms, pause_s = SharedRoom(view), {}, {}
        quota = view.site.quota_left()
        stop = frozenset(row for row in sorted(board.gpus_of) if rng.random() < 0.1)
        for row in stop:
            quota[board.tenant(row)] += len(board.gpus_of[row])
            board.remove(row)
        for row in rng.permutation(np.sort(view.rows)).tolist():
            if row in stop or rng.random() < 0.4:
                continue
            self._seat(board, view, row, quota, rng)
            if row in board.gpus_of:
                terms[row] = Terms(share=float(rng.choice([1.0, 0.5])), turn=int(rng.choice([0, row + 1])))
                pause_s[row] = float(rng.choice([0.0, 2.0]))
        run = {row: board.places(row) for row in board.gpus_of}
        return Plan(run, terms, keep=True, stop=stop, next_s=view.now_s + 7.0, pause_s=pause_s)

    @staticmethod
    def _seat(board: SharedRoom, view: View, row: int, quota: np.ndarray, rng: np.random.Generator) -> None:
        """Other GPUs for one job; back to the old ones where there are none."""
        elastic, at = view.facts.elastic, view.at(row)
        before, tenant = board.gpus_of.get(row, []), board.tenant(row)
        need = float(view.gpu_gib[at])
        quota[tenant] += len(before)
        board.remove(row)
        size = board.asked(row)
        if elastic is not None and elastic[row]:
            size = int(np.clip(rng.integers(1, 7), *view.size_limits(np.array([row])))[0])
        pool = int(rng.choice(board.pools(row)))
        open_ = [
            gpu for node in board.nodes(pool) for gpu in board.gpus(node)
            if len(board.users[gpu]) < col.SLOTS and board.free_gib(gpu) >= need
        ]  # fmt: skip
        gpus = rng.permutation(open_)[:size].tolist()
        each = np.array([view.cpus[at], view.mem_gib[at]]) / view.gpus[at]
        used = np.bincount(board.node_of[gpus], minlength=len(board.first) - 1)[:, None] * each
        fits = len(gpus) == size and size <= quota[tenant] and board.parts(row) == 0
        if fits and (not view.site.hosts_bind or (used <= board.hosts + 1e-9).all()):
            board.put(row, gpus, need)
        elif before:
            board.put(row, before, need)
        quota[tenant] -= len(board.gpus_of.get(row, []))


class Turning(Scatter):
    """The same, but jobs of different turns really have their GPUs one after the other."""

    name = "turning"
    takes_turns = True
    resizes = False
    quantum_s = 5.0


class Benches(PlanPolicy):
    """Every job on the first GPUs of the node or, if it asks for one only, on that of its number; all take turns."""

    name = "benches"
    shares = True
    takes_turns = True
    quantum_s = 20.0

    def decide(self, view: View) -> Plan:
        """Whoever is new gets its seat."""
        run = {}
        for row, gpus in zip(view.rows[~view.running].tolist(), view.gpus[~view.running].tolist(), strict=True):
            run[row] = ((0, gpus, (1 << gpus) - 1 if gpus > 1 else 1 << row % 2),)
        return Plan(run, {row: Terms(turn=row + 1) for row in run}, keep=True)
