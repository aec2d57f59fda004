"""Eight training jobs on one GPU through the real service, under eight policies; foretold, simulated and happened.

    python -m bench.gpu_mix --state DIR [--phase profile,live,table] [--policies fifo,srtf] [--seconds-left 500]
    python -m bench.gpu_mix --state DIR --stand-in [--luck 1]   # without a GPU: timed waits in the place of training

profile  `cotenant profile` of every model, at most 40 s each, then of pairs while `--pairs-s` last; where plays follow,
         those in which nobody shares come between the two, so that what they need is not old by then
live     per policy: `cotenant serve`, the jobs submitted some seconds apart, `whatif` after the last one, until all
         end; simulator and service know the profile as the plays before have renewed it (`bench.gpu_mix_renew`)
table    the simulator on the same submissions, from that profile alone; errors of forecasts; what must be shown, with
         targets; exit code 1 where one is missed

Everything is kept in DIR (`mix.json`, `profile.json`), and what is done is not done again: a call that has too few
seconds left for another run says so and ends with exit code 3; the next one goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.gpu_mix_jobs import MIX, PLAYS, Play, Setting
from bench.gpu_mix_live import Shell, play_live
from bench.gpu_mix_profile import MEASURED, measure, measure_pairs, warm_up
from bench.gpu_mix_renew import at_its_speed, host_factor, renewed, starts_off
from bench.gpu_mix_table import alone_s, live_times, show, show_machine, show_runs, simulated, stopping_s, verdicts
from cotenant.workload.profiles.profile_file import ProfileFile, load_profile_file

PHASES = ("profile", "live", "table")
SPARE_S = 20.0  # for starting a service, asking and ending
LONGEST, LONGEST_SHARED = 1.15, 0.85  # of what all jobs take one after the other, alone
UNFINISHED = 3


class Kept:
    """What has been done so far, in one JSON file."""

    def __init__(self, folder: Path, steps: Mapping[str, int]) -> None:
        self.file = folder / "mix.json"
        folder.mkdir(parents=True, exist_ok=True)
        self.data: dict[str, Any] = {"steps": dict(steps), "profile_s": {}, "pairs_s": 0.0, "runs": {}}
        if self.file.exists():
            self.data = json.loads(self.file.read_text())

    def save(self) -> None:
        """Write it down."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps(self.data, indent=None, separators=(",", ":")) + "\n")
        fresh.replace(self.file)


class Call:
    """One call of the script: until when it has time."""

    def __init__(self, seconds_left: float) -> None:
        self._until = time.monotonic() + seconds_left

    @property
    def left_s(self) -> float:
        """Seconds."""
        return self._until - time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--phase", default=",".join(PHASES))
    parser.add_argument("--policies", default=",".join(PLAYS))
    parser.add_argument("--seconds-left", type=float, default=540.0)
    parser.add_argument("--pairs-s", type=float, default=180.0, help="seconds for pairs, all together")
    parser.add_argument("--measure", default=MEASURED, help="what profiles have besides starts and speeds")
    parser.add_argument("--stand-in", action="store_true", help="timed waits on a virtual GPU")
    parser.add_argument("--luck", type=int, default=0, help="stand-ins: a seed for what is off from the profile")
    parser.add_argument("--as-measured", action="store_true", help="table: simulate from a profile that nobody renewed")
    parser.add_argument("--by-machine", action="store_true", help="table: renew as today, plays of before that, too")
    parser.add_argument(
        "--at-its-speed",
        action="store_true",
        help="table: as if the machine's speed in each play had been known; explains, proves nothing",
    )
    options = parser.parse_args()
    busy_dir = options.state.absolute() / "busy" if options.stand_in else None
    setting, call = Setting(options.state.absolute(), busy_dir, options.luck), Call(options.seconds_left)
    kept = Kept(options.state, setting.all_steps())
    if options.luck and not options.stand_in:
        parser.error("--luck is for --stand-in: a GPU has its own")
    if options.phase != "table" and kept.data["steps"] != setting.all_steps():
        parser.error(f"{kept.file} is of jobs with other steps than the mix has now: name another folder with --state")
    if busy_dir is not None:
        busy_dir.mkdir(exist_ok=True)
    phases, plays = options.phase.split(","), [PLAYS[name] for name in options.policies.split(",")]
    if setting.stand_in:
        plays = [replace(play, share="time") for play in plays]  # MPS needs a GPU
    alone, shared = [play for play in plays if not play.shares], [play for play in plays if play.shares]
    done = "profile" not in phases or profile(setting, kept, call, options.measure)
    done = done and ("live" not in phases or live(setting, kept, call, alone))
    done = done and ("profile" not in phases or pairs(setting, kept, call, options.pairs_s))
    done = done and ("live" not in phases or live(setting, kept, call, shared))
    fine = table(setting, kept, options) if "table" in phases else True
    sys.exit(UNFINISHED if not done else int(not fine))


def profile(setting: Setting, kept: Kept, call: Call, what: str) -> bool:
    """Measure the models that are not measured yet; whether all is done."""
    if not setting.stand_in and not kept.data["profile_s"]:
        print(f"read the libraries' files in {warm_up(setting):.1f} s", flush=True)
    for member in reversed(MIX):  # the short ones first
        if member.model in kept.data["profile_s"]:
            continue
        if call.left_s < 50:
            return unfinished(f"profile of {member.model}")
        kept.data["profile_s"][member.model] = seconds = measure(Shell(setting.state), setting, member, what)
        print(f"profiled {member.model} in {seconds:.1f} s", flush=True)
        kept.save()
    return True


def pairs(setting: Setting, kept: Kept, call: Call, pairs_s: float) -> bool:
    """Measure pairs, unless that is done; whether it is."""
    if not kept.data["pairs_s"] and pairs_s:
        if call.left_s < pairs_s + 20:
            return unfinished("pairs")
        kept.data["pairs_s"] = measure_pairs(Shell(setting.state), setting, pairs_s)
        print(f"pairs in {kept.data['pairs_s']:.1f} s", flush=True)
        kept.save()
    return True


def live(setting: Setting, kept: Kept, call: Call, plays: list[Play]) -> bool:
    """Play what was not played yet; whether all is done."""
    runs = kept.data["runs"]
    for play in plays:
        if play.name in runs:
            continue
        file = profile_for(setting, kept, list(runs), by_machine=True)
        file.save(setting.known)
        expected = {model: alone_s(file, model, steps) for model, steps in setting.all_steps().items()}
        longest_s = sum(expected.values()) * (LONGEST_SHARED if play.shares else LONGEST)
        if call.left_s < longest_s + SPARE_S:
            return unfinished(f"{play.name}, which may take {longest_s + SPARE_S:.0f} s")
        began = time.monotonic()
        policy = play.policy_for(expected[model] - stopping_s(file, model) for model in expected)
        runs[play.name] = run = play_live(setting, play, policy, expected)
        run |= {"after": [name for name in runs if name != play.name], "by_machine": True}
        kept.save()
        times = live_times(run)
        said = f"average JCT {times.jct_s:.1f} s, makespan {times.makespan_s:.1f} s"
        print(f"{play.name}: {said}, all in {time.monotonic() - began:.1f} s", flush=True)
    return True


def profile_for(setting: Setting, kept: Kept, after: Sequence[str], by_machine: bool) -> ProfileFile:
    """What was measured, renewed by these plays."""
    return renewed(load_profile_file(setting.profile), [kept.data["runs"][name] for name in after], by_machine)


def unfinished(what: str) -> bool:
    """Say what is left for another call."""
    print(f"no time left for {what}: call again with the same --state", flush=True)
    return False


def table(setting: Setting, kept: Kept, options: argparse.Namespace) -> bool:
    """Compare and print; whether everything was shown."""
    runs, at_speed = kept.data["runs"], options.at_its_speed
    sims, factors, starts = {}, [], []
    for name, run in runs.items():
        after, by_machine = run.get("after", ()), options.by_machine or run.get("by_machine", False)
        file = profile_for(setting, kept, () if options.as_measured else after, by_machine)
        factors.append(host_factor(file, run))
        starts.append(starts_off(file, run))
        sims[name] = simulated(
            at_its_speed(file, factors[-1] if at_speed else 1.0), PLAYS[name], run, kept.data["steps"]
        )
    reference = {job["name"]: job["loss"] for job in runs["fifo"]["jobs"]} if "fifo" in runs else {}
    show_runs(runs, sims)
    if at_speed:
        show_machine(runs, factors, starts)
    print()
    return show(verdicts(runs, sims, reference, kept.data["profile_s"]))


if __name__ == "__main__":
    main()
