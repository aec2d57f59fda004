"""What of the simulator's error is the machine's: `python -m bench.gpu_mix_drift [--state docs/hardware]`.

Under `fifo`, `srtf` and `tiresias-l` nobody was stopped, so every job of the mix ran alone: each of the three runs
should have taken the sum of their lengths. Printed per model: the length by the profile, which takes the steady speed;
the same with the speed that `traces.json`, recorded an hour before, shows over as many steps from the first one on; and
how long it really was on the GPU in each run.

Then, of the guaranteed jobs under `antman`, from the first step to the end: alone in those three runs, and in that run,
where guests were beside two of them and nobody beside the other two.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from bench.gpu_mix_jobs import MIX
from cotenant.workload.profiles.profile_file import load_profile_file

ALONE = ("fifo", "srtf", "tiresias-l")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--state", type=Path, default=Path("docs/hardware"))
    state: Path = parser.parse_args().state
    runs = json.loads((state / "mix.json").read_text())["runs"]
    traces = {one["model"]: one["reports"] for one in json.loads((state / "traces.json").read_text()) if one["alone"]}
    file = load_profile_file(state / "profile.json")
    sums = [0.0] * (2 + len(ALONE))
    print(f"{'model':12} {'profile':>9} {'by trace':>9}" + "".join(f"{name:>11}" for name in ALONE))
    for member in MIX:
        known = file.model(member.model)
        assert known is not None
        on, more = known.on[file.reference], member.steps - 1
        around_s = on.lifecycle.start_s + on.lifecycle.exit_s
        row = [around_s + more / on.steps_per_s, around_s + _from_first_step_s(traces[member.model], more)]
        row += [_on_gpu_s(runs[name], member.model) for name in ALONE]
        sums = [total + one for total, one in zip(sums, row, strict=True)]
        _print(member.model, row)
    _print("all", sums)
    print(f"\n{'first step to end':24}" + "".join(f"{name:>11}" for name in ALONE) + f"{'antman':>11}{'lost':>11}")
    for member in MIX:
        if not member.spare:
            took = [_trained_s(runs[name], member.model) for name in (*ALONE, "antman")]
            lost_s = took[-1] - sum(took[:-1]) / len(ALONE)
            print(f"{member.model:24}" + "".join(f"{value:9.1f} s" for value in (*took, lost_s)))


def _from_first_step_s(reports: list[list[float]], steps: int) -> float:
    """What so many steps after the first one took; at the mean speed where fewer were recorded."""
    first = next(one for one in reports if one[1] > 0)
    last = next((one for one in reports if one[1] - first[1] >= steps), reports[-1])
    return (last[0] - first[0]) * steps / (last[1] - first[1])


def _on_gpu_s(run: dict[str, Any], model: str) -> float:
    return float(next(job["ended_s"] - job["started_s"] for job in run["jobs"] if job["name"] == model))


def _trained_s(run: dict[str, Any], model: str) -> float:
    job = next(job["id"] for job in run["jobs"] if job["name"] == model)
    at = {event["kind"]: float(event["s"]) for event in run["events"] if event["job"] == job}
    return at["exit"] - at["ready"]


def _print(name: str, row: list[float]) -> None:
    print(f"{name:12} {row[0]:7.1f} s {row[1]:7.1f} s" + "".join(f"{value:9.1f} s" for value in row[2:]))


if __name__ == "__main__":
    main()
