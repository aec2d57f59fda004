"""Policies, one algorithm per file. What a new one needs: `cotenant.policies.base` and docs/policies.md."""

from cotenant.policies.base import Context, OrderPolicy, PlanPolicy, Policy, PriorityPolicy
from cotenant.policies.registry import known_policies, make_policy

__all__ = ["Context", "OrderPolicy", "PlanPolicy", "Policy", "PriorityPolicy", "known_policies", "make_policy"]
