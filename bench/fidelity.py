"""Simulator against reality: `python -m bench.fidelity [--policies srtf,fifo] [--jobs 40]`.

Forty scripts with paced steps (timed waits, so that two cores are no bottleneck) run live on four virtual GPUs.
Before that a few scripts run alone and give the profile: seconds to start and end a job, seconds per step, seconds
that stopping and restoring takes. The simulator then plays the same arrivals from that profile alone.
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
from cotenant.core.workload import make_workload
from cotenant.service.desk import CoreService
from cotenant.sim.driver import Experiment, simulate

SCRIPT = "pure_python.py"
TARGET = 0.05


@dataclass(frozen=True, slots=True)
class Profile:
    """What was measured before the run."""

    start_s: float  # from submission to the first step, plus from the last step to the end
    step_s: float  # per second of pacing
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
    options = parser.parse_args()
    jobs = _workload(options.jobs, options.seed)
    print("policy       start s   step   stop s   live avg JCT   simulated   difference   preemptions live/sim")
    missed = False
    for policy in options.policies.split(","):
        with tempfile.TemporaryDirectory(prefix="cotenant-fidelity-") as home, live_service(Path(home), policy) as live:
            profile = _calibrate(live)
            arrived, jct, stops = _run_live(live, jobs, profile)
        simulated, sim_stops = _simulate(jobs, arrived, profile, policy)
        off = simulated / jct - 1
        missed |= abs(off) > TARGET
        print(
            f"{policy:10} {profile.start_s:9.3f} {profile.step_s:6.3f} {profile.stop_s:8.3f} {jct:14.2f} s"
            f" {simulated:9.2f} s {100 * off:+10.1f} %   {stops}/{sim_stops}{'   MISSED' if abs(off) > TARGET else ''}",
            flush=True,
        )
    sys.exit(int(missed))


def _workload(count: int, seed: int) -> list[Job]:
    """Offered load about 0.9 of four GPUs, so that jobs queue and, under srtf, displace each other."""
    chance, at_s, jobs = random.Random(seed), 0.0, []
    for _ in range(count):
        gpus, steps, pace_s = chance.choice((1, 1, 1, 2, 2, 4)), chance.choice((20, 40, 60, 120)), 0.05
        jobs.append(Job(at_s, gpus, steps, pace_s))
        at_s += chance.expovariate(1 / 1.6)
    return jobs


def _spec(job: Job, believed_s: float) -> JobSpec:
    return parse_job({"run": paced(SCRIPT, job.steps, job.pace_s), "gpus": job.gpus, "expected": believed_s})


def _alone(service: CoreService, job: Job) -> float:
    """Seconds from submission to end of a job that has the machine for itself."""
    ((name,),) = service.submit(ME, [_spec(job, 1.0)])
    _until_done(service)
    info = service.job(ME, name)
    return (info.ended_s or 0.0) - info.submitted_s


def _calibrate(service: CoreService) -> Profile:
    short, long = Job(0, 1, 10, 0.05), Job(0, 1, 50, 0.05)
    _alone(service, short)  # warms the file cache
    shorts, longs = [_alone(service, short) for _ in range(4)], [_alone(service, long) for _ in range(3)]
    step = (float(np.mean(longs)) - float(np.mean(shorts))) / ((long.steps - short.steps) * 0.05)
    start = float(np.mean(shorts)) - step * short.steps * 0.05
    for _ in range(3):
        ((name,),) = service.submit(ME, [_spec(long, 1.0)])
        while (report := service.reports.of(name)) is None or (report.step or 0) < 5:
            service.wait_events(service.book.seq, 0.02)
        service.hold(ME, name)
        while service.job(ME, name).state != "pending":
            service.wait_events(service.book.seq, 0.02)
        service.resume(ME, name)
        _until_done(service)
    return Profile(start, step, start + service.book.preemption_cost_s(0.0))


def _until_done(service: CoreService) -> None:
    while service.book.active:
        service.wait_events(service.book.seq, 0.2)


def _run_live(service: CoreService, jobs: list[Job], profile: Profile) -> tuple[list[float], float, int]:
    """Arrival times as they really were, average JCT, preemptions."""
    names, began = [], time.monotonic()
    for job in jobs:
        time.sleep(max(0.0, began + job.at_s - time.monotonic()))
        names += service.submit(ME, [_spec(job, _lasts_s(job, profile))])[0]
    _until_done(service)
    infos = [service.job(ME, name) for name in names]
    assert all(info.state == "succeeded" for info in infos), infos
    arrived = [info.submitted_s for info in infos]
    jct = float(np.mean([(info.ended_s or 0.0) - info.submitted_s for info in infos]))
    return arrived, jct, sum(len(info.attempts) - 1 for info in infos)


def _lasts_s(job: Job, profile: Profile) -> float:
    return profile.start_s + profile.step_s * job.steps * job.pace_s


def _simulate(jobs: list[Job], arrived: list[float], profile: Profile, policy: str) -> tuple[float, int]:
    work = make_workload(
        "fidelity", np.array(arrived) - arrived[0], np.array([job.gpus for job in jobs], np.int64),
        np.array([_lasts_s(job, profile) for job in jobs]),
    )  # fmt: skip
    outcome = simulate(Experiment(work, Cluster.parse("1x4"), policy, costs=str(profile.stop_s)))
    return float(outcome.jct_s.mean()), int(outcome.preemptions.sum())


if __name__ == "__main__":
    main()
