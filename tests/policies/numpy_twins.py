"""Policies as a user would write them: the built-in orders again in NumPy, and one whole plan."""

from __future__ import annotations

from cotenant.core import columns as col
from cotenant.core.plan import Plan
from cotenant.core.view import View
from cotenant.core.workload import Floats
from cotenant.policies import PlanPolicy, PriorityPolicy


class Srtf(PriorityPolicy):
    """Shortest remaining time first."""

    def priority(self, view: View) -> Floats:
        return view.remaining_s


class Srsf(PriorityPolicy):
    """Shortest remaining service first."""

    def priority(self, view: View) -> Floats:
        return view.remaining_s * view.gpus


class Sjf(PriorityPolicy):
    """Shortest job first, without preemption."""

    preemptive = False

    def priority(self, view: View) -> Floats:
        return view.believed_s


class Fifo(PriorityPolicy):
    """Submit order; the head blocks."""

    preemptive = False
    strict = True

    def priority(self, view: View) -> Floats:
        return view.submit_s


class Backfill(PriorityPolicy):
    """Submit order; what does not fit is skipped."""

    preemptive = False

    def priority(self, view: View) -> Floats:
        return view.submit_s


class FirstFitPlan(PlanPolicy):
    """Running jobs stay; waiting ones take free GPUs of a single pool, in order of rows."""

    def decide(self, view: View) -> Plan:
        run = {int(row): view.placement(int(row)) for row in view.rows[view.running]}
        free = view.node_free_gpus
        quota = view.site.quota_left()
        for row in sorted(view.rows[~view.running].tolist()):
            need, tenant = int(view.gpus[view.at(row)]), view.tenant[view.at(row)]
            for lo, hi in view.site.pool[:, [col.POOL_LO, col.POOL_HI]]:
                if free[lo:hi].sum() < need or quota[tenant] < need:
                    continue
                slices = []
                for node in range(int(lo), int(hi)):
                    taken = min(int(free[node]), need - sum(gpus for _, gpus in slices))
                    if taken > 0:
                        slices.append((node, taken))
                        free[node] -= taken
                quota[tenant] -= need
                run[row] = tuple(slices)
                break
        return Plan(run)
