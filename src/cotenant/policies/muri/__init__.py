"""Muri: groups of up to four jobs that interleave the stages of their iterations on the same GPUs (SIGCOMM'22)."""

from cotenant.policies.muri.policy import MuriL, MuriS

__all__ = ["MuriL", "MuriS"]
