"""How fair finish times come out, and what that costs: Themis beside policies that do not care.

`python -m bench.themis [--jobs 300] [--seeds 3] [--load 1.1] [--policies "..."]`: a philly-like workload on 32 GPUs
(4x8), preemptions at their usual price. `python -m bench.themis --shockwave DIR`: the 120 jobs released with Shockwave
(NSDI'23) on 32 GPUs in rounds of 120 s, as in its comparison; preemptions are free there. `--compat gavel` switches on
habits of a released simulator.

rho is the finish time of a job over the one it would have had with, from its submission on, an even share of the GPUs
among the jobs present (in that very run: shares follow their number). Unfair: rho above 1.05. Means over seeds, and the
largest rho of all of them.
"""

from __future__ import annotations

import argparse
import csv
import re
from pathlib import Path

import numpy as np

from cotenant.core.cluster import Cluster
from cotenant.core.outcome import Outcome
from cotenant.core.spec import Spec
from cotenant.core.workload import Floats, Workload, make_workload
from cotenant.sim.driver import Experiment, simulate
from cotenant.workload.generators import generate

POLICIES = ("themis", "themis:form=auction", "themis:form=auction,f=0", "gavel", "las", "tiresias-l", "srsf", "fifo")
GPUS = 32
UNFAIR = 1.05
SAMPLES = {"ResNet-18": 50_000, "ResNet-50": 100_000, "Transformer": 10_000, "LM": 59_675, "Recommendation": 117_907}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.themis", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--load", type=float, default=1.1)
    parser.add_argument("--policies", default="", help="separated by blanks")
    parser.add_argument("--shockwave", type=Path, help="folder of jobs120.trace, batch_schedule.csv and solo_v100.csv")
    parser.add_argument("--compat", action="append", default=[], help="as of `cotenant simulate`")
    options = parser.parse_args()
    compat = tuple(options.compat)
    print("| policy | avg JCT s | makespan s | preemptions | mean rho | 95 % | worst rho | unfair |")
    print("|---|---|---|---|---|---|---|---|")
    for policy in options.policies.split() or POLICIES:
        if options.shockwave:
            runs = [_run(released(options.shockwave), policy, f"{GPUS}x1", costs="none", round_s=120.0, compat=compat)]
        else:
            text = f"philly-like:jobs={options.jobs},load={options.load},seed="
            runs = [
                _run(generate(Spec.parse(f"{text}{seed}"), GPUS, None), policy, "4x8", seed=seed, compat=compat)
                for seed in range(options.seeds)
            ]
        print(f"| `{policy}` | {_row(runs)} |", flush=True)


def _run(work: Workload, policy: str, cluster: str, **more: object) -> Outcome:
    return simulate(Experiment(work, Cluster.parse(cluster), policy, skip_infeasible=True, compiled=True, **more))  # type: ignore[arg-type]


def _row(runs: list[Outcome]) -> str:
    """One policy's line of the table."""
    rho = [finish_time_fairness(run) for run in runs]
    jct, makespan, stops = (
        np.mean([part(run) for run in runs])
        for part in (
            lambda run: run.jct_s.mean(),
            lambda run: run.finish_s.max() - run.workload.submit_s.min(),
            lambda run: run.preemptions.sum(),
        )
    )
    fair = [np.mean([part(each) for each in rho]) for part in (np.mean, lambda each: np.percentile(each, 95))]
    unfair = np.mean([np.mean(each > UNFAIR) for each in rho])
    worst = max(each.max() for each in rho)
    return f"{jct:,.0f} | {makespan:,.0f} | {stops:,.0f} | {fair[0]:.2f} | {fair[1]:.2f} | {worst:.2f} | {unfair:.1%}"


def finish_time_fairness(run: Outcome) -> Floats:
    """Rho of every job: seconds that it took over those of an even share, whose size follows the jobs present."""
    work = run.workload
    times = np.unique(np.concatenate([work.submit_s, run.finish_s]))
    present = np.searchsorted(np.sort(work.submit_s), times, "right")
    present = np.maximum(present - np.searchsorted(np.sort(run.finish_s), times, "right"), 1)
    alone_s = np.zeros(len(work))
    for gpus in np.unique(work.gpus).tolist():
        rows = np.flatnonzero(work.gpus == gpus)
        rate = np.minimum(GPUS / (present * gpus), 1.0)
        done_s = np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(times))])  # of a job that is always there
        far = 1.0 / min(GPUS / gpus, 1.0) * work.duration_s.max()
        end_s = np.append(times, times[-1] + far)
        needed = np.interp(work.submit_s[rows], times, done_s) + work.duration_s[rows]
        alone_s[rows] = np.interp(needed, np.append(done_s, done_s[-1] + work.duration_s.max()), end_s)
        alone_s[rows] -= work.submit_s[rows]
    return np.asarray(np.where(alone_s > 0, run.jct_s / np.where(alone_s > 0, alone_s, 1.0), 1.0))


def released(folder: Path) -> Workload:
    """The 120 jobs; how long each takes follows from its batch sizes by epoch and the solo rates, told in advance."""
    with (folder / "solo_v100.csv").open() as file:
        rates = {
            (row["model"], int(row["batch_size"]), int(row["num_gpu"])): float(row["tacc_steps_s"])
            for row in csv.DictReader(file)
        }
    with (folder / "batch_schedule.csv").open() as file:
        plans: dict[int, list[tuple[int, int, int]]] = {}
        for row in csv.DictReader(file):
            if row["trace"] == "jobs120":
                epochs = (int(row["first_epoch"]), int(row["batch_size"]), int(row["num_epochs"]))
                plans.setdefault(int(row["job"]), []).append(epochs)
    columns: list[tuple[float, int, float]] = []
    for number, line in enumerate((folder / "jobs120.trace").read_text().splitlines()):
        cells = line.split("\t")
        named = re.match(r"(.*) \(batch size (\d+)\)", cells[0])
        assert named is not None
        model, gpus = named[1], int(cells[6])
        plan, seconds = plans[number], 0.0
        for at, (first, batch, total) in enumerate(plan):
            last = plan[at + 1][0] if at + 1 < len(plan) else total
            seconds += (last - first) * np.ceil(SAMPLES[model] / batch) / rates[model, batch, gpus]
        columns.append((float(cells[11]), gpus, seconds))
    submit_s, gang, duration_s = zip(*columns, strict=True)
    return make_workload("jobs120", np.array(submit_s), np.array(gang, np.int64), np.array(duration_s))


if __name__ == "__main__":
    main()
