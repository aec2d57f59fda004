"""A torchrun job over two nodes is stopped, moved to other nodes, resized, and ends with the undisturbed weights.

    python -m bench.moves ray                            # starts a Ray cluster of its own, on loopback
    python -m bench.moves slurm                # a Slurm, whose nodes are held by pilots
    python -m bench.moves slurm:mode=pilot     # or any backend with four nodes of one GPU that is there

Prints where each attempt ran and the largest difference of a weight; fails above 1e-6 (float64, the same global batch).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from cotenant.core.jobspec import parse_job
from cotenant.core.lifecycle import FINAL
from cotenant.service.core import CoreService
from cotenant.service.facade import Caller, JobInfo, Role
from cotenant.service.options import Options
from cotenant.service.run import Site, open_service
from cotenant.testing.live import running

ROOT = Path(__file__).resolve().parents[1]
ADMIN = Caller("bench", Role.ADMIN)
SCRIPT = ROOT / "examples" / "torchrun_train.py"
MOST = 1e-6
TORCHRUN = (
    f"{sys.executable} -m torch.distributed.run --nnodes ${{COTENANT_NODES:-1}} --node-rank ${{COTENANT_NODE_RANK:-0}}"
    " --nproc-per-node ${COTENANT_NODE_GPUS:-$COTENANT_GPUS} --master-addr ${MASTER_ADDR:-127.0.0.1}"
    f" --master-port ${{MASTER_PORT:-29511}} {SCRIPT}"
)
ENV = {
    "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
}  # fmt: skip


def undisturbed(steps: int, folder: Path) -> None:
    """The same training alone, by one process."""
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", str(SCRIPT)]
    argv += ["--steps", str(steps), "--weights", str(folder / "plain.pt")]
    subprocess.run(argv, check=True, env={**os.environ, **ENV}, cwd=folder, capture_output=True)


def disturbed(service: CoreService, steps: int, folder: Path, patience_s: float) -> JobInfo:
    """Two nodes; two others; then twice as many."""

    def until(done: Callable[[JobInfo], bool]) -> JobInfo:
        end_s, seq = time.monotonic() + patience_s, service.store.book.seq
        while not done(info := service.desk.job(ADMIN, job)):
            if time.monotonic() > end_s or info.state in FINAL:
                raise SystemExit(f"job {job} is {info.state} ({info.reason}) after {len(info.attempts)} attempts")
            seq = service.desk.wait_events(seq, 0.25)
        return info

    losses = folder / "losses"

    def steps_of(ranks: int) -> int:
        lines = losses.read_text().splitlines() if losses.exists() else []
        return sum(line.split()[1] == str(ranks) for line in lines)

    run = f"{TORCHRUN} --steps {steps} --step-time 0.05 --losses {losses} --weights {folder / 'moved.pt'}"
    spec = {
        "run": run,
        "gpus": 2,
        "name": "moves",
        "env": ENV,
        "elastic": {"min_gpus": 1, "max_gpus": 4},
        "expected": 600,
    }
    ((job,),) = service.desk.submit(ADMIN, [parse_job(spec)])
    first = [name for name, _ in until(lambda info: steps_of(2) > 5).attempts[-1].nodes]
    for name in first:
        service.admin.drain(ADMIN, name)
    service.desk.requeue(ADMIN, job)
    until(lambda info: len(info.attempts) == 2)
    before = steps_of(2)
    until(lambda info: steps_of(2) > before + 5)
    for name in first:
        service.admin.drain(ADMIN, name, undo=True)
    service.desk.set(ADMIN, job, {"gpus": 4})
    until(lambda info: steps_of(4) > 5)
    return until(lambda info: info.state in FINAL)


def difference(folder: Path) -> float:
    """The largest of all weights."""
    import torch

    plain, moved = (torch.load(folder / name) for name in ("plain.pt", "moved.pt"))
    return max(float((plain[name] - moved[name]).abs().max()) for name in plain)


def show(backend: str, folder: Path, steps: int, patience_s: float) -> bool:
    """Print how it went; whether it went well."""
    undisturbed(steps, folder)
    service = open_service(Options(folder / "home", 60.0, policy="fifo"), Site(backend=backend))
    with running(service):
        while sum(node.state == "up" for node in service.observer.nodes) < 4:
            service.desk.wait_events(service.store.book.seq, 0.25)
        info = disturbed(service, steps, folder, patience_s)
    for attempt in info.attempts:
        print(f"attempt {attempt.number}: {', '.join(name for name, _ in attempt.nodes)}; {attempt.why or info.state}")
    places = [{name for name, _ in attempt.nodes} for attempt in info.attempts]
    found = difference(folder)
    print(f"{info.state}; largest difference of a weight {found:.1e} (at most {MOST:g})")
    return (
        str(info.state) == "succeeded" and found <= MOST and [len(nodes) for nodes in places] == [2, 2, 4]
        and not places[0] & places[1]
    )  # fmt: skip


def main() -> None:
    """Read the options and go."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backend", help="as for `cotenant serve`; `ray` and `slurm` alone start a cluster")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--patience", type=float, default=300.0, help="seconds to wait for anything")
    args = parser.parse_args()
    with ExitStack() as stack:
        folder, backend = Path(stack.enter_context(tempfile.TemporaryDirectory())), args.backend
        if backend == "ray":
            from cotenant.testing.ray_world import RayWorld

            world = RayWorld(4, 1, ["gpu"])
            stack.callback(world.close)
            backend = f"ray:address={world.address},folder={folder / 'agents'}"
        if backend == "slurm":
            from cotenant.testing.slurm_cluster import slurm_cluster

            stack.enter_context(slurm_cluster(folder / "slurm", 4, gpus=1, types=["gpu"]))
            backend = "slurm:mode=pilot,least=4,poll=0.5,listen=tcp:127.0.0.1:0"
        if not show(backend, folder, args.steps, args.patience):
            sys.exit(1)


if __name__ == "__main__":
    main()
