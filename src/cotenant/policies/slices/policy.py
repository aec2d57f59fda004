"""Jobs of one GPU in slices of GPUs, larger gangs on whole ones; slices change when jobs come and go, if that pays.

A job of one GPU starts in the smallest free slice in which it is nearly as fast as on a whole GPU, on the fullest GPU
that has one. If there is none it may join others: the device is divided anew by load, if all of them together are
expected to end sooner than if the newcomer waits. When a job ends, those who wait are asked first; then its neighbours
absorb what it leaves as far as it makes them faster, if the time saved exceeds what the change costs. Without
`dynamic` every job has one slice from start to end. The rules are those of `core.partitions`.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.partitions import Slicing
from cotenant.core.plan import Plan, Why
from cotenant.core.spec import Value
from cotenant.core.view import View
from cotenant.policies.base import Context, PlanPolicy
from cotenant.policies.slices.cutting import Cutting

ORDERS = ("sjf", "fifo")


class SlicedGpus(PlanPolicy):
    """Shortest job first; jobs of one GPU share GPUs in legal slices (MIG and the like) where that beats waiting."""

    name = "slices"
    source = "MIG; Reshadi & Gregg, arXiv 2302.10806"
    preemptive = False
    shares = True
    slices: ClassVar[bool] = True
    defaults: ClassVar[dict[str, Value]] = {
        "order": "sjf",  # or fifo
        "dynamic": True,  # slices of running jobs change; otherwise each keeps the one that it started with
        "speed": 0.9,  # against a whole GPU: a job starts in the smallest slice in which it is so fast
    }

    def begin(self, context: Context) -> None:
        """Nobody was looked at."""
        if self.params["order"] not in ORDERS:
            raise InputError(f"policy '{self.name}': order={self.params['order']} must be one of {', '.join(ORDERS)}")
        if not 0 < self.number("speed") <= 1:
            raise InputError(f"policy '{self.name}': speed={self.params['speed']} must be above 0 and at most 1")
        self.refresh()

    def refresh(self) -> None:
        """Look at everybody anew."""
        self._refused: set[int] = set()  # rows that found nothing on any GPU as they were
        self._seen: dict[int, tuple[int, ...]] = {}  # GPU -> who was there when last looked at

    def decide(self, view: View) -> Plan:
        """Start whom there is a place for, then let neighbours absorb what is free."""
        room = Cutting(view, bool(self.params["dynamic"]), self.number("speed"))
        changed = {gpu for gpu, users in enumerate(room.board.users) if self._seen.get(gpu, ()) != tuple(users)}
        quota = view.site.quota_left()
        ahead, failed, refused = 0, set[int](), set[int]()
        for at in self._queue(view).tolist():
            row, gang, tenant = int(view.rows[at]), int(view.gpus[at]), int(view.tenant[at])
            shape = int(view.class_number[at])
            wish = room.wish(row)
            started = False
            if quota[tenant] >= gang and not (wish == "" and gang > 1 and shape in failed):
                known = row in self._refused
                started = room.start(row, changed if known else None, ahead)
            if started:
                quota[tenant] -= gang
                continue
            failed.add(shape)
            refused.add(row)
            ahead += gang
        if room.dynamic:
            for gpu in sorted(changed):
                room.absorb(gpu)
        self._refused = refused
        self._seen = {gpu: tuple(users) for gpu, users in enumerate(room.board.users) if users}
        run = {row: room.board.places(row) for row in room.started}
        terms = {row: room.terms(row) for row in (*room.started, *room.changed)}
        return Plan(run, terms, keep=True, why=self._answers(view))

    def _queue(self, view: View) -> np.ndarray:
        """Places of waiting jobs in the view, in order."""
        speed = view.site.speed[view.kind, :, 0].max(axis=1)
        left = view.remaining_s / np.where(speed > 0, speed, 1.0)
        key = left if self.params["order"] == "sjf" else view.submit_s
        order = np.lexsort((view.rows, key, -view.priority))
        return order[~view.running[order]]

    def _answers(self, view: View) -> Why:
        """That GPUs as a whole, or slices, are missing; or that a slice would be worse than waiting."""
        rows, gpus, slicing = view.rows, view.gpus, view.facts.slicing

        def why(row: int) -> str:
            gang = int(gpus[int(np.flatnonzero(rows == row)[0])])
            if gang > 1:
                return f"it needs {gang} whole GPUs, and too few are empty"
            wish = _wish(slicing, row)
            if wish:
                return f"it needs a slice {wish} of 1 GPU, and none that it could use has columns free for it"
            if slicing is None:
                return "it needs 1 GPU: none that it could use is empty, and none may be cut into slices"
            return (
                "it needs 1 GPU: none that it could use is empty, and beside others it finds no slice with which all"
                " are expected to end sooner than if it waits"
            )

        return why


def _wish(slicing: Slicing | None, row: int) -> str:
    return "" if slicing is None else slicing.wish(row)
