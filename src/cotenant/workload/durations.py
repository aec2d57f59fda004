"""Durations of jobs whose log tells steps instead: by the speed of their model in a profile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.workload import Workload
from cotenant.workload.profiles import load_profile
from cotenant.workload.profiles.base import UNNAMED_TYPE


def with_durations(work: Workload, profile: str | Path | None) -> Workload:
    """The workload with the durations that it lacks: steps over steps per second on the profile's reference type."""
    lacks = np.isnan(work.duration_s)
    if not lacks.any():
        return work
    at, few = int(np.argmax(lacks)), f"{int(lacks.sum())} jobs have steps and no duration_s"
    if profile is None or str(profile) in ("", "none"):
        raise InputError(f"{work.source}: {few}: name a profile that knows their models, as in --profile profile.json")
    found = load_profile(profile, work, (UNNAMED_TYPE,))
    rate = found.steps_per_s[found.row]
    missing = lacks & ~(rate > 0)
    if missing.any():
        at = int(np.argmax(missing))
        model = work.model.names[work.model.code[at]]
        raise InputError(
            f"{work.source}: job '{work.job_id[at]}' has steps and no duration_s, and profile {profile} does not know"
            f" how fast model '{model}' is on {work.gpus[at]} GPU{'s' * int(work.gpus[at] > 1)}"
        )
    steps = np.asarray(work.extra["steps"], np.float64)
    return replace(work, duration_s=np.where(lacks, steps / np.where(lacks, rate, 1.0), work.duration_s))
