"""A greedy like Optimus: GPUs one by one to whoever's completion gains most, batch fixed, restart on every change.

Optimus, EuroSys'18, sections 4 and 5, for all-reduce: throughput by size from a model fitted to what was seen, the
remaining work as believed. The batch stays what the job asked for, so that convergence does not change. A change of
size saves and restores the job.
"""

from __future__ import annotations

import heapq
from typing import ClassVar

import numpy as np

from cotenant.core.goodput import fit, linear_batch
from cotenant.core.plan import Plan, Slices
from cotenant.core.spec import Value
from cotenant.core.training import Training
from cotenant.core.view import View
from cotenant.core.workload import Floats
from cotenant.placement.room import Room
from cotenant.policies.base import Context, PlanPolicy
from cotenant.policies.ones.reorder import place_rigid, place_sizes
from cotenant.policies.ones.saying import sizes_said

_GREEDY = "everybody gets the fewest in order of submission, then each GPU goes where it saves most time"


class Optimus(PlanPolicy):
    """Elastic sizes by largest gain in completion time per GPU; the batch stays as asked."""

    name = "optimus"
    source = "like Peng et al., EuroSys'18"
    resizes = True
    fixed_batch = True
    defaults: ClassVar[dict[str, Value]] = {"interval": 300.0}

    def begin(self, context: Context) -> None:
        """Sizes are given out at once."""
        self._next_s = -np.inf

    def decide(self, view: View) -> Plan:
        """Everybody the fewest GPUs it takes in order of submission, then the best gain again and again."""
        board = Room(view)
        elastic, training = view.facts.elastic, view.facts.training
        mine = np.zeros(len(view.rows), bool) if elastic is None else elastic[view.rows]
        run = place_rigid(board, np.flatnonzero(~mine))
        if training is None or not mine.any():
            next_s = np.inf if training is None else view.now_s + self.number("interval")
            return Plan(run, next_s=next_s, why=sizes_said(view, {}, next_s, _GREEDY))
        due = view.now_s >= self._next_s - 1e-9
        if due:
            self._next_s = view.now_s + self.number("interval")
        order = np.lexsort((view.rows, view.submit_s, ~view.running))
        which = order[mine[order]].tolist()
        held = {int(view.rows[at]): int(view.gpus[at]) for at in which if view.running[at]}
        now: dict[int, Slices] = {row: view.placement(row) for row in held}
        sizes = self._sizes(view, which, board.left) if due else dict(held)
        fewest, _ = view.size_limits(view.rows)
        for at in which:  # newcomers between two rounds: as few GPUs as they take
            row = int(view.rows[at])
            if row not in sizes and sum(sizes.values()) + fewest[at] <= board.left:
                sizes[row] = int(fewest[at])
        places = place_sizes(board, [(row, size) for row, size in sizes.items() if size > 0], now)
        pause = {row: float(view.restore_s[view.at(row)]) for row in places if row in now}
        run.update(places)
        why = sizes_said(view, run, self._next_s, _GREEDY)
        return Plan(run, next_s=self._next_s, pause_s=pause, why=why)

    def _sizes(self, view: View, which: list[int], gpus: int) -> dict[int, int]:
        training = view.facts.training
        assert training is not None
        sizes: dict[int, int] = {}
        rates: dict[int, Floats] = {}
        node_gpus = view.site.largest_node
        fewest, most = view.size_limits(view.rows)
        largest = dict(zip(view.rows.tolist(), most.tolist(), strict=True))
        spare = gpus
        for at in which:
            row = int(view.rows[at])
            if fewest[at] > spare:
                continue
            sizes[row] = int(fewest[at])
            spare -= sizes[row]
            rates[row] = fitted_rates(training, row, gpus, node_gpus)
        asked = {int(view.rows[at]): int(view.asked_gpus[at]) for at in which}
        left_s = {int(view.rows[at]): float(view.remaining_s[at]) for at in which}

        def gain(row: int) -> float:
            """Seconds saved by one more GPU."""
            rate, size = rates[row], sizes[row]
            if size >= min(gpus, largest[row]) or rate[size + 1] <= rate[size]:
                return 0.0
            work = left_s[row] * rate[min(asked[row], gpus)]
            return float(work / rate[size] - work / rate[size + 1])

        heap = [(-gain(row), row) for row in sizes]
        heapq.heapify(heap)
        while spare > 0 and heap:
            negative, row = heapq.heappop(heap)
            if negative >= 0:
                break
            sizes[row] += 1
            spare -= 1
            heapq.heappush(heap, (-gain(row), row))
        return sizes


def fitted_rates(training: Training, row: int, most: int, node_gpus: int) -> Floats:
    """Samples per second of a job on 0 to `most` GPUs with its batch, by steps fitted to what was seen of its kind.

    Between and beyond the sizes seen the model of a step (`core.goodput`) says what to expect; sizes on which the job
    itself was seen keep what was seen; nothing seen means no communication.
    """
    kind = np.flatnonzero(training.kind == training.kind[row])
    rows, sizes = np.nonzero(training.seen[kind, : most + 1] > 0)
    if not len(rows):
        return np.arange(most + 1, dtype=np.float64)
    steps = set()
    for other, gpus in zip(kind[rows].tolist(), sizes.tolist(), strict=True):
        local = max(_whole_batch(training, other) // gpus, 1)
        seconds = local * gpus / training.seen[other, gpus]
        steps.add((float(local), gpus, -(-gpus // node_gpus), float(f"{seconds:.5g}")))
    grid = np.arange(1, most + 1)
    own_batch = np.maximum(_whole_batch(training, row) // grid, 1)
    rate = np.concatenate([[0.0], fit(tuple(steps)).throughput(own_batch, grid, -(-grid // node_gpus))])
    own = np.flatnonzero(training.seen[row, : most + 1] > 0)
    rate[own] = training.seen[row, own]
    return rate


def _whole_batch(training: Training, row: int) -> int:
    """Samples per step of a job on the GPUs that it asked for, which it keeps on any number of them."""
    base, base_lr, max_lr = int(training.batch[row]), float(training.base_lr[row]), float(training.max_lr[row])
    asked = int(training.asked[row])
    return asked * linear_batch(base, base_lr, max_lr, asked)[0]
