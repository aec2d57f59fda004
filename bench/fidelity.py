"""Simulator against reality: `python -m bench.fidelity [--policies fifo,srtf] [--loads 0.75,0.9] [--jobs 40]`.

First the profile, in runs of its own: scripts of each kind one at a time (seconds to start and end, seconds per
step), and some that are paused and resumed (what a preemption costs). Then forty other scripts run live on four
virtual GPUs under each policy and load, and the simulator plays the same arrivals from the profile alone: who waits
for whom, who displaces whom and when each job ends is its own. The live runs share the machine, each with a service
and four virtual GPUs of its own.

The scripts do timed waits only (`bench/paced_job.py`), also while they start. Starting Python takes 0.1 s alone and
several times that when others start too on two cores: that is about cores, which no simulated cluster of GPUs knows.
What the simulator leaves out: a job that displaces another waits until that one has saved; here the victim pays all.

Not among the default policies, for it misses: `tiresias-l:threshold=10` (+7.6 % at load 0.75, on a busy machine). It
was 8 to 20 % off because the service looked at queue limits only once a second; now it looks when a job reaches one,
and where stopping takes no time both agree within 0.2 s per job (`tests/service/test_service_fidelity.py`). The rest is
the time that stopping takes, 0.2 to 0.4 s here: some jobs end meanwhile and are never displaced, and whoever displaces
the others waits. In a fake world in which every stop takes 0.25 s the same workloads are 6 % below to 11 % above.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import random
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.demo import ME, live_service
from bench.quiet import Others
from cotenant.core.cluster import Cluster
from cotenant.core.jobspec import JobSpec, parse_job
from cotenant.core.outcome import Outcome
from cotenant.core.workload import make_workload
from cotenant.service.core import CoreService
from cotenant.service.facade import JobInfo
from cotenant.sim.driver import Experiment, simulate

GPUS = 4
KINDS = {  # what the scripts are told; the simulator is not
    "small": "--start 0.8 --pace 0.1 --save 0.05",
    "large": "--start 1.2 --pace 0.2 --save 0.1",
}
STEPS = {"small": (20, 140), "large": (10, 70)}
SCRIPT = Path(__file__).with_name("paced_job.py")
PAUSED = 30  # steps of a script that is paused, so that it is not over before
TARGET = 0.05


@dataclass(frozen=True, slots=True)
class Kind:
    """What was measured of scripts of one kind, alone on the machine."""

    start_s: float  # from submission to the first step on idle GPUs, plus from the last step to the end
    step_s: float
    pause_s: float  # a preemption: saving, ending, starting again, restoring
    save_s: float  # of these until its GPUs are free


Profile = dict[str, Kind]


@dataclass(frozen=True, slots=True)
class Job:
    """One script and when it is submitted."""

    at_s: float
    kind: str
    gpus: int
    steps: int

    def lasts_s(self, profile: Profile) -> float:
        """Undisturbed."""
        return profile[self.kind].start_s + self.steps * profile[self.kind].step_s


@dataclass(frozen=True, slots=True)
class Lived:
    """How a job fared live."""

    submitted_s: float
    jct_s: float
    preemptions: int


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.fidelity", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--policies", default="fifo,srtf")
    parser.add_argument("--loads", default="0.75,0.9")
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="also a line per job")
    options = parser.parse_args()
    before = Others()
    time.sleep(2.0)
    print(f"before: {before.text()}")
    profile = _profile()
    for name, kind in profile.items():
        print(f"{name:6} start {kind.start_s:.3f} s   step {kind.step_s:.4f} s   preemption {kind.pause_s:.3f} s")
    runs = [
        (policy, float(load), workload(options.jobs, float(load), options.seed, profile))
        for load in options.loads.split(",") for policy in options.policies.split(",")
    ]  # fmt: skip
    with ProcessPoolExecutor(len(runs), multiprocessing.get_context("spawn")) as pool:
        live = list(pool.map(_run_live, [run[0] for run in runs], [run[2] for run in runs], [profile] * len(runs)))
    print(f"{'policy':26} {'load':>4} {'live avg JCT':>14} {'simulated':>13} {'difference':>12}   preemptions live/sim")
    missed = False
    for (policy, load, jobs), lived in zip(runs, live, strict=True):
        outcome = _simulate(jobs, [one.submitted_s for one in lived], profile, policy)
        jct, simulated = float(np.mean([one.jct_s for one in lived])), float(outcome.jct_s.mean())
        off = simulated / jct - 1
        missed |= abs(off) > TARGET
        stops = f"{sum(one.preemptions for one in lived)}/{int(outcome.preemptions.sum())}"
        print(
            f"{policy:26} {load:4.2f} {jct:12.2f} s {simulated:11.2f} s {100 * off:+10.1f} %   {stops}"
            f"{'   MISSED' if abs(off) > TARGET else ''}",
            flush=True,
        )
        if options.verbose:
            for job, one, foretold, sim_stops in zip(jobs, lived, outcome.jct_s, outcome.preemptions, strict=True):
                about = f"  {job.at_s:6.2f} {job.kind:5} {job.gpus} GPU {job.steps:3} steps"
                print(f"{about} {one.jct_s:7.2f} {foretold:7.2f}   {one.preemptions}/{sim_stops}")
    sys.exit(int(missed))


# -- the profile -------------------------------------------------------------------------------------------------------


def _profile() -> Profile:
    with tempfile.TemporaryDirectory(prefix="cotenant-fidelity-") as home, live_service(Path(home), "fifo") as service:
        return {name: measured(service, name) for name in KINDS}


def measured(service: CoreService, kind: str) -> Kind:
    """One script at a time: four short and two long ones, then two that are paused."""
    lengths = (5, 5, 5, 5, 30, 30)
    took = [_on_gpus_s(_alone(service, Job(0, kind, 1, steps), pause=False)) for steps in lengths]
    step, start = np.polyfit(lengths, took, 1).tolist()
    paused = [_alone(service, Job(0, kind, 1, PAUSED), pause=True) for _ in range(3)]
    pause_s = float(np.mean([_on_gpus_s(one) for one in paused])) - start - PAUSED * step
    return Kind(start, step, pause_s, float(np.mean([save_s for _, _, save_s in paused])))


def _alone(service: CoreService, job: Job, pause: bool) -> tuple[JobInfo, float, float]:
    """The job after its end, how long it was held back between its two halves, and how long it took to leave."""
    ((name,),) = service.desk.submit(ME, [job_spec(job, 10.0)])
    away_s = save_s = 0.0
    if pause:
        while (report := service.reports.of(name)) is None or (report.step or 0) < 4:
            service.desk.wait_events(service.store.book.seq, 0.01)
        service.desk.hold(ME, name)
        asked_s = time.time()
        while (state := service.desk.job(ME, name).state) != "pending":
            assert state != "succeeded", "it was over before it was paused"
            service.desk.wait_events(service.store.book.seq, 0.05)
        first = service.desk.job(ME, name).attempts[0]
        service.desk.resume(ME, name)
        save_s = max((first.ended_s or 0.0) - asked_s, 0.0)
        away_s = time.time() - (first.ended_s or 0.0)
    while service.store.book.active:
        service.desk.wait_events(service.store.book.seq, 0.2)
    info = service.desk.job(ME, name)
    assert info.state == "succeeded", info
    assert len(info.attempts) == 1 + pause, info
    return info, away_s, save_s


def _on_gpus_s(ended: tuple[JobInfo, float, float]) -> float:
    info, away_s, _ = ended
    return (info.ended_s or 0.0) - info.submitted_s - away_s


# -- the comparison ----------------------------------------------------------------------------------------------------


def workload(count: int, load: float, seed: int, profile: Profile, gpus: int = GPUS) -> list[Job]:
    """Jobs that arrive at random over the time in which they keep that share of the GPUs busy."""
    chance = random.Random(seed)
    drawn = []
    for _ in range(count):
        kind, size = chance.choice(tuple(KINDS)), chance.choice((1, 1, 1, 2, 2, 4))
        drawn.append((kind, size, round(math.exp(chance.uniform(*map(math.log, STEPS[kind]))))))
    work_gpu_s = sum(size * Job(0, kind, size, steps).lasts_s(profile) for kind, size, steps in drawn)
    span_s = work_gpu_s / (gpus * load)
    arrivals = sorted(chance.uniform(0.0, span_s) for _ in drawn)
    return [Job(at_s - arrivals[0], *job) for at_s, job in zip(arrivals, drawn, strict=True)]


def job_spec(job: Job, believed_s: float) -> JobSpec:
    """As a user would write it."""
    run = f"{sys.executable} {SCRIPT} --steps {job.steps} {KINDS[job.kind]}"
    return parse_job({"run": run, "gpus": job.gpus, "model": job.kind, "expected": believed_s})


def _served(home: Path, policy: str) -> AbstractContextManager[CoreService]:
    """A service that suspends nobody: the simulator knows one cost of a preemption, that of saving and restoring."""
    return live_service(home, policy, max_suspended=0)


def _run_live(policy: str, jobs: list[Job], profile: Profile) -> list[Lived]:
    """In a process of its own: the jobs after their end, with the times at which they really arrived."""
    with tempfile.TemporaryDirectory(prefix="cotenant-fidelity-") as home, _served(Path(home), policy) as service:
        names, began = [], time.monotonic()
        for job in jobs:
            time.sleep(max(0.0, began + job.at_s - time.monotonic()))
            names += service.desk.submit(ME, [job_spec(job, job.lasts_s(profile))])[0]
        while service.store.book.active:
            service.desk.wait_events(service.store.book.seq, 0.2)
        infos = [service.desk.job(ME, name) for name in names]
    assert all(info.state == "succeeded" for info in infos), infos
    return [Lived(info.submitted_s, (info.ended_s or 0.0) - info.submitted_s, len(info.attempts) - 1) for info in infos]


def _simulate(jobs: list[Job], arrived: list[float], profile: Profile, policy: str) -> Outcome:
    work = make_workload(
        "fidelity", np.array(arrived) - arrived[0], np.array([job.gpus for job in jobs], np.int64),
        np.array([job.lasts_s(profile) for job in jobs]),
    )  # fmt: skip
    pause_s = float(np.mean([kind.pause_s for kind in profile.values()]))
    return simulate(Experiment(work, Cluster.parse(f"1x{GPUS}"), policy, costs=str(pause_s)))


if __name__ == "__main__":
    main()
