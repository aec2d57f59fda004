"""Simulator against reality: `python -m bench.fidelity [--policies srtf,fifo] [--jobs 40]`.

Forty scripts with paced steps (timed waits, so that two cores are no bottleneck) run live on four virtual GPUs.
Their profile is measured on the way: seconds to start and end a script, seconds per step (from jobs that ran in one
piece), and what stopping and restoring took. The simulator then plays the same arrivals from these three numbers
alone: who waits for whom, who displaces whom and when each job ends is its own.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.demo import ME, live_service, paced
from cotenant.core.cluster import Cluster
from cotenant.core.jobspec import JobSpec, parse_job
from cotenant.core.outcome import Outcome
from cotenant.core.workload import make_workload
from cotenant.service.desk import CoreService
from cotenant.service.facade import JobInfo
from cotenant.sim.driver import Experiment, simulate

SCRIPT = "pure_python.py"
TARGET = 0.05


@dataclass(frozen=True, slots=True)
class Profile:
    """What was measured."""

    start_s: float  # from submission to the first step on idle GPUs, plus from the last step to the end
    step_s: float  # seconds per second of pacing
    stop_s: float  # a preemption: saving, ending, starting again, restoring


@dataclass(frozen=True, slots=True)
class Job:
    """One script and when it is submitted."""

    at_s: float
    gpus: int
    steps: int
    pace_s: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.fidelity", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--policies", default="srtf,fifo")
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="also a line per job")
    options = parser.parse_args()
    jobs = _workload(options.jobs, options.seed)
    print("policy       start s   step   stop s   live avg JCT   simulated   difference   preemptions live/sim")
    missed = False
    for policy in options.policies.split(","):
        with tempfile.TemporaryDirectory(prefix="cotenant-fidelity-") as home, live_service(Path(home), policy) as live:
            infos = _run_live(live, jobs, _usual_start_s(live))
            profile = _measured(live, jobs, infos)
        outcome = _simulate(jobs, [info.submitted_s for info in infos], profile, policy)
        lived = [(info.ended_s or 0.0) - info.submitted_s for info in infos]
        stops, sim_stops = sum(len(info.attempts) - 1 for info in infos), int(outcome.preemptions.sum())
        jct, simulated = float(np.mean(lived)), float(outcome.jct_s.mean())
        if options.verbose:
            for job, info, took, foretold in zip(jobs, infos, lived, outcome.jct_s.tolist(), strict=True):
                pauses = ", ".join(f"{a.why} {(a.ended_s or 0) - (a.started_s or 0):.2f} s" for a in info.attempts[:-1])
                print(f"  {job.at_s:6.2f} {job.gpus} GPU {job.steps:4} steps {took:7.2f} {foretold:7.2f}  {pauses}")
        off = simulated / jct - 1
        missed |= abs(off) > TARGET
        print(
            f"{policy:10} {profile.start_s:9.3f} {profile.step_s:6.3f} {profile.stop_s:8.3f} {jct:14.2f} s"
            f" {simulated:9.2f} s {100 * off:+10.1f} %   {stops}/{sim_stops}{'   MISSED' if abs(off) > TARGET else ''}",
            flush=True,
        )
    sys.exit(int(missed))


def _workload(count: int, seed: int) -> list[Job]:
    """Offered load about 0.75 of four GPUs, so that jobs queue and, under srtf, displace each other."""
    chance, at_s, jobs = random.Random(seed), 0.0, []
    for _ in range(count):
        gpus, steps, pace_s = chance.choice((1, 1, 1, 2, 2, 4)), chance.choice((20, 40, 60, 120)), 0.05
        jobs.append(Job(at_s, gpus, steps, pace_s))
        at_s += chance.expovariate(1 / 2.0)
    return jobs


def _spec(job: Job, believed_s: float) -> JobSpec:
    return parse_job({"run": paced(SCRIPT, job.steps, job.pace_s), "gpus": job.gpus, "expected": believed_s})


def _usual_start_s(service: CoreService) -> float:
    """What a script that has the machine for itself takes beyond its steps: what users would tell the service."""
    job, extra = Job(0, 1, 10, 0.05), []
    for _ in range(5):
        ((name,),) = service.submit(ME, [_spec(job, 1.0)])
        _until_done(service)
        info = service.job(ME, name)
        extra.append((info.ended_s or 0.0) - info.submitted_s - job.steps * job.pace_s)
    return float(np.median(extra))


def _measured(service: CoreService, jobs: list[Job], infos: list[JobInfo]) -> Profile:
    """Start and step from the run times of jobs that nobody stopped, stop and restore as the service recorded them."""
    calm = [(job, info.attempts[0]) for job, info in zip(jobs, infos, strict=True) if len(info.attempts) == 1]
    paces = np.array([job.steps * job.pace_s for job, _ in calm])
    lasted = np.array([(attempt.ended_s or 0.0) - (attempt.started_s or 0.0) for _, attempt in calm])
    step, start = np.polyfit(paces, lasted, 1).tolist()
    start += float(np.percentile([(info.started_s or 0.0) - info.submitted_s for info in infos], 10))
    return Profile(start, step, start + service.book.preemption_cost_s(0.0))


def _until_done(service: CoreService) -> None:
    while service.book.active:
        service.wait_events(service.book.seq, 0.2)


def _run_live(service: CoreService, jobs: list[Job], start_s: float) -> list[JobInfo]:
    """The jobs after their end, with the times at which they really arrived."""
    names, began = [], time.monotonic()
    for job in jobs:
        time.sleep(max(0.0, began + job.at_s - time.monotonic()))
        names += service.submit(ME, [_spec(job, start_s + job.steps * job.pace_s)])[0]
    _until_done(service)
    infos = [service.job(ME, name) for name in names]
    assert all(info.state == "succeeded" for info in infos), infos
    return infos


def _lasts_s(job: Job, profile: Profile) -> float:
    return profile.start_s + profile.step_s * job.steps * job.pace_s


def _simulate(jobs: list[Job], arrived: list[float], profile: Profile, policy: str) -> Outcome:
    work = make_workload(
        "fidelity", np.array(arrived) - arrived[0], np.array([job.gpus for job in jobs], np.int64),
        np.array([_lasts_s(job, profile) for job in jobs]),
    )  # fmt: skip
    return simulate(Experiment(work, Cluster.parse("1x4"), policy, costs=str(profile.stop_s)))


if __name__ == "__main__":
    main()
