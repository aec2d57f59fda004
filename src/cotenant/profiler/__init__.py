"""Optimistic profiling of a real job: how its speed depends on cores, from a few short runs."""

from cotenant.profiler.measuring import MeasuredCurve, profile_cores

__all__ = ["MeasuredCurve", "profile_cores"]
