"""A whole plan: who runs, and on which nodes. Written for reading, not for speed."""

from cotenant.core.plan import Plan
from cotenant.policies import PlanPolicy


class PackInOrder(PlanPolicy):
    """Running jobs stay where they are; waiting ones, smallest first, go to the fullest node that holds them."""

    def decide(self, view):
        free = view.node_free_gpus
        plan = {int(row): view.placement(int(row)) for row in view.rows[view.running]}
        waiting = [(int(gpus), int(row)) for gpus, row in zip(view.gpus, view.rows, strict=True) if row not in plan]
        for gpus, row in sorted(waiting):
            nodes = [node for node in range(len(free)) if free[node] >= gpus]
            if nodes:
                best = min(nodes, key=lambda node: free[node])
                free[best] -= gpus
                plan[row] = ((best, gpus),)
        return Plan(plan, why=lambda row: "no node has room for it")
