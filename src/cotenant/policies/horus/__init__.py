"""Horus and Horus+: share GPUs by predicted utilisation, without profiling jobs first (TPDS'22)."""

from cotenant.policies.horus.policy import Horus, HorusPlus

__all__ = ["Horus", "HorusPlus"]
