"""The baselines as the released simulator of Muri plays them, for `--compat muri`.

FIFO, SRTF and SRSF place everything anew on an empty cluster at each event; Tiresias has three queues and counts GPUs
without nodes. Where a job sits has no effect there, so the engine may keep it where it is.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from cotenant.core import columns as col
from cotenant.core.plan import Choice
from cotenant.core.state import Rule, make_rule
from cotenant.core.view import View
from cotenant.core.workload import Floats
from cotenant.policies.base import ChoicePolicy, Context, Policy
from cotenant.policies.muri.admission import FirstFit


class _Released(ChoicePolicy):
    """Jobs in order on an empty cluster; whoever does not fit is skipped."""

    strict: ClassVar[bool] = False

    def rule(self, context: Context) -> Rule:
        """Asked at every arrival and completion."""
        return make_rule((), {col.EXTERNAL: 3, col.WAKES: 1}, {})

    def order_value(self, view: View) -> Floats:
        """Smaller comes first."""
        return view.submit_s

    def choose(self, view: View) -> Choice:
        """The first ones that fit."""
        room, pools = FirstFit(view.site.node, view.site.pool), view.open_pools
        chosen: list[tuple[int, int]] = []
        for at in np.lexsort((view.rows, self.order_value(view))).tolist():
            pool = room.take(int(view.gpus[at]), int(pools[at]))
            if pool >= 0:
                chosen.append((int(view.rows[at]), pool))
            elif self.strict:
                break
            if not any(room.left):
                break
        return _choice(chosen)


class ReleasedFifo(_Released):
    """Submit order; the first that does not fit blocks the rest."""

    strict = True


class ReleasedSrtf(_Released):
    """Shortest remaining time first."""

    def order_value(self, view: View) -> Floats:
        """Remaining seconds."""
        return view.remaining_s


class ReleasedSrsf(_Released):
    """Shortest remaining GPU time first."""

    def order_value(self, view: View) -> Floats:
        """Remaining GPU-seconds."""
        return view.remaining_s * view.gpus


class ReleasedTiresias(_Released):
    """Three queues by running time, in order of arrival there, running jobs ahead; GPUs counted without nodes."""

    limits_gpu_s: ClassVar[tuple[float, ...]] = (3250.0, 7200.0)

    def rule(self, context: Context) -> Rule:
        """Queues are kept as lists from event to event."""
        self._queues: list[list[int]] = [[] for _ in range(len(self.limits_gpu_s) + 1)]
        self._seen: set[int] = set()
        return super().rule(context)

    def choose(self, view: View) -> Choice:
        """Demote, walk the queues, put running jobs first in each."""
        gpus = dict(zip(view.rows.tolist(), view.gpus.tolist(), strict=True))
        ran_s = dict(zip(view.rows.tolist(), view.attained_s.tolist(), strict=True))
        new = sorted(row for row in gpus if row not in self._seen)
        self._seen.update(new)
        self._queues[0] += new
        for at, limit in enumerate(self.limits_gpu_s):
            past = [job for job in self._queues[at] if job in gpus and ran_s[job] * gpus[job] >= limit]
            self._queues[at] = [job for job in self._queues[at] if job in gpus and job not in past]
            self._queues[at + 1] += past
        self._queues[-1] = [job for job in self._queues[-1] if job in gpus]
        left = view.cluster_gpus
        chosen: list[int] = []
        next_s = math.inf
        for at, queue in enumerate(self._queues):
            ran: list[int] = []
            for job in queue:
                if gpus[job] <= left:
                    left -= gpus[job]
                    ran.append(job)
                    if at < len(self.limits_gpu_s):
                        wait = math.ceil(self.limits_gpu_s[at] / gpus[job]) - ran_s[job]
                        next_s = min(next_s, view.now_s + wait)
            running = set(ran)
            queue.sort(key=lambda job: job not in running)
            chosen += ran
        return _choice([(job, 0) for job in chosen], next_s)


def _choice(chosen: list[tuple[int, int]], next_s: float = math.inf) -> Choice:
    table = np.array(chosen, np.int64).reshape(-1, 2)
    return Choice(table[:, 0], table[:, 1], np.full(len(table), -1, np.int64), next_s)


_TWINS: dict[str, type[_Released]] = {
    "fifo": ReleasedFifo,
    "srtf": ReleasedSrtf,
    "srsf": ReleasedSrsf,
    "tiresias-l": ReleasedTiresias,
}


def as_released(policy: Policy) -> Policy:
    """The same policy as the released simulator plays it; itself where that has none of the kind."""
    twin = _TWINS.get(policy.name)
    return policy if twin is None else twin()
