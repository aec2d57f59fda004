"""What slices of GPUs change: whole GPUs, shared time, fixed slices and slices that change, on the same jobs.

`python -m bench.slices [--jobs 500] [--seeds 3] [--load 1.3] [--cluster 4x8:h200]`: philly-like and helios-like jobs,
mostly small ones, of other seeds than those on which the policy's settings were chosen. Their models are those measured
on an H200 at all their batch sizes, by a seeded hash. Slices are MIG's; a job's speed in one follows from how busy it
keeps a GPU. Shared time (`sjf-bsbf`) is by pairs measured under MPS. `at a time` is the most jobs that ran at once,
`GPUs` the share of time in which GPUs had a job, `work` seconds of work per second of a GPU that had one, `changes` how
often the slice of a running job was replaced.

Held, or the exit status is 1: every job ends; every partition handed out is legal, and its slices hold their jobs'
memory (looked at from outside, plan by plan); whoever is in a slice is alone in its columns; a cluster that may be
cut gives the very same finish times as one that may not, under policies that know nothing of it.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace

import numpy as np

from bench.bsbf import hashed_models
from cotenant.core.cluster import Cluster
from cotenant.core.outcome import Outcome
from cotenant.core.partitions import mig, wrong_with
from cotenant.core.plan import Plan
from cotenant.core.spec import Spec
from cotenant.core.view import View
from cotenant.core.workload import Workload
from cotenant.policies.slices import SlicedGpus
from cotenant.sim.driver import Experiment, simulate
from cotenant.workload.generators import generate

WHOLE, DYNAMIC = "sjf", "slices"
POLICIES = {
    "srtf": "whole GPUs, preemptive",
    WHOLE: "whole GPUs",
    "sjf-bsbf": "shared time",
    "slices:dynamic=false": "fixed slices",
    DYNAMIC: "changing slices",
}
MIX = "[1:0.85/2:0.08/4:0.05/8:0.02]"
LOADS = ("philly-like", "helios-like")
_SLACK_GIB = 1e-6


@dataclass(slots=True)
class Seen:
    """What was seen of the plans of a run: how many, jobs that got slices, and those that were not legal."""

    plans: int = 0
    sliced: int = 0
    wrong: str = ""


FIRST_SEED = 3  # others than those on which the policy's settings were chosen


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.slices", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--load", type=float, default=1.3)
    parser.add_argument("--cluster", default="4x8:h200")
    options = parser.parse_args()
    failed = [line for name in LOADS for line in _table(name, options)]
    for line in failed:
        print(f"FAILED: {line}")
    sys.exit(1 if failed else 0)


def _table(name: str, options: argparse.Namespace) -> list[str]:
    """Play one load under all policies and print a table; what did not hold."""
    plain = Cluster.parse(options.cluster)
    cut = replace(plain, groups=tuple(replace(one, slices=mig(one.gpu_type)) for one in plain.groups))
    failed: list[str] = []
    found: dict[str, list[Outcome]] = {policy: [] for policy in POLICIES}
    for seed in range(FIRST_SEED, FIRST_SEED + options.seeds):
        spec = Spec.parse(f"{name}:jobs={options.jobs},load={options.load:g},seed={seed},mix={MIX}")
        work = hashed_models(generate(spec, plain.gpus, None), seed, "h200-batches")
        for policy in POLICIES:
            outcome, seen = _play(work, cut, policy, seed)
            found[policy].append(outcome)
            failed += [f"{name}, {policy}: {seen.wrong}"] if seen.wrong else []
            if not outcome.finished.all():
                failed.append(f"{name}, {policy}: {int((~outcome.finished).sum())} jobs have not ended")
            if policy.startswith("slices") and not seen.sliced:
                failed.append(f"{name}, {policy}: nobody was given a slice")
        same = _play(work, plain, WHOLE, seed)[0].finish_s.tobytes() == found[WHOLE][-1].finish_s.tobytes()
        failed += [] if same else [f"{name}: finish times under {WHOLE} change when GPUs may be cut"]
    _print(name, options, found)
    return failed


def _play(work: Workload, cluster: Cluster, policy: str, seed: int) -> tuple[Outcome, Seen]:
    seen = Seen()
    spec = Spec.parse(policy)
    made = (lambda: _Watched(seen, dynamic=spec.params.get("dynamic") != "false")) if spec.name == DYNAMIC else None
    experiment = Experiment(work, cluster, policy, profile="h200", seed=seed, skip_infeasible=True, made=made)
    return simulate(experiment), seen


class _Watched(SlicedGpus):
    """Looks at each of its plans from outside."""

    def __init__(self, seen: Seen, dynamic: bool) -> None:
        super().__init__(dynamic=dynamic)
        self._of = seen

    def decide(self, view: View) -> Plan:
        plan = super().decide(view)
        self._of.plans += 1
        self._of.sliced += sum(terms.sliced > 0 for row, terms in plan.terms.items() if row in plan.run)
        self._of.wrong = self._of.wrong or _wrong(view, plan)
        return plan


def _wrong(view: View, plan: Plan) -> str:
    """What is not legal about a plan, with everybody who goes on as it is."""
    slicing, cuts = view.facts.slicing, dict[tuple[int, int], list[tuple[int, int]]]()
    if slicing is None:
        return "nothing may be cut"
    going_on = {row: view.places(row) for row in view.rows[view.running].tolist()}
    for row, places in {**going_on, **plan.run}.items():
        terms, at = plan.terms.get(row), view.at(row)
        number = (int(view.sliced[at]) if terms is None else terms.sliced) - 1
        column = int(view.column[at]) if terms is None else terms.column
        for node, _, mask in places:
            table = slicing.tables[slicing.of_node[node]]
            shape = table.shapes[number]  # the last, which is all of it, for whoever has no slice
            gib = float(view.site.gpu_gib[view.site.node_type[node]]) * shape.memory
            if view.gpu_gib[at] > gib + _SLACK_GIB:
                return f"{view.gpu_gib[at]:.1f} GiB in a slice of {gib:.1f}"
            for gpu in range(mask.bit_length()):
                if mask >> gpu & 1:
                    cuts.setdefault((node, gpu), []).append((number % len(table.shapes), column))
    found = (wrong_with(slicing.tables[slicing.of_node[node]], cut) for (node, _), cut in cuts.items())
    return next((text for text in found if text), "")


def _mean(found: list[Outcome], figure: str) -> float:
    return float(np.mean([float(str(one.summary.get(figure) or 0)) for one in found]))


def _print(name: str, options: argparse.Namespace, found: dict[str, list[Outcome]]) -> None:
    print(f"{name}: {options.jobs} jobs, load {options.load:g}, {options.cluster}, {options.seeds} seeds")
    print("| policy | | avg JCT s | median JCT s | avg queue s | at a time | GPUs % | work | changes |")
    print("|---|---|---|---|---|---|---|---|---|")
    for policy, runs in found.items():
        most = max(float(one.series.jobs_running.max()) for one in runs)
        times = " | ".join(f"{_mean(runs, key):,.0f}" for key in ("avg_jct_s", "p50_jct_s", "avg_queue_s"))
        rest = f"{100 * _mean(runs, 'gpu_utilization'):.1f} | {_mean(runs, 'goodput'):.3f}"
        changes = f"{_mean(runs, 'reconfigurations'):,.0f}" if policy.startswith("slices") else ""
        print(f"| `{policy}` | {POLICIES[policy]} | {times} | {most:.0f} | {rest} | {changes} |", flush=True)
    print()


if __name__ == "__main__":
    main()
