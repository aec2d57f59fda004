"""Optimistic profiling of a real job: how its speed depends on cores, from a few short runs."""

from cotenant.profiler.live import Measured, profile_cores

__all__ = ["Measured", "profile_cores"]
