"""ONES: sizes and batches of all jobs by online evolution of whole schedules (Bian et al., SC'21; artifact's code)."""

from cotenant.policies.ones.goodput import OnesGoodput
from cotenant.policies.ones.policy import Ones

__all__ = ["Ones", "OnesGoodput"]
