"""`python -m bench.gpu_preempt`: preempt an unmodified CUDA program on a real GPU, and let it go on.

A long job that knows nothing of Cotenant fills some GPU memory and counts products; a short one arrives under
`srtf` and needs the GPU. The ladder suspends the long job (the driver's process checkpoint frees its memory),
runs the short one, and continues the long one, which must not lose a single count. Without a GPU, `--gpus 1`
tries the same with SIGSTOP alone and plain arithmetic.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from cotenant.backends.local import LocalBackend
from cotenant.core.jobspec import parse_job
from cotenant.journal import MemoryJournal
from cotenant.service.core import CoreService
from cotenant.service.facade import Caller, Role
from cotenant.testing.backend_kit import whole
from cotenant.testing.live import running

ADMIN = Caller("bench", Role.ADMIN)
LONG = """
import sys, time
total, gib, cuda = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "cuda"
if cuda:
    import torch
    held = torch.ones(int(gib * 2**28), device="cuda")
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
for step in range(total):
    if cuda:
        (a @ a).sum().item()
        assert float(held[step]) == 1.0
    time.sleep(0.01)
    print("step", step, time.time(), flush=True)
"""


def used_mib() -> float:
    """GPU memory in use, as the driver says; 0 without one."""
    if shutil.which("nvidia-smi") is None:
        return 0.0
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return float(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0])


def until(service: CoreService, done: Callable[[], bool], patience_s: float = 240.0) -> float:
    """Wait, event by event; how long it took."""
    began, seq = time.monotonic(), service.store.book.seq
    while not done():
        if time.monotonic() - began > patience_s:
            raise SystemExit(f"not reached: {[(job.id, str(job.state)) for job in service.store.book.active.values()]}")
        seq = service.desk.wait_events(seq, 0.1)
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, help="virtual GPUs; the real ones if not given")
    parser.add_argument("--gib", type=float, default=20.0, help="GPU memory that the long job fills")
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()
    cuda = "cuda" if options.gpus is None else "cpu"
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "long.py").write_text(LONG)
        backend = LocalBackend(home / "jobs", home=home, gpus=options.gpus)
        service = CoreService(MemoryJournal(), backend, home=home, policy="srtf", grace_s=5.0)
        service.reconcile()
        with running(service):
            report(service, home, options.steps, options.gib, cuda)


def report(service: CoreService, home: Path, steps: int, gib: float, cuda: str) -> None:
    base = {"workdir": str(home), "gpus": 1}
    run = f"{sys.executable} long.py {steps} {gib} {cuda}"
    long = service.desk.submit(ADMIN, [parse_job({**base, "run": run, "expected": 3600, "name": "long"})])[0][0]
    log = service.backend.open_log(f"{long}-1", "stdout")
    until(service, lambda: whole(log).count(b"step") > 20)
    print(f"GPU memory with the long job running    {used_mib():10.0f} MiB")
    began = time.monotonic()
    short_run = f"{sys.executable} long.py 100 1 {cuda}"
    short = service.desk.submit(ADMIN, [parse_job({**base, "run": short_run, "expected": 5, "name": "short"})])[0][0]
    until(service, lambda: str(service.store.book.jobs[long].state) == "suspended")
    print(f"long job suspended after                {time.monotonic() - began:10.2f} s")
    print(f"GPU memory while it is suspended        {used_mib():10.0f} MiB")
    until(service, lambda: service.store.book.jobs[short].finished)
    print(f"short job {service.store.book.jobs[short].state} after             {time.monotonic() - began:10.2f} s")
    waited = until(service, lambda: str(service.store.book.jobs[long].state) == "running")
    print(f"long job continued after another        {waited:10.2f} s, memory {used_mib():.0f} MiB")
    until(service, lambda: service.store.book.jobs[long].finished)
    job = service.store.book.jobs[long]
    lines = whole(log).decode().splitlines()
    counted = [int(line.split()[1]) for line in lines if line.startswith("step")]
    complete = counted == list(range(steps))
    print(f"long job {job.state}, {len(job.attempts)} attempt(s), steps counted once each: {complete}")
    if not complete or len(job.attempts) != 1:
        print(f"{len(counted)} counts, first {counted[:3]}, last {counted[-3:]}")
        raise SystemExit("missed: the long job did not go on where it was")


if __name__ == "__main__":
    main()
