"""Gandiva: start almost everything at once, take turns, and pack or migrate by trial and undo (OSDI'18)."""

from cotenant.policies.gandiva.policy import Gandiva

__all__ = ["Gandiva"]
