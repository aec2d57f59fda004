"""`python -m bench.gpu_mix_company --state DIR`: how fast jobs of the mix were in company, against the profile.

From when steps were done (`points` of the recording): all stretches of time in which the same jobs were at work, by
play and by how many they were. Each cell is the work done over what the profile says of such company, as the plays
before have renewed it: 1.00 where speeds alone and pairs are right. Under `antman` only the guaranteed jobs count: the
others are held back. `--against FILE` compares pairs with those of another profile file instead: speeds against alone,
and steps per second.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from bench.gpu_mix import Kept, profile_for
from bench.gpu_mix_jobs import Setting
from bench.gpu_mix_renew import SPARE, Run
from cotenant.core.bound import bound_to_gpu
from cotenant.workload.profiles.of_file import against_alone
from cotenant.workload.profiles.profile_file import Measured, ProfileFile, load_profile_file

Span = tuple[float, float]
LEAST_S = 0.4  # a stretch that is shorter tells nothing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state", type=Path, default=Path("docs/hardware"))
    parser.add_argument("--against", type=Path, help="another profile file, with pairs of the same models")
    options = parser.parse_args()
    state: Path = options.state
    if options.against is not None:
        compare(load_profile_file(options.against), load_profile_file(Setting(state).profile))
        return
    setting = Setting(state.absolute())
    kept = Kept(state, setting.all_steps())
    print(f"{'play':12} {'alone':>16} {'beside one':>16} {'beside more':>16}")
    for name, run in kept.data["runs"].items():
        file = profile_for(setting, kept, run.get("after", ()), run.get("by_machine", False))
        cells = {0: "", 1: "", 2: ""} | {
            many: f"{ratio:.2f} ({s:.0f} s)" for many, (ratio, s) in seen(file, run).items()
        }
        print(f"{name:12} " + " ".join(f"{cell:>16}" for cell in cells.values()))


def compare(one: ProfileFile, two: ProfileFile) -> None:
    """How far two measurements of the same time-sliced pairs are apart."""
    ratios, steps = defaultdict[bool, list[float]](list), defaultdict[bool, list[float]](list)
    for pair in one.pairs:
        other = two.pair(pair.gpu_type, pair.share, pair.a, pair.b)
        if pair.share != "time" or other is None:
            continue
        both = ((pair.a, pair.a_speed, pair.a_alone), (pair.b, pair.b_speed, pair.b_alone))
        again = (other.a_speed, other.a_alone), (other.b_speed, other.b_alone)
        for (model, speed, alone), (was, was_alone) in zip(both, again, strict=True):
            busy = bound_to_gpu(known(two, model).busy)
            ratios[busy].append(speed / was)
            steps[busy].append(speed * alone / was / was_alone)
    for busy, who in ((True, "keep the GPU busy"), (False, "do not")):
        if not ratios[busy]:
            continue
        cells = [
            f"{min(row):.2f} to {max(row):.2f} (root mean square {math.sqrt(fmean(math.log(x) ** 2 for x in row)):.1%})"
            for row in (ratios[busy], steps[busy])
        ]
        print(f"{len(ratios[busy])} speeds of models that {who}: against alone {cells[0]}, steps per second {cells[1]}")


def seen(file: ProfileFile, run: Run) -> dict[int, tuple[float, float]]:
    """By how many were beside it (2: and more): work done over what the profile says, and in how many seconds."""
    made, said, seconds = (defaultdict[int, float](float) for _ in range(3))
    for model, others, steps, took_s in stretches(run):
        many = min(len(others), 2)
        made[many] += steps / rate(file, model)
        said[many] += took_s * beside(file, run["share"], model, others)
        seconds[many] += took_s
    return {many: (made[many] / said[many], seconds[many]) for many in sorted(said)}


def known(file: ProfileFile, model: str) -> Measured:
    """What was measured of it alone."""
    found = file.model(model)
    assert found is not None
    return found.on[file.reference]


def rate(file: ProfileFile, model: str) -> float:
    """Steps per second alone."""
    return known(file, model).steps_per_s


def beside(file: ProfileFile, share: str, model: str, others: Iterable[str]) -> float:
    """Speed in this company against alone, as the simulator has it: slowdowns add up."""
    lost = 0.0
    for other in others:
        pair = file.pair(file.reference, share, model, other)
        assert pair is not None, f"{model} beside {other} was not measured"
        a_speed, b_speed = against_alone(file, pair)
        speed = a_speed if pair.a == model else b_speed
        lost += 1 / min(speed, 1.0) - 1
    return 1 / (1 + lost)


def stretches(run: Run) -> Iterator[tuple[str, tuple[str, ...], int, float]]:
    """Who made how many steps beside whom in how many seconds, between two of its points."""
    held = SPARE if run["policy"].startswith("antman") else set()
    jobs = [job for job in run["jobs"] if job.get("points") and job["name"] not in held]
    work = {job["name"]: at_work(run, job) for job in jobs}
    for job in jobs:
        for (begin_s, before), (end_s, done) in pairwise(job["points"]):
            here = {name: _covered(spans, begin_s, end_s) for name, spans in work.items()}
            others = tuple(name for name, part in here.items() if name != job["name"] and part > 0)
            whole = here[job["name"]] == 1 and all(here[name] == 1 for name in others)
            if whole and end_s - begin_s > LEAST_S:
                yield job["name"], others, done - before, end_s - begin_s


def at_work(run: Run, job: Mapping[str, object]) -> list[Span]:
    """When a job was making steps: from its first to its last, without the time in which it stood still."""
    points: list[tuple[float, int]] = job["points"]  # type: ignore[assignment]
    first = next(event for event in run["events"] if event["kind"] == "submit")
    zero_s = run["jobs"][0]["submitted_s"] - first["s"]
    spans, begin_s = [], points[0][0]
    for event in run["events"]:
        at_s = zero_s + event["s"]
        if event["job"] != job["id"] or not points[0][0] <= at_s <= points[-1][0]:
            continue
        if event["kind"] == "suspended":
            spans.append((begin_s, at_s))
        elif event["kind"] == "continued":
            begin_s = at_s
    return [*spans, (begin_s, points[-1][0])]


def _covered(spans: Iterable[Span], begin_s: float, end_s: float) -> float:
    """Which part of a time lies in these."""
    inside = sum(max(min(end_s, to_s) - max(begin_s, from_s), 0.0) for from_s, to_s in spans)
    return round(inside / (end_s - begin_s), 6)


if __name__ == "__main__":
    main()
