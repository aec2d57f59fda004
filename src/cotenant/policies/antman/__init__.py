"""AntMan: guaranteed jobs run as if alone, opportunistic ones use what they leave over (OSDI'20)."""

from cotenant.policies.antman.policy import AntMan

__all__ = ["AntMan"]
