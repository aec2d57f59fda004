"""Where the simulator's error on the mix comes from: `python -m bench.gpu_mix_drift`, from what was recorded.

Two recordings, of two days: `mix-earlier.json` with `profile-earlier.json` and `mix-first.json` with
`profile-first.json`. What was found out about them was mended before the latest one, `mix.json`.

machine  jobs beside whom nobody made a step and who were never stopped: how long they were on the GPU, against the
         profile, by policy in the order of time (antman: the guaranteed ones, beside guests that were held back); and
         starts beside somebody at work against starts alone, both seen up to a second late
pairs    speeds in company of one profile over those of the other, time-sliced: by how much, and how much of that is one
         factor per model, which is what an error in its speed alone makes; for which part of the time both of a pair
         keep the GPU busy, by what they want, and the same of three and more in `traces.json`, where all began at once;
         there, too, how fast a process is in its first two seconds, against later than three
replay   each recording simulated with its own pairs, with those of the other day, and as if company cost nothing
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import numpy as np

from bench.gpu_mix_jobs import MIX, PLAYS
from bench.gpu_mix_table import Run, alone_s, live_times, simulated
from cotenant.workload.profiles.profile_file import MeasuredPair, ProfileFile, load_profile_file

DAYS = {"second": "-earlier", "first": "-first"}
MODELS = [member.model for member in MIX]
BUSY = ((0.0, 0.7), (0.7, 1.0), (1.0, 2.0))  # what two want of the GPU's time


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--state", type=Path, default=Path("docs/hardware"))
    state: Path = parser.parse_args().state
    kept = {day: json.loads((state / f"mix{end}.json").read_text()) for day, end in DAYS.items()}
    runs = {day: found["runs"] for day, found in kept.items()}
    files = {day: load_profile_file(state / f"profile{end}.json") for day, end in DAYS.items()}
    for day in DAYS:
        machine(day, runs[day], files[day], kept[day]["steps"])
    pairs(files)
    traced(json.loads((state / "traces.json").read_text()))
    for day, other in zip(DAYS, reversed(DAYS), strict=True):
        replay(day, runs[day], files[day], files[other], kept[day]["steps"])


def machine(day: str, runs: Mapping[str, Run], file: ProfileFile, steps: Mapping[str, int]) -> None:
    """How fast the machine was from run to run, for jobs that had it for themselves."""
    print(f"{day} day: seconds on the GPU against the profile, jobs by themselves")
    first_s = min(run["jobs"][0]["submitted_s"] for run in runs.values())
    starts: dict[str, list[float]] = {"alone": [], "beside others": []}
    for name, run in runs.items():
        spans = {job["name"]: _span(run, job["id"], file, job["name"]) for job in run["jobs"]}
        shares = PLAYS[name].shares
        took, said = 0.0, 0.0
        for model, span in spans.items():
            if span is None:
                continue
            begin_s, warm_s, done_s, end_s = span
            others = [one for key, one in spans.items() if key != model and shares and (one or name != "antman")]
            met = "beside others" if _meets(begin_s, warm_s, others) else "alone"
            starts[met].append((warm_s - begin_s) / _cycle(file, model).start_s)
            if not _meets(warm_s, done_s, others):
                took, said = took + end_s - begin_s, said + alone_s(file, model, steps[model])
        after = f"after {(run['jobs'][0]['submitted_s'] - first_s) / 60:4.1f} min"
        print(f"  {name:11} {after}: " + (f"{took / said:.2f}" if said else "nobody was"))
    print("  starts: " + ", ".join(f"{fmean(each):.2f} {met} ({len(each)})" for met, each in starts.items()))


def _cycle(file: ProfileFile, model: str) -> Any:
    known = file.model(model)
    assert known is not None
    return known.on[file.reference].lifecycle


def _span(run: Run, job: str, file: ProfileFile, model: str) -> tuple[float, float, float, float] | None:
    """Launch, first step, last step and end; None of one that was stopped, or that others held back."""
    at: dict[str, float] = {}
    for event in run["events"]:
        if event["job"] == job:
            at[event["kind"]] = float(event["s"])
    if at.keys() & {"stop", "suspended"} or (run["policy"].startswith("antman") and model in _SPARE):
        return None
    return at["launch"], at["ready"], at["exit"] - _cycle(file, model).exit_s, at["exit"]


_SPARE = {member.model for member in MIX if member.spare}


def _meets(from_s: float, to_s: float, others: list[tuple[float, float, float, float] | None]) -> bool:
    """Whether somebody makes steps meanwhile; whoever was stopped may have."""
    return any(one is None or (one[1] < to_s and from_s < one[2]) for one in others)


def pairs(files: Mapping[str, ProfileFile]) -> None:
    """Two measurements of the same pairs."""
    print("\npairs, time-sliced")
    tables = {day: _speeds(file) for day, file in files.items()}
    logs = {key: float(np.log(tables["second"][key] / tables["first"][key])) for key in tables["second"]}
    rows = {model: [value for (one, _), value in logs.items() if one == model] for model in MODELS}
    for model, row in rows.items():
        print(f"  {model:12} second day over the first: {np.exp(fmean(row)):.2f} (+-{pstdev(row):.2f})")
    of_model = sum(len(row) * (fmean(row) - fmean(logs.values())) ** 2 for row in rows.values())
    print(f"  one factor per model: {of_model / (pstdev(logs.values()) ** 2 * len(logs)):.0%} of the variance")
    for day, file in files.items():
        busy = {model: file.model(model).on[file.reference].busy for model in MODELS}  # type: ignore[union-attr]
        wants = [(busy[a] + busy[b], busy[a] * speed + busy[b] * tables[day][b, a])
                 for (a, b), speed in tables[day].items() if a < b]  # fmt: skip
        found = []
        for low, high in BUSY:
            want, have = zip(*(one for one in wants if low <= one[0] < high), strict=True)
            found.append(f"{fmean(have):.2f} of {fmean(want):.2f}")
        print(f"  {day} day, GPU busy beside each other, of what they want: " + ", ".join(found))


def traced(traces: list[dict[str, Any]]) -> None:
    """First seconds, and the GPU's time among three and more."""
    alone = {one["model"]: _Steps(one["reports"]) for one in traces if one["alone"]}
    busy = {one["model"]: float(one["busy"]) for one in traces if one["alone"]}
    beside = {one["model"]: _Steps(one["reports"]) for one in traces if not one["alone"]}
    steady = {model: steps.rate(steps.first_s + 3.0, np.inf) for model, steps in alone.items()}
    early = {model: steps.rate(0.0, steps.first_s + 2.0) / steady[model] for model, steps in alone.items()}
    print("  first seconds of a process: " + ", ".join(f"{model} {ratio:.2f}" for model, ratio in early.items()))
    moments = sorted(moment for steps in beside.values() for moment in (steps.first_s, steps.last_s))
    used = []
    for from_s, to_s in pairwise(moments):
        here = [model for model, steps in beside.items() if steps.first_s <= from_s and to_s <= steps.last_s]
        if len(here) > 2 and to_s - from_s > 0.7:
            speeds = {model: beside[model].rate(from_s, to_s) / steady[model] for model in here}
            used.append(sum(busy[model] * speed for model, speed in speeds.items()))
    print(f"  GPU busy, three and more: {min(used):.2f} to {max(used):.2f} ({len(used)} stretches)")


class _Steps:
    """What a process told of its steps: seconds after the launch, steps done."""

    def __init__(self, reports: list[list[float]]) -> None:
        self._told = [(at_s, done) for at_s, done, *_ in reports if done > 0]
        self.first_s, self.last_s = self._told[0][0], self._told[-1][0]

    def rate(self, from_s: float, to_s: float) -> float:
        """Steps per second between reports; 0 where there was none in between."""
        kept = [one for one in self._told if from_s <= one[0] <= to_s]
        return (kept[-1][1] - kept[0][1]) / (kept[-1][0] - kept[0][0]) if len(kept) > 1 else 0.0


def _speeds(file: ProfileFile) -> dict[tuple[str, str], float]:
    found = {}
    for pair in file.pairs:
        if pair.share == "time":
            found[pair.a, pair.b], found[pair.b, pair.a] = pair.a_speed, pair.b_speed
    return found


def replay(day: str, runs: Mapping[str, Run], file: ProfileFile, other: ProfileFile, steps: Mapping[str, int]) -> None:
    """What the simulator says with other pairs."""
    ways: dict[str, Callable[[], tuple[MeasuredPair, ...]]] = {
        "its own pairs": lambda: file.pairs,
        "the other day's": lambda: other.pairs,
        "no loss": lambda: tuple(replace(pair, a_speed=1.0, b_speed=1.0) for pair in file.pairs),
    }
    names = [name for name in runs if PLAYS[name].shares]
    print(f"\n{day} day, average JCT and makespan, simulated over live")
    print(f"  {'':16}" + "".join(f"{name:>16}" for name in names))
    for way, made in ways.items():
        pairs_of_day = replace(file, pairs=made())
        cells = []
        for name in names:
            live, said = live_times(runs[name]), simulated(pairs_of_day, PLAYS[name], runs[name], steps)
            cells.append(f"{said.jct_s / live.jct_s - 1:+.1%} {said.makespan_s / live.makespan_s - 1:+.1%}")
        print(f"  {way:16}" + "".join(f"{cell:>16}" for cell in cells))


if __name__ == "__main__":
    main()
