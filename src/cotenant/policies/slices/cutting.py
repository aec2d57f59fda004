"""The GPUs of a cluster while a plan of slices is made: who sits where, in which slice, and who may come."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cotenant.core.partitions import Partitions
from cotenant.core.plan import ALONE, Terms
from cotenant.core.view import View
from cotenant.placement.room import SharedRoom
from cotenant.policies.slices.device import Cut, Sharer, absorbed, beside, divided, gain_s

LEAST_LOAD = 0.05  # however idle a job leaves a GPU
_WHOLE: Cut = (-1, 0)  # the slice of whoever has GPUs that are not cut


class Cutting:
    """A decision in the making. `cuts` are the slices of jobs of one GPU on devices that may be cut."""

    def __init__(self, view: View, dynamic: bool, speed: float) -> None:
        self.view, self.speed = view, speed
        self.board = SharedRoom(view)
        self.slicing = view.facts.slicing
        self.dynamic = dynamic and self.slicing is not None and not self.slicing.fixed
        self.started: list[int] = []
        self.changed: dict[int, None] = {}
        of_node = np.full(len(view.site.node), -1) if self.slicing is None else self.slicing.of_node
        self._table_of: list[int] = of_node[self.board.node_of].tolist()
        self.cuts: dict[int, Cut] = {row: self._now(row) for row in self.board.gpus_of}
        self._empty = {gpu for gpu, users in enumerate(self.board.users) if not users and self.board.up[gpu]}
        self._sharers: dict[tuple[int, int, int], Sharer | None] = {}
        self._freed: list[float] | None = None

    def _now(self, row: int) -> Cut:
        at = self.view.at(row)
        table = self._table(self.board.gpus_of[row][0])
        shape = int(self.view.sliced[at])
        if shape:
            return shape - 1, int(self.view.column[at])
        return _WHOLE if table is None or len(self.board.gpus_of[row]) > 1 else (table.whole, 0)

    def _table(self, gpu: int) -> Partitions | None:
        return None if self.slicing is None or self._table_of[gpu] < 0 else self.slicing.tables[self._table_of[gpu]]

    def wish(self, row: int) -> str:
        """The slice that a job asks for; empty where it leaves that open."""
        return "" if self.slicing is None else self.slicing.wish(row)

    def terms(self, row: int) -> Terms:
        """What is agreed with a job: all of its GPUs, or a slice, which may be a share of the time."""
        table, (number, column) = self._table(self.board.gpus_of[row][0]), self.cuts[row]
        if table is None or number in (-1, table.whole):
            return ALONE
        return Terms(share=table.shapes[number].compute if table.timed else 1.0, sliced=number + 1, column=column)

    # -- those who come ------------------------------------------------------------------------------------------------

    def start(self, row: int, only: set[int] | None, ahead: int) -> bool:
        """Find a place for a job, if there is one; on GPUs `only`, or anywhere.

        `ahead` GPUs are to go to others before it has a GPU of its own.
        """
        if self.board.gang(row) > 1 or self.slicing is None:
            return self._start_whole(row)
        return self._start_sliced(row, only) or (self.dynamic and not self.wish(row) and self._join(row, only, ahead))

    def _start_whole(self, row: int) -> bool:
        if len(self._empty) < self.board.gang(row):
            return False
        gpus = self.board.consolidated(row, [gpu in self._empty for gpu in range(len(self.board.users))])
        if not gpus:
            return False
        table = self._table(gpus[0])
        self._seat(row, gpus, _WHOLE if table is None or len(gpus) > 1 else (table.whole, 0))
        return True

    def _start_sliced(self, row: int, only: set[int] | None) -> bool:
        """A slice beside others as they are: of the shape that is asked for, or the smallest that is fast enough.

        Fullest GPUs come first. A GPU that cannot be cut has to be empty for it.
        """
        best: tuple[tuple[int, int], Cut] | None = None
        for gpu in self._open_to(row, only):
            table, mine = self._table(gpu), self._sharer(row, gpu)
            if table is None or mine is None:
                continue
            shape = mine.least if self.wish(row) else mine.most
            cuts = [self.cuts[user] for user in self.board.users[gpu]]
            start = beside(table, cuts, shape)
            columns = sum(table.shapes[number].columns for number, _ in cuts)
            if start >= 0 and (best is None or (-columns, gpu) < best[0]):
                best = (-columns, gpu), (shape, start)
        if best is None:
            return self.wish(row) == "" and self._start_whole(row)
        self._seat(row, [best[0][1]], best[1])
        return True

    def _join(self, row: int, only: set[int] | None, ahead: int) -> bool:
        """Share the GPU on which that gains most; not if waiting is better everywhere."""
        best_gain, best_gpu, best_cuts, wait_s = 0.0, -1, list[Cut](), self._wait_s(ahead)
        for gpu in self._open_to(row, only):
            table, mine = self._table(gpu), self._sharer(row, gpu)
            there = self._sharers_on(gpu)
            if table is None or mine is None or not there:
                continue
            now = [self.cuts[one.row] for one in there]
            then = divided(table, [*there, mine], now)
            gain = gain_s(there, now, mine, then, wait_s) if then is not None else 0.0
            if then is not None and gain > best_gain:
                best_gain, best_gpu, best_cuts = gain, gpu, then
        if best_gpu < 0:
            return False
        self._recut(self.board.users[best_gpu], best_cuts[:-1])
        self._seat(row, [best_gpu], best_cuts[-1])
        return True

    def _open_to(self, row: int, only: set[int] | None) -> Iterable[int]:
        """GPUs in whose pools a job may run and whose nodes can feed it."""
        pools, board = set(self.board.pools(row)), self.board
        for gpu in range(len(board.users)) if only is None else sorted(only):
            if board.up[gpu] and int(board.pool_of[gpu]) in pools and board.fed(row, int(board.node_of[gpu])) > 0:
                yield gpu

    def _seat(self, row: int, gpus: list[int], cut: Cut) -> None:
        self.board.put(row, gpus, self._need_gib(row))
        self.cuts[row] = cut
        self.started.append(row)
        self._empty.difference_update(gpus)
        self._freed = None

    def _recut(self, rows: Iterable[int], cuts: Iterable[Cut]) -> None:
        for row, cut in zip(rows, cuts, strict=True):
            if self.cuts[row] != cut and row not in self.started:
                self.changed[row] = None
            self.cuts[row] = cut
        self._freed = None

    # -- those who stay ------------------------------------------------------------------------------------------------

    def absorb(self, gpu: int) -> None:
        """Let those on a GPU have what is free there, if it pays."""
        table, there = self._table(gpu), self._sharers_on(gpu)
        if table is None or not there or not self.board.up[gpu]:
            return
        then = absorbed(table, there, [self.cuts[one.row] for one in there])
        if then is not None:
            self._recut([one.row for one in there], then)

    def _sharers_on(self, gpu: int) -> list[Sharer]:
        """Those on a GPU; none where one of them cannot share it."""
        found = [self._sharer(row, gpu) for row in self.board.users[gpu] if len(self.board.gpus_of[row]) == 1]
        known = [one for one in found if one is not None]
        return known if len(known) == len(self.board.users[gpu]) else []

    def _sharer(self, row: int, gpu: int) -> Sharer | None:
        """A job as a device sees it; None where its memory, or the slice that it asks for, is not to be had there."""
        key = row, self._table_of[gpu], int(self.board.type_of[gpu])
        if key not in self._sharers:
            self._sharers[key] = self._see(row, gpu)
        return self._sharers[key]

    def _see(self, row: int, gpu: int) -> Sharer | None:
        view, at, table = self.view, self.view.at(row), self._table(gpu)
        if table is None or self.slicing is None:
            return None
        kind, wish = int(view.kind[at]), self.wish(row)
        capacity = float(self.board.capacity[gpu])
        least = table.least_for(self._need_gib(row) / capacity if np.isfinite(capacity) else 0.0)
        asked = table.find(wish) if wish else 0
        if least < 0 or asked < 0:
            return None
        speed = float(view.alone_speed[at]) if row in self.board.gpus_of else 0.0
        speed = speed or float(view.site.speed[kind, int(self.board.type_of[gpu]), 0])
        together = view.facts.together
        load = 1.0 if together is None else float(together.busy[kind])
        cost_s = table.reconfigure_s + (float(view.restore_s[at]) if table.restarts else 0.0)
        left_s = float(view.remaining_s[at]) / speed if speed > 0 else np.inf
        speeds = self.slicing.speed[kind, self._table_of[gpu]]
        least = max(least, asked)
        most = next(n for n in range(least, len(table.shapes)) if n == table.whole or speeds[n] >= self.speed)
        return Sharer(row, left_s, max(load, LEAST_LOAD), speeds, least, most, cost_s)

    def _need_gib(self, row: int) -> float:
        together, at = self.view.facts.together, self.view.at(row)
        stated = float(self.view.gpu_gib[at])
        return stated if together is None or stated > 0 else float(together.memory_gib[self.view.kind[at], 0])

    def _wait_s(self, ahead: int) -> float:
        """When a job would have a GPU of its own after so many others were given away."""
        if self._freed is None:
            self._freed = sorted(self._free_in_s(gpu) for gpu in range(len(self.board.users)) if self.board.up[gpu])
        return self._freed[min(ahead, len(self._freed) - 1)] if self._freed else np.inf

    def _free_in_s(self, gpu: int) -> float:
        """When the last job on a GPU is expected to end."""
        view, last_s = self.view, 0.0
        for row in self.board.users[gpu]:
            at = view.at(row)
            speed = float(view.alone_speed[at]) if view.running[at] else 1.0
            one = self._sharer(row, gpu) if len(self.board.gpus_of[row]) == 1 else None
            if one is not None:
                speed *= float(one.speed[self.cuts[row][0]])
            last_s = max(last_s, float(view.remaining_s[at]) / speed if speed > 0 else np.inf)
        return last_s
