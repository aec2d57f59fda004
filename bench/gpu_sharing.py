"""`python -m bench.gpu_sharing [--share time|mps]`: the live service puts two training jobs on one real GPU.

Small jobs leave the GPU idle most of the time, large ones keep it busy. Printed: milliseconds per step alone and in
company, and speed against alone; a pair pays when both speeds add up to more than 1.

1 `sjf-bsbf` pairs two small jobs.
2 `sjf-bsbf` pairs two large jobs, since it is told that they share well; the service has the first stand still for a
  moment to see how fast the second is alone, measures that they do not pay, and parts them.
3 `gandiva` lets two large jobs take turns of 15 s: the driver takes the memory of whoever is suspended off the GPU (not
  under MPS, whose clients it cannot take out).

What `antman` does with a guaranteed job and a guest: `bench.gpu_antman`. Without a GPU, `--gpus 1` plays the same with
sleeping in place of kernels, to see that it runs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.gpu_preempt import ADMIN, until, used_mib
from cotenant.backends.local import LocalBackend
from cotenant.core.jobspec import parse_job
from cotenant.journal import MemoryJournal
from cotenant.service.core import CoreService
from cotenant.testing.backend_kit import whole
from cotenant.testing.live import running

SCRIPT = """
import sys, time
from cotenant import runtime
size, steps, cuda = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "cuda"
if cuda:
    import torch
    width, rows = (512, 256) if size == "small" else (8192, 8192)
    layers = [torch.nn.Linear(width, width, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(rows, width, device="cuda", dtype=torch.bfloat16)
with runtime.job() as job:
    job.save(lambda path: (path / "kept").write_text("kept"))
    job.restore(lambda path: None)
    for step in job.steps(steps):
        if cuda:
            optimizer.zero_grad()
            loss = model(x).float().square().mean()
            loss.backward()
            optimizer.step()
            torch.cuda.synchronize()
            if size == "small":
                time.sleep(0.004)  # what a real one does on the host: data, logging
        else:
            time.sleep(0.01)
"""
LONG = 10_000_000
SOURCES = Path(__file__).resolve().parent.parent / "src"


@contextmanager
def serving(policy: str, gpus: int | None, share: str) -> Iterator[tuple[CoreService, Path]]:
    """A service over the GPUs of this machine."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        (home / "train.py").write_text(SCRIPT)
        backend = LocalBackend(home / "jobs", home=home, gpus=gpus, share=share)  # type: ignore[arg-type]
        profile = f"h200:sharing={'mps' if share == 'mps' else 'time-sliced'}"
        service = CoreService(
            MemoryJournal(), backend, home=home, policy=policy, grace_s=10.0, profile=profile, budget_s=60.0
        )
        service.reconcile()
        with running(service):
            yield service, home


class Stage:
    """Jobs on one service, and their step times."""

    def __init__(self, service: CoreService, home: Path, cuda: str) -> None:
        self.service, self.home, self.cuda = service, home, cuda
        self.running: list[str] = []

    def submit(self, size: str, model: str, expected_s: float, priority: int = 0) -> str:
        """Submit a job of that size under the name of a model of the profile, and wait until it runs."""
        found = self.submit_only(size, model, expected_s, priority)
        until(self.service, lambda: str(self.service.store.book.jobs[found].state) == "running")
        return found

    def submit_only(self, size: str, model: str, expected_s: float, priority: int = 0) -> str:
        """The same, without waiting."""
        run = f"{sys.executable} train.py {size} {LONG} {self.cuda}"
        job = {
            "run": run, "workdir": str(self.home), "gpus": 1, "model": model, "expected": expected_s, "gpu_mem": 20,
            "priority": priority, "name": f"{size}-{model}", "env": {"PYTHONPATH": str(SOURCES)},
        }  # fmt: skip
        found = self.service.desk.submit(ADMIN, [parse_job(job)])[0][0]
        self.running.append(found)
        return found

    def reports_steps(self, job: str) -> bool:
        """Whether a job has told its step time. Jobs of this bench never end: one that has is an error."""
        for other in self.running:
            if self.service.store.book.jobs[other].finished:
                log = self.service.desk.open_log(ADMIN, other, "stderr")
                raise SystemExit(f"job {other} ended:\n{whole(log).decode() if log is not None else 'no log'}")
        report = self.service.reports.of(job)
        return report is not None and report.step_time_s is not None

    def step_s(self, job: str, settle_s: float = 6.0) -> float:
        """Its step time after it has had time to settle in its company."""
        until(self.service, lambda: self.reports_steps(job))
        until_s = time.monotonic() + settle_s
        until(self.service, lambda: time.monotonic() > until_s)
        report = self.service.reports.of(job)
        return float(report.step_time_s or 0.0) if report is not None else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, help="virtual GPUs; the real ones if not given")
    parser.add_argument("--share", default="time", choices=("time", "mps"))
    options = parser.parse_args()
    cuda = "cuda" if options.gpus is None else "cpu"
    print(f"share {options.share}")
    with serving("sjf-bsbf", options.gpus, options.share) as (service, home):
        stage = Stage(service, home, cuda)
        first = stage.submit("small", "lstm", 36_000)
        alone = stage.step_s(first)
        second = stage.submit("small", "mlp_rl", 600)
        pair = stage.step_s(first), stage.step_s(second, 0)
        show("sjf-bsbf, small beside small", alone, pair)
    with serving("sjf-bsbf", options.gpus, options.share) as (service, home):
        stage = Stage(service, home, cuda)
        first = stage.submit("large", "lstm", 36_000)
        alone = stage.step_s(first)
        second = stage.submit("large", "mlp_rl", 600)
        waited_s = until(service, lambda: bool(service.store.book.memory.get("pairs", {}).get("ratios")))
        paused = [(job, e) for job in (first, second) for e in service.desk.events(ADMIN, job) if e.kind == "pause"]
        for job, event in paused:
            print(f"job {job} stood still for {event.data['seconds']:.1f} s: {event.data['beside']} was never alone")
        for one, other, _, pace in service.store.book.memory["pairs"]["ratios"]:
            print(f"measured after {waited_s:.1f} s: {one[0]} beside {other[0]} at {pace:.2f} of its speed alone")
        if cuda == "cuda":
            worth = next(e.data["worth"] for e in service.desk.events(ADMIN, second) if e.kind == "split")
            until(service, lambda: str(service.store.book.jobs[second].state) not in ("running", "stopping"))
            print(f"sjf-bsbf, large beside large: speeds add up to {worth:.2f}, parted after {waited_s:.1f} s")
            print(f"  the other one is then at {1e3 * stage.step_s(first):.2f} ms per step, alone {1e3 * alone:.2f}")
    if options.share == "time":
        with serving("gandiva:packing=false,quantum=15", options.gpus, options.share) as (service, home):
            turns(service, Stage(service, home, cuda), 3)


def turns(service: CoreService, stage: Stage, wanted: int) -> None:
    """Two jobs that change places on one GPU so often; how long each change took, by the journal."""
    jobs = [stage.submit("large", "gpt2", 36_000), stage.submit_only("large", "bert", 36_000)]

    def times(*kinds: str) -> list[float]:
        found = (event for job in jobs for event in service.desk.events(ADMIN, job))
        return sorted(event.time_s for event in found if event.kind in kinds)

    until(service, lambda: len(times("continued")) >= wanted)
    stops, leaves, comes = times("stop"), times("suspended"), times("started", "continued")[1:]
    for stop_s, left_s, come_s in zip(stops, leaves, comes, strict=False):
        print(f"gandiva, turn over: suspended in {left_s - stop_s:.2f} s, the other runs after {come_s - stop_s:.2f} s")
    attempts = [len(service.store.book.jobs[job].attempts) for job in jobs]
    print(f"  {used_mib():.0f} MiB of GPU memory in use, attempts {attempts}")


def show(what: str, alone: float, pair: tuple[float, float]) -> None:
    print(f"{what}: alone {1e3 * alone:.2f} ms, in company {1e3 * pair[0]:.2f} ({alone / pair[0]:.2f} of its speed)")
    print(f"  the newcomer: {1e3 * pair[1]:.2f} ms per step")


if __name__ == "__main__":
    main()
