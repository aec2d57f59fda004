"""The same 60 jobs on this machine, on Ray and on Slurm (pilot), live and simulated.

    python -m bench.everywhere [--backends local ray slurm] [--policies gavel ...] [--jobs 60] [--seed 1] [--state FILE]

On each backend, a cluster of four a100 and four v100 that nobody has, what jobs cost there is measured first (start,
step, leave, come back), and written down as `cotenant profile` does. Then the jobs run under each policy
(`bench/paced_job.py`: timed waits, so that they are as fast together as alone), and the simulator plays the same
arrivals from that profile.
Every run takes about two minutes. Told with each: how long jobs were on GPUs, live and simulated (a machine that does
much else makes jobs longer, which no simulation foretells; the rest of the JCT is waiting), decisions that came too
late, and how many cores others kept busy. `--state` keeps what is done, and what went well is not done again. Exit code
1 if the final states differ between backends, or if a simulated average JCT is more than 10 % off.
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
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from bench.demo import ME
from bench.fidelity import KINDS, Job, Profile, job_spec, measured, workload
from bench.quiet import Others
from cotenant.core.cluster import Cluster
from cotenant.core.outcome import Outcome
from cotenant.core.workload import Codes, make_workload
from cotenant.service.core import CoreService
from cotenant.service.facade import JobInfo
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


@dataclass(frozen=True, slots=True)
class Run:
    """The workload under one policy on one backend, live and simulated; averages over jobs."""

    backend: str
    policy: str
    states: tuple[str, ...]
    jct_s: float
    on_gpus_s: float
    preemptions: int
    late: int  # decisions
    others: float  # cores that were busy with other things
    sim_jct_s: float
    sim_on_gpus_s: float
    sim_preemptions: int

    @property
    def right(self) -> bool:
        """Whether the simulator was."""
        return abs(self.sim_jct_s / self.jct_s - 1) <= MOST_OFF

    def __str__(self) -> str:
        return (
            f"{self.backend:6} {self.policy:30} {self.states.count('succeeded')} of {len(self.states)} succeeded; "
            f"average JCT {self.jct_s:.2f} s, simulated {self.sim_jct_s / self.jct_s - 1:+.1%}"
            f"{'' if self.right else ' MISSED'}; "
            f"on GPUs {self.on_gpus_s:.2f} s, simulated {self.sim_on_gpus_s:.2f} s; preemptions {self.preemptions} / "
            f"{self.sim_preemptions}; {self.late} decisions late, {self.others:.1f} cores busy with other things"
        )


def live(service: CoreService, jobs: list[Job], profile: Profile) -> list[JobInfo]:
    """The jobs after their end."""
    names, began_s = [], time.monotonic()
    for job in jobs:
        time.sleep(max(0.0, began_s + job.at_s - time.monotonic()))
        names += service.desk.submit(ME, [job_spec(job, job.lasts_s(profile))])[0]
    while service.store.book.active:
        service.desk.wait_events(service.store.book.seq, 0.2)
    return [service.desk.job(ME, name) for name in names]


def foretold(jobs: list[Job], submitted_s: Sequence[float], profile: Profile, file: str, policy: str) -> Outcome:
    """What the simulator says of them. Rounds begin when the clock shows a multiple of their length, in both."""
    arrived = np.array(submitted_s)
    names = tuple(KINDS)
    work = make_workload(
        "everywhere", arrived - arrived[0] // ROUND_S * ROUND_S, np.array([job.gpus for job in jobs], np.int64),
        np.array([job.steps * profile[job.kind].step_s for job in jobs]),
        model=Codes(np.array([names.index(job.kind) for job in jobs]), names),
    )  # fmt: skip
    cluster = Cluster.parse("+".join(f"1x{EACH}:{kind}" for kind in TYPES))
    return simulate(Experiment(work, cluster, policy, profile=file, costs="profile", round_s=ROUND_S))


def compared(name: str, policy: str, infos: list[JobInfo], outcome: Outcome, late: int, others: float) -> Run:
    """Both sides of a run."""
    jct_s = np.array([(one.ended_s or 0.0) - one.submitted_s for one in infos])
    held_s = [sum((a.ended_s or 0.0) - (a.started_s or 0.0) for a in one.attempts) for one in infos]
    return Run(
        name, policy, tuple(str(one.state) for one in infos), float(jct_s.mean()), float(np.mean(held_s)),
        sum(len(one.attempts) - 1 for one in infos), late, others, float(outcome.jct_s.mean()),
        float((outcome.jct_s - outcome.queue_s).mean()), int(outcome.preemptions.sum()),
    )  # fmt: skip


def on_backend(name: str, policies: Sequence[str], asked: argparse.Namespace) -> Iterator[Run]:
    """Some policies on one backend."""
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
        for policy in policies:
            others = Others()
            with served(backend, folder / "home", policy, file) as service:
                infos = live(service, jobs, profile)
                late = int(service.admin.metrics()["cotenant_decision_timeouts_total"])
            outcome = foretold(jobs, [one.submitted_s for one in infos], profile, file, policy)
            yield compared(name, policy, infos, outcome, late, others.cores())


def read_state(path: Path | None) -> dict[tuple[str, str], Run]:
    """What was done before; the last of each."""
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    runs = [Run(**{**row, "states": tuple(row["states"])}) for row in map(json.loads, lines)]
    return {(run.backend, run.policy): run for run in runs}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", nargs="+", default=BACKENDS, choices=BACKENDS)
    parser.add_argument("--policies", nargs="+", default=POLICIES)
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--load", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--state", type=Path, help="what is done is kept here")
    asked = parser.parse_args(argv)
    found = read_state(asked.state)
    for name in asked.backends:
        todo = [one for one in asked.policies if (name, one) not in found or not found[name, one].right]
        for run in on_backend(name, todo, asked) if todo else ():
            found[name, run.policy] = run
            print(run, flush=True)
            if asked.state is not None:
                with asked.state.open("a") as file:
                    file.write(json.dumps(asdict(run)) + "\n")
    runs = [found[name, policy] for policy in asked.policies for name in asked.backends]
    print("\n".join(map(str, runs)))
    same = all(len({run.states for run in runs if run.policy == policy}) == 1 for policy in asked.policies)
    print(f"final states are {'equal' if same else 'NOT equal'} on {', '.join(asked.backends)}")
    return 0 if same and all(run.right for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
