"""Sleeping nodes under a policy: `python -m bench.ces_policies`.

A generated log after Philly (some ten days; `--jobs`, `--load`) runs on 40 nodes of 8 GPUs under each policy, once with
all nodes on and once per set of rules (`--power`, see docs/elastic.md). Means over the seeds. Nodes asleep, wake-ups,
kWh (cooling included) and jobs delayed are those up to the last submission; the quiet time after it would flatter them.
JCT is that of all jobs, each run to its end. `of empty` is the share of node hours without a job, with all nodes on,
that were slept through. Delayed are jobs that waited although nodes asleep or booting could have held them.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

from cotenant.core.cluster import Cluster
from cotenant.core.outcome import Outcome, Segments
from cotenant.core.spec import Spec
from cotenant.core.workload import Workload
from cotenant.sim.driver import Experiment, Simulation
from cotenant.workload.generators import generate

NODES, GPUS = 40, 8
POLICIES = ("fifo", "srtf")
RULES = ("ces", "ces:buffer=2", "ces:preset=philly,buffer=2")
HEADS = ("asleep", "of empty", "wakes/day", "kWh saved", "delayed", "JCT h", "change", "p99 h", "change")


@dataclass(frozen=True, slots=True)
class Run:
    """One simulation: what was counted up to the last submission, and the whole outcome."""

    counted: dict[str, float]
    outcome: Outcome
    empty_nodes: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ces_policies", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--load", type=float, default=0.6)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    logs = [
        generate(Spec.parse(f"philly-like:jobs={options.jobs},load={options.load},gpus={NODES * GPUS},seed={seed}"))
        for seed in range(options.seeds)
    ]
    days = np.mean([log.span_s for log in logs]) / 86400
    print(f"{options.jobs} jobs like Philly's over {days:.1f} days, load {options.load}, {NODES} nodes of {GPUS} GPUs,")
    print(f"mean of {options.seeds} seeds; changes in %, against all nodes on")
    print(f"{'policy':<7}{'power':<28}" + "".join(f"{head:>10}" for head in HEADS))
    for policy in POLICIES:
        always = [_run(log, policy, "", seed) for seed, log in enumerate(logs)]
        print(_line(policy, "all on", always, always), flush=True)
        for rules in RULES:
            found = [_run(log, policy, rules, seed) for seed, log in enumerate(logs)]
            print(_line(policy, rules, found, always), flush=True)


def _run(log: Workload, policy: str, power: str, seed: int) -> Run:
    run = Simulation(Experiment(log, Cluster.parse(f"{NODES}x{GPUS}"), policy, power=power, seed=seed))
    last_s = float(log.submit_s[-1])
    run.advance(last_s)
    counted = {} if run.power is None else {key: float(str(value)) for key, value in run.power.summary(last_s).items()}
    run.advance(np.inf)
    outcome = run.outcome()
    assert np.isfinite(outcome.finish_s).all()
    empty = _empty_nodes(outcome.segments, float(log.submit_s[0]), last_s)
    return Run(counted, outcome, empty)


def _empty_nodes(segments: Segments, first_s: float, last_s: float) -> float:
    """Mean number of nodes without a job between two moments."""
    used_s = 0.0
    for node in range(NODES):
        own = segments.node == node
        begin = np.clip(segments.start_s[own], first_s, last_s)
        end = np.clip(segments.end_s[own], first_s, last_s)
        order = np.argsort(begin, kind="stable")
        reached = np.concatenate([[first_s], np.maximum.accumulate(end[order])])
        used_s += float(np.maximum(reached[1:] - np.maximum(begin[order], reached[:-1]), 0.0).sum())
    return NODES - used_s / (last_s - first_s)


def _line(policy: str, power: str, runs: list[Run], always: list[Run]) -> str:
    def counted(name: str) -> float | None:
        return float(np.mean([run.counted[name] for run in runs])) if runs[0].counted else None

    def hours(those: list[Run], quantile: float | None) -> float:
        jct = [run.outcome.jct_s for run in those]
        return float(np.mean([each.mean() if quantile is None else np.quantile(each, quantile) for each in jct])) / 3600

    asleep, change = counted("nodes_asleep"), runs is not always
    empty = float(np.mean([run.empty_nodes for run in always]))
    cells: list[float | None] = [asleep, None if asleep is None else 100 * asleep / empty, counted("wakeups_per_day")]
    cells += [counted("saved_kwh"), counted("jobs_delayed_by_waking")]
    for quantile in (None, 0.99):
        now = hours(runs, quantile)
        cells += [now, 100 * (now / hours(always, quantile) - 1) if change else None]
    shown = ("-" if cell is None else f"{cell:,.2f}" if abs(cell) < 100 else f"{cell:,.0f}" for cell in cells)
    return f"{policy:<7}{power:<28}" + "".join(f"{cell:>10}" for cell in shown)


if __name__ == "__main__":
    main()
