"""Chronus: deadlines kept by leases (Gao et al., SoCC'21; details as in the released simulator)."""

from cotenant.policies.chronus.policy import Chronus

__all__ = ["Chronus"]
