"""Optimistic profiling of real commands: alone, by cores, and beside each other, from a few short runs."""

from cotenant.profiler.measuring import MeasuredCurve, profile_cores
from cotenant.profiler.mix import Mix, MixOptions, MixReport, open_file
from cotenant.profiler.pairs import Company, measure_pairs
from cotenant.profiler.runs import CommandError, ProfiledCommand, Station
from cotenant.profiler.single import ASPECTS, Alone, Measurement, Wanted

__all__ = [
    "ASPECTS",
    "Alone",
    "CommandError",
    "Company",
    "MeasuredCurve",
    "Measurement",
    "Mix",
    "MixOptions",
    "MixReport",
    "ProfiledCommand",
    "Station",
    "Wanted",
    "measure_pairs",
    "open_file",
    "profile_cores",
]
