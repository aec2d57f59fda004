"""How fast the engine is, and how its cost grows: `python -m bench.engine`.

Every run is a fresh process, so that peak memory is its own. Three times are told apart: start-up (imports and loading
compiled kernels), making the jobs, and the simulation itself (building the tables, all events, metrics); jobs/s and
events/s are of the simulation alone. CPU seconds, since the machine may be shared. The growth exponent between two
sizes is log(time ratio) / log(size ratio): 1 means that ten times the jobs at equal load take ten times as long.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

from bench.engine_profile import profile

ALL = "fifo,backfill,easy,sjf,random,srtf,srsf,las,tiresias-l,tiresias-g"
HEADINGS = ("policy", "jobs", "start-up s", "jobs made s", "simulated s", "jobs/s", "events/s", "peak MiB", "growth")


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of one policy on one size."""

    policy: str
    jobs: int
    startup_s: float
    generate_s: float
    simulate_s: float
    events: int
    peak_mib: float
    avg_jct_s: float


def main() -> None:
    options = _options()
    if options.profile is not None:
        profile(options)
        return
    if options.one:
        print(json.dumps(asdict(_measure(options))))
        return
    print(f"philly-like jobs at load {options.load:g} on {options.gpus} GPUs in nodes of 8,", end=" ")
    print(f"placement {options.placement}, costs {options.costs}")
    print(_line(HEADINGS), flush=True)
    for policy in options.policies.split(","):
        before: Measured | None = None
        for jobs in (int(size) for size in options.sizes.split(",")):
            now = _in_a_fresh_process(options, policy, jobs)
            print(_line(_cells(now, before)), flush=True)
            before = now


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sizes", default="1000,10000,100000,1000000", help="numbers of jobs")
    parser.add_argument("--policies", default=ALL, help="policies, separated by commas")
    parser.add_argument("--gpus", type=int, default=4096, help="GPUs of the cluster, in nodes of 8")
    parser.add_argument("--load", type=float, default=0.9, help="offered load")
    parser.add_argument("--placement", default="consolidated")
    parser.add_argument("--costs", default="default")
    about = "say where the time of runs goes, of jobs of a LOG or of the first of --sizes"
    parser.add_argument("--profile", nargs="?", const="", metavar="LOG", help=about)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _measure(options: argparse.Namespace) -> Measured:
    """Run in this very process."""
    began = time.process_time()
    from cotenant.core.cluster import Cluster
    from cotenant.core.spec import Spec
    from cotenant.sim.driver import Experiment, simulate
    from cotenant.sim.metrics import peak_rss_mib
    from cotenant.sim.warm import warm
    from cotenant.workload.generators import generate

    warm()
    ready = time.process_time()
    cluster = Cluster.parse(f"{options.gpus // 8}x8")
    work = generate(Spec.parse(f"philly-like:jobs={options.sizes},load={options.load},seed=1"), cluster.gpus)
    made = time.process_time()
    experiment = Experiment(
        work, cluster, options.policies, placement=options.placement, costs=options.costs, compiled=True
    )
    summary = simulate(experiment).summary
    done = time.process_time()
    return Measured(
        policy=options.policies,
        jobs=len(work),
        startup_s=ready - began,
        generate_s=made - ready,
        simulate_s=done - made,
        events=int(str(summary["events"])),
        peak_mib=peak_rss_mib(),
        avg_jct_s=float(str(summary["avg_jct_s"])),
    )


def _in_a_fresh_process(options: argparse.Namespace, policy: str, jobs: int) -> Measured:
    command = [sys.executable, "-m", "bench.engine", "--one", "--policies", policy, "--sizes", str(jobs)]
    command += ["--gpus", str(options.gpus), "--load", str(options.load)]
    command += ["--placement", options.placement, "--costs", options.costs]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        sys.exit(f"{policy} on {jobs} jobs failed:\n{ran.stderr}")
    return Measured(**json.loads(ran.stdout))


def _cells(now: Measured, before: Measured | None) -> tuple[str, ...]:
    growth = ""
    if before is not None:
        growth = f"{math.log(now.simulate_s / before.simulate_s) / math.log(now.jobs / before.jobs):.2f}"
    return (
        now.policy,
        f"{now.jobs:,}",
        f"{now.startup_s:.1f}",
        f"{now.generate_s:.2f}",
        f"{now.simulate_s:.3f}",
        f"{now.jobs / now.simulate_s:,.0f}",
        f"{now.events / now.simulate_s:,.0f}",
        f"{now.peak_mib:,.0f}",
        growth,
    )


def _line(cells: tuple[str, ...]) -> str:
    return f"{cells[0]:<12}" + "".join(f"{cell:>13}" for cell in cells[1:])


if __name__ == "__main__":
    main()
