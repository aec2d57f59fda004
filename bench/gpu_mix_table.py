"""What `bench.gpu_mix` makes of its runs: the simulator on the same mix, how far forecasts were off, the verdicts."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from bench.gpu_mix_jobs import MIX, PLAYS, Play
from cotenant.core.cluster import Cluster
from cotenant.core.workload import Codes, make_workload
from cotenant.sim.driver import Experiment, simulate
from cotenant.workload.profiles.profile_file import ProfileFile

LOSS_WITHIN = 1e-3
FACTOR = 2.5  # of sharing over fifo
COVERED = (0.80, 0.97)
PROFILE_S = 40.0
Run = Mapping[str, Any]  # as `gpu_mix_live.play_live` keeps it


@dataclass(frozen=True, slots=True)
class Verdict:
    """One thing that must be shown: what, measured, wanted, and whether it is so."""

    what: str
    measured: str
    wanted: str
    fine: bool


@dataclass(frozen=True, slots=True)
class Times:
    """Average completion time and makespan, and the completion time of each job by its name; seconds."""

    jct_s: float
    makespan_s: float
    each_s: Mapping[str, float]


def live_times(run: Run) -> Times:
    """How it went."""
    jobs = [job for job in run["jobs"] if job["ended_s"] is not None]
    first_s = min(job["submitted_s"] for job in run["jobs"])
    each_s = {job["name"]: job["ended_s"] - job["submitted_s"] for job in jobs}
    return Times(mean(each_s.values()), max(job["ended_s"] for job in jobs) - first_s, each_s)


def work_s(file: ProfileFile, model: str, steps: int) -> float:
    """Seconds of the steps, alone."""
    known = file.model(model)
    assert known is not None, f"{model} is not in the profile"
    return steps / known.on[file.reference].steps_per_s


def alone_s(file: ProfileFile, model: str, steps: int) -> float:
    """How long a whole run takes alone; its first step is part of the start."""
    known = file.model(model)
    assert known is not None
    cycle = known.on[file.reference].lifecycle
    return float(np.nansum([cycle.start_s, work_s(file, model, steps - 1), cycle.exit_s]))


def stopping_s(file: ProfileFile, model: str) -> float:
    """What it costs to suspend a job for others, as the engine weighs it: nobody works while it leaves, twice."""
    known = file.model(model)
    assert known is not None
    cycle = known.on[file.reference].lifecycle
    return float(np.nansum([2 * cycle.suspend_s, cycle.resume_s]))


def simulated(file: ProfileFile, play: Play, run: Run, steps: Mapping[str, int]) -> Times:
    """What the simulator says of the same submissions under the same policy, from the profile alone.

    A run of an earlier version may say how its policy is to be played today (`played_as`).
    """
    jobs = run["jobs"]
    first_s = min(job["submitted_s"] for job in jobs)
    names = [job["name"] for job in jobs]
    spare = {member.model for member in MIX if member.spare and play.name == "antman"}
    work = make_workload(
        "mix",
        np.array([job["submitted_s"] - first_s for job in jobs]),
        np.ones(len(jobs), np.int64),
        np.array([work_s(file, name, steps[name]) for name in names]),
        model=Codes.of(names),
        priority=np.array([-int(name in spare) for name in names]),
    )
    costs = f"profile:max_suspended=8,saves={str(play.saves).lower()}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile.json"
        file.save(path)
        outcome = simulate(
            Experiment(
                work, Cluster.parse(f"1x1:{file.reference}"), run.get("played_as", run["policy"]), costs=costs,
                profile=f"{path}:sharing={run['share']}", compiled=False,
            )
        )  # fmt: skip
    each_s = dict(zip(names, outcome.jct_s.tolist(), strict=True))
    return Times(float(outcome.jct_s.mean()), float(outcome.finish_s.max()), each_s)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Of one job: seconds from the question to the end as foretold, with its limits, and as it happened."""

    foretold_s: float
    low_s: float
    high_s: float
    happened_s: float

    @property
    def off_s(self) -> float:
        """How much too long it was."""
        return self.foretold_s - self.happened_s

    @property
    def held(self) -> bool:
        """Whether the end was within the limits."""
        return self.low_s <= self.happened_s <= self.high_s

    def holds_with(self, spread: float) -> bool:
        """The same with another doubt on top, independent of the others: a standard deviation of the logarithm."""
        more, off = 1.645 * spread, np.log(max(self.happened_s, 0.05) / self.foretold_s)
        limit = self.high_s / self.foretold_s if off > 0 else self.foretold_s / max(self.low_s, 0.05)
        return bool(abs(off) <= np.hypot(np.log(limit), more))


def forecasts(run: Run) -> list[Forecast]:
    """Of the jobs that were not done when `whatif` was asked."""
    asked, found = run["whatif"], []
    at_s, now = asked["at_s"], asked["now"]
    ended = {job["id"]: job["ended_s"] for job in run["jobs"]}
    for row in asked["jobs"]:
        end_s, expected_s = ended.get(row["id"]), row.get(now)
        if end_s is None or expected_s is None or end_s <= at_s:
            continue
        limits = (row.get("forecasts", {}).get(now, {}).get(f"expected_end_{side}_s") for side in ("low", "high"))
        low_s, high_s = (float("nan") if limit is None else limit - at_s for limit in limits)
        found.append(Forecast(expected_s - at_s, low_s, high_s, end_s - at_s))
    return found


def stops(run: Run) -> list[dict[str, Any]]:
    """Stops that a policy wanted, with what each gains and costs where that was weighed."""
    return [event for event in run["events"] if event["kind"] == "stop" and event.get("why") not in ("cancel", "hold")]


def verdicts(
    runs: Mapping[str, Run], sims: Mapping[str, Times], reference: Mapping[str, float], took_s: Mapping[str, float]
) -> list[Verdict]:
    """All that must be shown, as far as there are runs."""
    found: list[Verdict] = []
    for name, run in runs.items():
        found += _of_run(PLAYS[name], run, sims.get(name), reference)
    found += _pooled(runs)
    if {"fifo", "srtf"} <= runs.keys() and {"fifo", "srtf"} <= sims.keys():
        found += _srtf({name: live_times(runs[name]) for name in ("fifo", "srtf")}, sims)
    for name in ("sjf-bsbf", "sjf-ffs"):
        if name in runs and "fifo" in runs:
            factor = live_times(runs["fifo"]).jct_s / live_times(runs[name]).jct_s
            found.append(
                Verdict(f"{name}: fifo's average JCT over its", f"{factor:.2f}", f">= {FACTOR}", factor >= FACTOR)
            )
    for model, seconds in took_s.items():
        found.append(Verdict(f"profile of {model}", f"{seconds:.0f} s", f"<= {PROFILE_S:.0f} s", seconds <= PROFILE_S))
    return found


def _of_run(play: Play, run: Run, sim: Times | None, reference: Mapping[str, float]) -> list[Verdict]:
    name, jobs = play.name, run["jobs"]
    good = sum(job["state"] == "succeeded" for job in jobs)
    found = [Verdict(f"{name}: jobs that succeeded", f"{good} of {len(jobs)}", "all", good == len(jobs))]
    off = [abs(job["loss"] - reference[job["name"]]) for job in jobs if job["loss"] is not None and reference]
    if off:
        same = max(off) <= LOSS_WITHIN and len(off) == len(jobs)
        found.append(Verdict(f"{name}: final losses, largest difference", f"{max(off):.1e}", "<= 1e-3", same))
    if sim is not None:
        live = live_times(run)
        pairs = [("average JCT", live.jct_s, sim.jct_s), ("makespan", live.makespan_s, sim.makespan_s)]
        if name == "antman":
            for what, spare in (("guaranteed", False), ("opportunistic", True)):
                tier = [member.model for member in MIX if member.spare is spare]
                pairs.append((f"{what} JCT", *(mean(of.each_s[job] for job in tier) for of in (live, sim))))
        for what, seen, said in pairs:
            share = said / seen - 1
            text = f"{share:+.1%} ({said:.1f} against {seen:.1f} s)"
            found.append(
                Verdict(f"{name}: {what}, simulated", text, f"within {play.within:.0%}", abs(share) <= play.within)
            )
    told = forecasts(run)
    if told:
        wrong_s, happened_s = mean(abs(one.off_s) for one in told), mean(one.happened_s for one in told)
        wrong, bias = wrong_s / happened_s, mean(one.off_s for one in told) / happened_s
        each = mean(abs(one.off_s) / one.happened_s for one in told)
        text = f"{wrong:.1%} of the time left ({bias:+.1%}; job by job {each:.1%})"
        limit = f"<= {play.foretells:.0%}"
        found.append(Verdict(f"{name}: whatif, mean error", text, limit, wrong <= play.foretells))
    return found


def _pooled(runs: Mapping[str, Run]) -> list[Verdict]:
    told = [one for run in runs.values() for one in forecasts(run) if one.low_s == one.low_s]
    found = []
    if told:
        share = mean(one.held for one in told)
        text = f"{share:.0%} of {len(told)}"
        found.append(Verdict("90 % intervals that held", text, "80 to 97 %", COVERED[0] <= share <= COVERED[1]))
    ledger = [stop for run in runs.values() for stop in stops(run) if stop.get("gain_s") is not None]
    poor = sum(stop["gain_s"] < stop["cost_s"] for stop in ledger)
    found.append(Verdict("stops that gain less than they cost", f"{poor} of {len(ledger)}", "0", poor == 0))
    return found


def _srtf(live: Mapping[str, Times], sims: Mapping[str, Times]) -> list[Verdict]:
    above = live["srtf"].jct_s / sims["srtf"].jct_s - 1
    gain, said = (1 - times["srtf"].jct_s / times["fifo"].jct_s for times in (live, sims))
    return [
        Verdict("srtf: average JCT above perfect srtf", f"{above:+.1%}", "<= 5 %", above <= 0.05),
        Verdict("srtf: average JCT below fifo's", f"{gain:.1%}", f">= {said - 0.05:.1%}", gain >= said - 0.05),
    ]


def show(found: Sequence[Verdict]) -> bool:
    """Print the table; whether all is fine."""
    for one in found:
        print(f"{one.what:46} {one.measured:42} {one.wanted:16} {'ok' if one.fine else 'MISSED'}")
    return all(one.fine for one in found)


def show_runs(runs: Mapping[str, Run], sims: Mapping[str, Times]) -> None:
    """A line per run, and the ledger of stops."""
    print(
        f"{'policy':12} {'avg JCT':>9} {'simulated':>10} {'makespan':>9} {'simulated':>10} {'stops':>6} {'attempts':>9}"
    )
    for name, run in runs.items():
        live, sim = live_times(run), sims.get(name, Times(np.nan, np.nan, {}))
        times = f"{live.jct_s:7.1f} s {sim.jct_s:8.1f} s {live.makespan_s:7.1f} s {sim.makespan_s:8.1f} s"
        print(f"{name:12} {times} {len(stops(run)):6} {sum(job['attempts'] for job in run['jobs']):9}")
    names = {job["id"]: job["name"] for run in runs.values() for job in run["jobs"]}
    for policy, run in runs.items():
        for stop in stops(run):
            weighed = [
                f"{key} {stop[f'{key}_s']:.1f} s" for key in ("gain", "cost") if stop.get(f"{key}_s") is not None
            ]
            about = ", ".join(weighed) or "not weighed"
            print(f"stop under {policy} at {stop['s']:.1f} s: {names.get(stop['job'])}, {stop.get('why')}: {about}")


def show_machine(runs: Mapping[str, Run], factors: Sequence[float], starts: Sequence[Sequence[float]]) -> None:
    """How much slower the host was in each play than by the profile, how starts vary, and what intervals would hold
    that know it."""
    print("machine: " + ", ".join(f"{name} {factor:.2f}" for name, factor in zip(runs, factors, strict=True)), end="")
    print(f"; root mean square of the logarithms {np.sqrt(np.mean(np.log(factors) ** 2)):.3f}")
    common = [mean(logs) for logs in starts]
    own = [log - middle for logs, middle in zip(starts, common, strict=True) for log in logs]
    print(f"starts, logarithms: of a play {np.sqrt(np.mean(np.square(common))):.3f}, each by itself {np.std(own):.3f}")
    told = [one for run in runs.values() for one in forecasts(run) if one.low_s == one.low_s]
    for spread in (0.0, 0.04, 0.08):
        held = sum(one.holds_with(spread) for one in told)
        print(f"intervals that hold with {spread:.0%} for the machine on top: {held} of {len(told)}")
