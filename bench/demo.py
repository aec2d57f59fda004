"""The live part of `make demo`: real training scripts of three tenants on four virtual GPUs.

    python -m bench.demo

Starts the service in a folder of its own, submits 12 tiny scripts, shows them until all are done, and compares
what happened with what the simulator foretold when they had just been submitted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cotenant.core.jobspec import JobSpec, parse_job
from cotenant.service.core import CoreService
from cotenant.service.facade import Caller, JobInfo, Role
from cotenant.service.options import Options
from cotenant.service.run import Site, open_service
from cotenant.testing.live import running

ME = Caller("demo", Role.ADMIN)
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
START_S = 0.5  # what starting Python and the service's own steps take, about
STEP_S = 0.05
JOBS = (  # tenant, script, GPUs, steps
    ("vision", "numpy_train.py", 2, 60), ("speech", "pure_python.py", 1, 80), ("vision", "pure_python.py", 4, 30),
    ("text", "numpy_train.py", 1, 40), ("text", "pure_python.py", 2, 50), ("speech", "numpy_train.py", 1, 30),
    ("vision", "numpy_train.py", 1, 70), ("text", "pure_python.py", 1, 20), ("speech", "pure_python.py", 2, 40),
    ("text", "numpy_train.py", 2, 30), ("speech", "numpy_train.py", 1, 60), ("vision", "pure_python.py", 1, 25),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.demo", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--policy", default="srtf")
    policy = parser.parse_args().policy
    with tempfile.TemporaryDirectory(prefix="cotenant-demo-") as home:
        with live_service(Path(home), policy) as service:
            print(f"== the service runs with 4 virtual GPUs under {policy}; 12 training scripts of three tenants")
            print("   (first one script is paused and resumed once: that measures what a preemption costs here)")
            _measure_a_pause(service)
            began = time.time()
            ids = [job for group in service.desk.submit(ME, [_training(*job) for job in JOBS]) for job in group]
            foretold = {row["id"]: row[policy] for row in service.desk.whatif(ME, [])["jobs"]}
            _show_until_done(service, began)
            ended = [service.desk.job(ME, job) for job in ids]
        _compare(ended, foretold, began)
    failed = [job.id for job in ended if job.state != "succeeded"]
    print(f"== the service has shut down; {len(ended) - len(failed)} of {len(JOBS)} jobs succeeded")
    if failed or len(ended) != len(JOBS):
        sys.exit(1)


@contextmanager
def live_service(home: Path, policy: str, grace_s: float = 10.0, **more: Any) -> Iterator[CoreService]:
    """A service as `cotenant serve --gpus 4` runs it, less the web server; `more` are `gpus` and other options."""
    gpus = more.pop("gpus", 4)
    service = open_service(Options(home, grace_s, policy=policy, **more), Site(gpus=gpus))
    with running(service):
        yield service


def paced(script: str, steps: int, step_s: float) -> str:
    """The command line of an example whose steps take at least so long."""
    return f"{sys.executable} {EXAMPLES / script} --steps {steps} --step-time {step_s}"


def _training(tenant: str, script: str, gpus: int, steps: int) -> JobSpec:
    name, run = script.partition("_")[0], paced(script, steps, STEP_S)
    return parse_job(
        {"run": run, "name": name, "tenant": tenant, "gpus": gpus, "expected": START_S + steps * STEP_S}
    )  # fmt: skip


def _measure_a_pause(service: CoreService) -> None:
    ((job,),) = service.desk.submit(ME, [_training("vision", "pure_python.py", 1, 15)])
    while (report := service.reports.of(job)) is None or (report.step or 0) < 3:
        service.desk.wait_events(service.store.book.seq, 0.02)
    service.desk.hold(ME, job)
    while service.desk.job(ME, job).state != "pending":
        service.desk.wait_events(service.store.book.seq, 0.05)
    service.desk.resume(ME, job)
    while service.store.book.active:
        service.desk.wait_events(service.store.book.seq, 0.2)


def _show_until_done(service: CoreService, began: float) -> None:
    while True:
        jobs = service.desk.jobs(ME)[-len(JOBS) :]
        print(f"-- after {time.time() - began:4.1f} s", flush=True)
        for job in jobs:
            steps = f"{job.step}/{job.total_steps}" if job.step is not None and job.total_steps else ""
            print(f"   {job.id:>3} {job.tenant:7} {job.name:6} {job.gpus} GPU  {job.state:10} {steps:7} {job.reason}")
        if all(job.ended_s is not None for job in jobs):
            return
        until = time.monotonic() + 3.0
        while service.store.book.active and time.monotonic() < until:
            service.desk.wait_events(service.store.book.seq, 0.2)


def _compare(ended: list[JobInfo], foretold: dict[str, float | None], began: float) -> None:
    print("== what the simulator foretold at the start, and what happened (seconds after submission)")
    print("   job tenant  GPUs  foretold  happened  stops")
    guessed, happened = [], []
    for job in sorted(ended, key=lambda job: int(job.id)):
        guess, finish = (foretold.get(job.id) or began) - began, (job.ended_s or began) - began
        guessed.append(guess)
        happened.append(finish)
        print(f"   {job.id:>3} {job.tenant:7} {job.gpus:4} {guess:9.1f} {finish:9.1f} {len(job.attempts) - 1:6}")
    mean_guess, mean = sum(guessed) / len(guessed), sum(happened) / len(happened)
    print(f"   average     {mean_guess:14.1f} {mean:9.1f}   ({100 * (mean_guess / mean - 1):+.1f} %)")


if __name__ == "__main__":
    main()
