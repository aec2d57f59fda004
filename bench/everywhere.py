"""The same 60 jobs on this machine, on Ray and on Slurm (pilot), live and simulated.

    python -m bench.everywhere [--backends local ray slurm] [--policies gavel ...] [--jobs 60] [--seed 1]

On each backend, a cluster of four a100 and four v100 that nobody has, what jobs cost there is measured first (start,
step, leave, come back), and written down as `cotenant profile` does. Then the jobs run under each policy
(`bench/paced_job.py`: timed waits, so that they are as fast together as alone), and the simulator plays the same
arrivals from that profile.
Every run takes about two minutes. Exit code 1 if the final states differ between backends, or if a simulated average
JCT is more than 10 % off.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bench.demo import ME
from bench.fidelity import KINDS, Job, Lived, Profile, job_spec, measured, workload
from bench.quiet import Others
from cotenant.core.cluster import Cluster
from cotenant.core.workload import Codes, make_workload
from cotenant.service.core import CoreService
from cotenant.service.options import Options
from cotenant.service.run import Site, open_service
from cotenant.sim.driver import Experiment, simulate
from cotenant.testing.live import running

TYPES = ("a100", "v100")
EACH = 4
ROUND_S = 10.0
POLICIES = ("tiresias-l:threshold=40", "sjf-bsbf:scale_sub_batch=false", "gavel")
BACKENDS = ("local", "ray", "slurm")
MOST_OFF = 0.1


@contextmanager
def world(name: str, folder: Path) -> Iterator[str]:
    """A backend with two nodes, as `serve` is told of it."""
    if name == "local":
        yield name
    elif name == "ray":
        from cotenant.testing.ray_world import RayWorld

        ray = RayWorld(len(TYPES), EACH, TYPES)
        try:
            yield f"ray:address={ray.address},folder={folder / 'agents'},name=everywhere,shared={folder}"
        finally:
            ray.close()
    else:
        from cotenant.testing.slurm_cluster import slurm_cluster

        with slurm_cluster(folder / "cluster", len(TYPES), gpus=EACH):
            yield f"slurm:mode=pilot,least={len(TYPES)},poll=0.5,listen=tcp:127.0.0.1:0"


@contextmanager
def served(backend: str, home: Path, policy: str, profile: str = "none") -> Iterator[CoreService]:
    """A service that suspends nobody, once its nodes are up. Its home is that of all runs on the backend."""
    here = [kind for kind in TYPES for _ in range(EACH)] if backend == "local" else None
    options = Options(home, 10.0, policy=policy, round_s=ROUND_S, profile=profile, max_suspended=0)
    with running(open_service(options, Site(backend=backend, gpus=here))) as service:
        while sum(node.gpus for node in service.observer.nodes if node.state == "up") < EACH * len(TYPES):
            service.desk.wait_events(service.store.book.seq, 0.2)
        yield service


def written(profile: Profile, path: Path) -> str:
    """The file that `cotenant profile` would write; jobs that wait side by side do not slow each other down."""
    models = {
        name: {"command": ["python", "paced_job.py"], "workdir": "", "gpus": 1, "on": {
            gpu: {
                "steps_per_s": 1 / kind.step_s, "gpu_gib": 1.0, "busy": 0.4, "start_s": kind.start_s, "exit_s": 0.0,
                "save_s": kind.save_s, "restore_s": max(kind.pause_s - kind.save_s - kind.start_s, 0.0),
            }
            for gpu in TYPES
        }}
        for name, kind in profile.items()
    }  # fmt: skip
    pairs = [
        {"gpu_type": gpu, "share": "time", "a": a, "b": b, "a_speed": 1.0, "b_speed": 1.0}
        for gpu in TYPES for a, b in itertools.combinations_with_replacement(profile, 2)
    ]  # fmt: skip
    sizes = dict.fromkeys(TYPES, 40.0)
    path.write_text(
        json.dumps({"cotenant_profile": 1, "reference": TYPES[0], "gpu_gib": sizes, "models": models, "pairs": pairs})
    )
    return str(path)


def live(service: CoreService, jobs: list[Job], profile: Profile) -> tuple[list[Lived], tuple[str, ...]]:
    """The jobs after their end, and how each ended."""
    names, began_s = [], time.monotonic()
    for job in jobs:
        time.sleep(max(0.0, began_s + job.at_s - time.monotonic()))
        names += service.desk.submit(ME, [job_spec(job, job.lasts_s(profile))])[0]
    while service.store.book.active:
        service.desk.wait_events(service.store.book.seq, 0.2)
    infos = [service.desk.job(ME, name) for name in names]
    lived = [Lived(one.submitted_s, (one.ended_s or 0.0) - one.submitted_s, len(one.attempts) - 1) for one in infos]
    return lived, tuple(str(one.state) for one in infos)


def foretold(jobs: list[Job], lived: list[Lived], profile: Profile, file: str, policy: str) -> float:
    """The simulator's average JCT."""
    arrived = np.array([one.submitted_s for one in lived])
    names = tuple(KINDS)
    work = make_workload(
        "everywhere", arrived - arrived[0], np.array([job.gpus for job in jobs], np.int64),
        np.array([job.steps * profile[job.kind].step_s for job in jobs]),
        model=Codes(np.array([names.index(job.kind) for job in jobs]), names),
    )  # fmt: skip
    cluster = Cluster.parse("+".join(f"1x{EACH}:{kind}" for kind in TYPES))
    outcome = simulate(Experiment(work, cluster, policy, profile=file, costs="profile", round_s=ROUND_S))
    return float(outcome.jct_s.mean())


def on_backend(name: str, asked: argparse.Namespace) -> tuple[bool, list[tuple[str, ...]]]:
    """All policies on one backend; whether the simulator was right, and the final states under each."""
    right, ends = True, []
    with tempfile.TemporaryDirectory(prefix="cotenant-everywhere-") as text, world(name, Path(text)) as backend:
        folder = Path(text)
        with served(backend, folder / "home", "fifo") as service:
            profile = {kind: measured(service, kind) for kind in KINDS}
        file = written(profile, folder / "profile.json")
        for kind, one in profile.items():
            print(
                f"{name}: {kind} start {one.start_s:.2f} s, step {one.step_s:.3f} s, leave {one.save_s:.2f} s",
                flush=True,
            )
        jobs = workload(asked.jobs, asked.load, asked.seed, profile, EACH * len(TYPES))
        for policy in asked.policies:
            with served(backend, folder / "home", policy, file) as service:
                lived, states = live(service, jobs, profile)
            jct_s = float(np.mean([one.jct_s for one in lived]))
            off = foretold(jobs, lived, profile, file, policy) / jct_s - 1
            right &= abs(off) <= MOST_OFF
            ends.append(states)
            print(
                f"{name:6} {policy:32} {states.count('succeeded')} of {len(states)} succeeded, "
                f"{sum(one.preemptions for one in lived)} preemptions; average JCT {jct_s:.2f} s, simulated {off:+.1%}"
                f"{'' if abs(off) <= MOST_OFF else '   MISSED'}", flush=True,
            )  # fmt: skip
    return right, ends


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", nargs="+", default=BACKENDS, choices=BACKENDS)
    parser.add_argument("--policies", nargs="+", default=POLICIES)
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--load", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(argv)
    others = Others()
    time.sleep(2.0)
    print(f"before: {others.text()}")
    found = {name: on_backend(name, asked) for name in asked.backends}
    same = len({tuple(ends) for _, ends in found.values()}) == 1
    print(f"final states are {'equal' if same else 'NOT equal'} on {', '.join(found)}")
    return 0 if same and all(right for right, _ in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
