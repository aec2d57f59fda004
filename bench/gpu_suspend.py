"""Suspend and continue three unmodified PyTorch programs: `python -m bench.gpu_suspend [--out FILE.json]`.

Each trains something and knows nothing of Cotenant. It is held (`cotenant hold` suspends what cannot save; the driver
takes its memory off the GPU) and resumed. Told are the seconds until the GPU is free and until the next step, per GiB
too, what is left on the GPU meanwhile, and the middle step time before and after. Missed, with exit code 1, if less
than 95 % of the memory is freed, a step is lost or done twice, or the speed is not back within 2 %. Without a GPU,
`--gpus 1` tries the same with plain arithmetic.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from bench.gpu_preempt import ADMIN, until, used_mib
from cotenant.backends.local import LocalBackend
from cotenant.core.jobspec import parse_job
from cotenant.journal import MemoryJournal
from cotenant.service.core import CoreService
from cotenant.testing.backend_kit import whole
from cotenant.testing.live import running

PROGRAM = """
import sys, time
kind, cuda = sys.argv[1], sys.argv[2] == "cuda"
if cuda:
    import torch
    from torch import nn
    torch.manual_seed(1)
    with torch.device("cuda"):
        if kind == "mlp":        # large weights and their moments
            model = nn.Sequential(*(nn.Linear(8192, 8192) for _ in range(10)))
            x = torch.randn(256, 8192)
        elif kind == "conv":     # large activations
            layers = [nn.Conv2d(3, 128, 3, padding=1)]
            for _ in range(6):
                layers += [nn.ReLU(), nn.Conv2d(128, 128, 3, padding=1)]
            model, x = nn.Sequential(*layers), torch.randn(128, 3, 96, 96)
        else:                    # a bit of everything
            layer = nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True)
            model, x = nn.TransformerEncoder(layer, 8), torch.randn(48, 512, 1024)
    torch.set_float32_matmul_precision("high")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)
for step in range(10**9):
    if cuda:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        torch.cuda.synchronize()
    else:
        time.sleep(0.02)
    print("step", step, time.time(), flush=True)
"""
PROGRAMS = ("mlp", "conv", "transformer")
WATCH_S = 5.0  # before and after
FREED, SAME = 0.95, 0.02


@dataclass(frozen=True, slots=True)
class Suspension:
    """What was measured of one program."""

    program: str
    gib: float
    left_gib: float
    suspend_s: float
    resume_s: float  # until its next step
    step_before_s: float
    step_after_s: float
    whole: bool  # one process, and no step lost or done twice

    @property
    def slower(self) -> float:
        """How much slower it is afterwards."""
        return self.step_after_s / self.step_before_s - 1

    @property
    def fine(self) -> bool:
        """Whether nothing was missed."""
        freed = self.gib == 0 or self.left_gib <= (1 - FREED) * self.gib
        return freed and self.whole and abs(self.slower) <= SAME

    def line(self) -> str:
        """A row of the table."""
        each = [f"{seconds / self.gib:6.3f}" if self.gib else "     -" for seconds in (self.suspend_s, self.resume_s)]
        memory = f"{self.gib:8.2f} {self.left_gib:8.2f}"
        times = f"{self.suspend_s:9.2f} {each[0]} {self.resume_s:9.2f} {each[1]}"
        steps = f"{1e3 * self.step_before_s:9.2f} {1e3 * self.step_after_s:9.2f} {self.slower:+7.1%}"
        return f"{self.program:12} {memory} {times} {steps}   {'ok' if self.fine else 'MISSED'}"


HEAD = (
    f"{'program':12} {'GiB':>8} {'left':>8} {'suspend s':>9} {'s/GiB':>6} {'resume s':>9} {'s/GiB':>6}"
    f" {'step ms':>9} {'after':>9} {'slower':>7}"
)


class Program:
    """One of them under the service."""

    def __init__(self, service: CoreService, home: Path, name: str, cuda: str) -> None:
        run = f"{sys.executable} program.py {name} {cuda}"
        spec = parse_job({"run": run, "workdir": str(home), "gpus": 1, "name": name})
        self.service, self.name = service, name
        self.id = service.desk.submit(ADMIN, [spec])[0][0]
        self._log = service.backend.open_log(f"{self.id}-1", "stdout")

    def steps(self) -> list[tuple[int, float]]:
        """Numbers and moments of the steps so far."""
        lines = [line.split() for line in whole(self._log).decode().splitlines() if line.startswith("step")]
        return [(int(words[1]), float(words[2])) for words in lines if len(words) == 3]

    def until_state(self, state: str) -> float:
        """Wait until it is in a state; how long that took."""
        jobs = self.service.store.book.jobs
        return until(self.service, lambda: str(jobs[self.id].state) == state or jobs[self.id].finished)

    def step_s(self) -> float:
        """Let it run for a while; the middle time of its steps, the first ones aside."""
        begin = len(self.steps())
        until(self.service, lambda: len(self.steps()) > begin + 5)
        from_s = time.time() + 1.0
        until(self.service, lambda: time.time() > from_s + WATCH_S)
        moments = [moment for _, moment in self.steps() if moment >= from_s]
        return median(after - before for before, after in pairwise(moments))


def measure(service: CoreService, home: Path, name: str, cuda: str) -> Suspension:
    empty = used_mib()
    program = Program(service, home, name, cuda)
    before_s = program.step_s()
    full, began = used_mib(), time.monotonic()
    service.desk.hold(ADMIN, program.id)
    program.until_state("suspended")
    suspend_s, left = time.monotonic() - began, used_mib()
    count, began = len(program.steps()), time.monotonic()
    service.desk.resume(ADMIN, program.id)
    until(service, lambda: len(program.steps()) > count)
    resume_s, after_s = time.monotonic() - began, program.step_s()
    numbers = [number for number, _ in program.steps()]
    once = numbers == list(range(len(numbers))) and len(service.store.book.jobs[program.id].attempts) == 1
    service.desk.cancel(ADMIN, program.id)
    until(service, lambda: service.store.book.jobs[program.id].finished)
    gib, left_gib = (full - empty) / 1024, (left - empty) / 1024
    return Suspension(name, gib, left_gib, suspend_s, resume_s, before_s, after_s, once)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, help="virtual GPUs; the real ones if not given")
    parser.add_argument("--out", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    cuda, found = "cuda" if options.gpus is None else "cpu", []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        (home / "program.py").write_text(PROGRAM)
        backend = LocalBackend(home / "jobs", home=home, gpus=options.gpus)
        service = CoreService(MemoryJournal(), backend, home=home, policy="fifo", grace_s=5.0)
        service.reconcile()
        print(HEAD, flush=True)
        with running(service):
            for name in PROGRAMS:
                found.append(measure(service, home, name, cuda))
                print(found[-1].line(), flush=True)
    if options.out:
        options.out.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")
    sys.exit(int(not all(one.fine for one in found)))


if __name__ == "__main__":
    main()
