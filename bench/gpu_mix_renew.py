"""A profile brought up to date by plays that have ended: how models start, run alone and leave by now.

A machine is not as fast at one time as ten minutes later. Every play measures it again at no cost: a job that was never
stopped or held back tells how long such a job takes to start and to leave, and one that was alone while it made its
steps how fast it is. Each figure goes half of the way from what was believed to what was seen: all of it would follow
the luck of one run. What all models of a play have in common is no luck but the host's pace: `by_machine` takes that
over first, as the service's forecasts do (`beliefs/host_pace.py`), for models of which nothing was seen, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import exp, log
from typing import Any

from bench.gpu_mix_jobs import MIX
from cotenant.beliefs.host_pace import host_pace
from cotenant.core.bound import bound_to_host
from cotenant.workload.profiles.profile_file import ProfileFile

Run = Mapping[str, Any]  # as `gpu_mix_live.play_live` keeps it
WEIGHT = 0.5
IN_COMPANY = 0.05  # of its time may be beside others
LEAST_STEPS = 2
SPARE = {member.model for member in MIX if member.spare}


def renewed(file: ProfileFile, runs: Iterable[Run], by_machine: bool = False) -> ProfileFile:
    """The profile after these plays, in their order."""
    for run in runs:
        file = _after(at_its_speed(file, host_factor(file, run)) if by_machine else file, run)
    return file


def _after(file: ProfileFile, run: Run) -> ProfileFile:
    away = {event["job"] for event in run["events"] if event["kind"] in ("stop", "suspended")}
    away |= {job["id"] for job in run["jobs"] if run["policy"].startswith("antman") and job["name"] in SPARE}
    spans = {job["id"]: (job["points"][0][0], job["points"][-1][0]) for job in run["jobs"] if job.get("points")}
    models = dict(file.models)
    for job in run["jobs"]:
        if job["id"] not in spans or job["id"] in away or job["attempts"] != 1 or len(job["points"]) < LEAST_STEPS:
            continue
        first_s, last_s = spans[job["id"]]
        model = models[job["name"]]
        known = model.on[file.reference]
        cycle = replace(
            known.lifecycle,
            start_s=_toward(known.lifecycle.start_s, first_s - job["started_s"]),
            exit_s=_toward(known.lifecycle.exit_s, job["ended_s"] - last_s),
        )
        speed = known.steps_per_s
        others = [span for other, span in spans.items() if other != job["id"]]
        if run["share"] == "time" and _beside(first_s, last_s, others) <= IN_COMPANY * (last_s - first_s):
            speed = 1 / _toward(1 / speed, (last_s - first_s) / (job["points"][-1][1] - 1))
        entry = replace(known, lifecycle=cycle, steps_per_s=speed)
        models[job["name"]] = replace(model, on={**model.on, file.reference: entry})
    return replace(file, models=models)


def host_factor(file: ProfileFile, run: Run) -> float:
    """How much longer the host took in a play than by the profile, by starts, and by steps alone that wait for it."""
    seen, ratios = renewed(file, [run]), []
    for name, model in file.models.items():
        was, now = model.on[file.reference], seen.models[name].on[file.reference]
        ratios.append(now.lifecycle.start_s / was.lifecycle.start_s)
        if bound_to_host(was.busy) == 1:
            ratios.append(was.steps_per_s / now.steps_per_s)
    return exp(host_pace(log(1 + (ratio - 1) / WEIGHT) for ratio in ratios if ratio != 1).shift)


def starts_off(file: ProfileFile, run: Run) -> list[float]:
    """Of the jobs that were started once: the logarithm of what their start took over what the profile says."""
    known = {name: model.on[file.reference].lifecycle.start_s for name, model in file.models.items()}
    jobs = [job for job in run["jobs"] if job["attempts"] == 1 and job.get("points")]
    return [log((job["points"][0][0] - job["started_s"]) / known[job["name"]]) for job in jobs]


def at_its_speed(file: ProfileFile, factor: float) -> ProfileFile:
    """The profile with starts and exits longer by one factor, and steps as far as they wait for the host.

    With that of the very play that is judged it proves nothing, but tells how much of an error is the machine's speed.
    """
    models = {}
    for name, model in file.models.items():
        known = model.on[file.reference]
        times = {part: getattr(known.lifecycle, part) * factor for part in ("start_s", "exit_s")}
        cycle = replace(known.lifecycle, **times)
        speed = known.steps_per_s * factor ** -bound_to_host(known.busy)
        entry = replace(known, lifecycle=cycle, steps_per_s=speed)
        models[name] = replace(model, on={**model.on, file.reference: entry})
    return replace(file, models=models)


def _toward(believed: float, seen: float) -> float:
    """Half of the way; all of it where nothing was believed."""
    return believed + WEIGHT * (seen - believed) if believed == believed else seen


def _beside(first_s: float, last_s: float, others: Iterable[tuple[float, float]]) -> float:
    """Seconds in which another one was between its first and last step."""
    found, until_s = 0.0, first_s
    for begin_s, end_s in sorted(others):
        begin_s, end_s = max(begin_s, until_s), min(end_s, last_s)
        if end_s > begin_s:
            found, until_s = found + end_s - begin_s, end_s
    return found
