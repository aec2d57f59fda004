"""`python -m bench.muri_live`: three real jobs on one GPU whose stages take turns, beside plain sharing and one by one.

A service with `muri-l` runs three jobs (`bench/muri_job.py`), one bound by the CPU of its loader, one by the GPU, one
by the disk. First one after the other (`group=1`), from which their stage times are learned; then together, with stages
as they happen to overlap (`turns=false`) and in turns, alternating; at last in turns of the worst order. What counts is
the time from the first step of any of them to the last of all; one after the other it is the sum of theirs, so starts
are in none of the figures.

Two mixes: in `mixed` each job spends half of a step at its own bottleneck and the rest at those of the others; in
`pure` nearly all of it, so that there is little to collide. `--state DIR` keeps what was measured and goes on from
there. Without a GPU, `--gpus 1`: the CPU of the loader is one core and another core stands for the GPU.
Exit status 1 unless a mix ends earlier in turns than in plain sharing and than one by one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from bench.gpu_preempt import ADMIN, until
from cotenant.backends.local import LocalBackend
from cotenant.core.jobspec import parse_job
from cotenant.journal import MemoryJournal
from cotenant.service.core import CoreService
from cotenant.testing.backend_kit import whole
from cotenant.testing.live import running

JOB = Path(__file__).resolve().with_name("muri_job.py")
SOURCES = JOB.parent.parent / "src"
STAGES = ("load", "preprocess", "compute")
MIXES = {  # parts of a step: disk, CPU, GPU
    "mixed": {"loader": (0.25, 0.5, 0.25), "trainer": (0.25, 0.25, 0.5), "writer": (0.5, 0.25, 0.25)},
    "pure": {"loader": (0.05, 0.9, 0.05), "trainer": (0.05, 0.05, 0.9), "writer": (0.9, 0.05, 0.05)},
}
POLICIES = {
    "one by one": "muri-l:group=1",
    "plain": "muri-l:turns=false",
    "turns": "muri-l",
    "worst order": "muri-l:order=worst",
}
START_S = {"cpu": 2.0, "cuda": 10.0}  # that a job takes to import and build what it needs


class Bench:
    """One service and its jobs; what was measured is written down after every run."""

    def __init__(self, service: CoreService, home: Path, state: Path, device: str, steps: int, step_s: float) -> None:
        self.service, self.home, self.device, self.steps, self.step_s = service, home, device, steps, step_s
        one = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"} if device == "cpu" else {}
        path = os.pathsep.join([str(SOURCES), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.env = {"PYTHONPATH": path, **one}
        self._file = state / "muri_live.json"
        self.until = math.inf  # when no further run is begun
        self.found: dict[str, Any] = json.loads(self._file.read_text()) if self._file.exists() else {}

    def keep(self, name: str, value: Any) -> None:
        """Write down."""
        self.found[name] = value
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(self.found, indent=1))

    def calibrate(self) -> None:
        """Seconds per unit of each stage alone; and what two do to each other at each resource."""
        if "unit_s" not in self.found:
            for name, count in (("unit_s", 1), ("unit_beside_s", 2)):
                command = [
                    sys.executable,
                    JOB,
                    "calibrate",
                    self.home,
                    self.device,
                    str(time.time() + START_S[self.device]),
                ]
                pair = [
                    subprocess.Popen(command, env={**os.environ, **self.env}, stdout=subprocess.PIPE)
                    for _ in range(count)
                ]
                said = [json.loads(one.communicate()[0]) for one in pair]
                self.keep(name, {stage: max(each[stage] for each in said) for stage in STAGES})
        alone: dict[str, float] = self.found["unit_s"]
        beside = self.found["unit_beside_s"]
        slower = ", ".join(f"{name} {beside[name] / alone[name]:.2f}" for name in STAGES)
        print(f"two at one resource take so much longer than one: {slower}", flush=True)

    def submit(self, mix: str, names: list[str]) -> list[str]:
        """Jobs of these names; their ids."""
        unit_s, specs = self.found["unit_s"], []
        for name in names:
            parts = dict(zip(STAGES, MIXES[mix][name], strict=True))
            units = [str(max(round(parts[stage] * self.step_s / unit_s[stage]), 1)) for stage in STAGES]
            run = " ".join([sys.executable, str(JOB), "run", str(self.home), self.device, str(self.steps), *units])
            spec = {"run": run, "workdir": str(self.home), "gpus": 1, "gpu_mem": 8, "env": self.env}
            specs.append(parse_job({**spec, "model": f"{mix}-{name}", "name": name, "expected": 60}))
        return [job for (job,) in self.service.desk.submit(ADMIN, specs)]

    def run(self, mix: str, how: str, number: int) -> None:
        """One run of a mix, unless it was done before."""
        key = f"{mix}/{how}/{number}"
        taught = {kind[0] for kind, _, _ in self.stages()} >= {f"{mix}-{name}" for name in MIXES[mix]}
        done = key in self.found and (taught or how != "one by one")  # a new service has to learn the stages again
        if done or time.monotonic() > self.until:
            return
        self.service.admin.set_policy(ADMIN, POLICIES[how])
        jobs = self.submit(mix, list(MIXES[mix]))
        most, seen = 0, set[str]()

        def over() -> bool:
            nonlocal most
            most = max(most, sum(str(job.state) == "running" for job in self.service.store.book.on_gpus.values()))
            seen.update(job for job in jobs if self.service.reports.lines.of(job).line)
            return not self.service.store.book.active

        until(self.service, over, 400.0)
        said = [self._said(job) for job in jobs]
        spans = [one["ended"] - one["began"] for one in said]
        together_s = max(one["ended"] for one in said) - min(one["began"] for one in said)
        took_s = sum(spans) if how == "one by one" else together_s
        self.keep(key, {"took_s": took_s, "spans_s": spans, "jobs": said, "at_once": most, "in_turns": len(seen)})
        steps = ", ".join(
            f"{name} {1e3 * one['step_s']:.0f} ({1e3 * one['waited_s']:.0f} waiting)"
            for name, one in zip(MIXES[mix], said, strict=True)
        )
        told = f"{most} at once, {len(seen)} in turns; ms per step: {steps}"
        print(f"{mix:6} {how:11} {took_s:7.2f} s; {told}", flush=True)

    def _said(self, job: str) -> dict[str, Any]:
        log = self.service.desk.open_log(ADMIN, job)
        lines = whole(log).decode().splitlines() if log is not None else []
        if not lines or str(self.service.store.book.jobs[job].state) != "succeeded":
            error = self.service.desk.open_log(ADMIN, job, "stderr")
            raise SystemExit(f"job {job}: {whole(error).decode() if error is not None else 'no log'}")
        said: dict[str, Any] = json.loads(lines[-1])
        return said

    def took_s(self, mix: str, how: str) -> list[float]:
        """All runs of a kind; a group that did not come about is none."""
        runs = [run for key, run in self.found.items() if key.startswith(f"{mix}/{how}/")]
        size = 1 if how == "one by one" else len(MIXES[mix])
        return [run["took_s"] for run in runs if run["at_once"] == size]

    def report(self, mix: str) -> bool:
        """How much earlier the group ends in turns: than in plain sharing, and than one by one; whether both."""
        took_s = {how: self.took_s(mix, how) for how in POLICIES}
        missing = [how for how in POLICIES if not took_s[how]]
        if missing:
            print(f"{mix}: not measured: {', '.join(missing)}")
        if not set(missing) <= {"worst order"}:
            return False
        serial, plain, turns, worst = (median(took_s[how] or [math.nan]) for how in POLICIES)
        gains = plain / turns, serial / turns
        print(f"{mix}: in turns {gains[0]:.2f} times as fast as plain sharing, {gains[1]:.2f} as one by one")
        print(f"{mix}: against one by one plain sharing {serial / plain:.2f}, the worst order {serial / worst:.2f}")
        return min(gains) > 1

    def stages(self) -> list[Any]:
        """Stage times as the policy believes them: measured by the runtime."""
        found: list[Any] = self.service.store.book.memory.get("pairs", {}).get("stages", [])
        return found

    def believed(self) -> None:
        """Print them."""
        for kind, _, times in self.stages():
            print(f"believed of {kind[0]}: " + ", ".join(f"{1e3 * each:.1f}" for each in times) + " ms per step")


@contextmanager
def bench(
    state: Path, gpus: int | None, steps: int, step_s: float, share: str = "time", home: Path | None = None
) -> Iterator[Bench]:
    """A service over the GPUs of this machine."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True, dir=home) as folder:
        path = Path(folder)
        backend = LocalBackend(path / "jobs", home=path, gpus=gpus, share=share)  # type: ignore[arg-type]
        service = CoreService(
            MemoryJournal(), backend, home=path, policy="muri-l:group=1", grace_s=10.0, profile="none", budget_s=60.0
        )
        service.reconcile()
        with running(service):
            yield Bench(service, path, state, "cpu" if gpus else "cuda", steps, step_s)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.muri_live", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--gpus", type=int, help="virtual GPUs; the real ones if not given")
    parser.add_argument("--state", type=Path, help="folder of what was measured; a fresh one if not given")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--step-ms", type=float, default=60.0, help="of each job alone")
    parser.add_argument("--rounds", type=int, default=2, help="of plain sharing and turns, alternating")
    parser.add_argument("--most-s", type=float, default=math.inf, help="after so long no further run is begun")
    parser.add_argument("--mixes", nargs="+", default=list(MIXES), choices=list(MIXES))
    parser.add_argument("--share", default="time", choices=("time", "mps"))
    options = parser.parse_args()
    if options.gpus is None and shutil.which("nvidia-smi") is None:
        parser.error("there is no GPU here; with --gpus 1 a core stands for it")
    held = False
    with tempfile.TemporaryDirectory() as fresh:
        state = options.state or Path(fresh)
        with bench(state, options.gpus, options.steps, options.step_ms / 1e3, options.share) as made:
            made.until = time.monotonic() + options.most_s
            made.calibrate()
            for mix in options.mixes:
                made.run(mix, "one by one", 0)
                for number in range(options.rounds):
                    made.run(mix, "plain", number)
                    made.run(mix, "turns", number)
                made.run(mix, "worst order", 0)
                held |= made.report(mix)
            made.believed()
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
