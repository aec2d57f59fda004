"""Why jobs of the Philly log wait under `philly`, by size, beside the paper's table (ATC'19, causes of delay).

`python -m bench.philly [--days 50] [--thin 4] [--load 0.9] [--rack 16] [--policies "..."]`; the log is in
`$COTENANT_DATA/traces`, of which one job in `--thin` is taken, on as many fewer machines (1: all of it). Exit
code 1 unless the share of fragmentation in delays rises from 2-4 over 5-8 to more than 8 GPUs.

The log has neither quotas nor attempts nor racks. Stated, and chosen before any result was seen: submissions from
2017-10-01; machines in the mix of the revised list (264 of 8 GPUs, 271 of 4), as many as make the demand of 11 October
to 20 November `--load` of the GPUs; racks of `--rack` machines; quotas in proportion to the GPU-hours of each virtual
cluster; saving before every preemption and 60 s to restore; time-outs looked at every minute. As in the paper jobs of a
minute and more.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from cotenant.core.cluster import Cluster, NodeGroup
from cotenant.core.tenants import Tenant, Tree
from cotenant.core.workload import Workload
from cotenant.policies.philly import Philly
from cotenant.policies.philly.delays import BUCKETS
from cotenant.sim.driver import Experiment, Simulation
from cotenant.workload.readers import read

OCTOBER_S = 4_062_807  # `submit_s` of the first job from 2017-10-01
DAY_S = 86_400.0
PLATEAU_S = 10 * DAY_S, 50 * DAY_S
MIX = ((264, 8), (271, 4))  # of the revised list; 3 machines of 2 GPUs and one of 3 are left out
SHORTEST_S = 60.0
PAPER = {"2-4": 59.4, "5-8": 74.2, ">8": 97.9}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.philly", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--days", type=float, default=50.0, help="submissions of so many days from 1 October on")
    parser.add_argument(
        "--thin", type=int, default=4, help="one job in so many, drawn with a fixed seed, on as few GPUs"
    )
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--rack", type=int, default=16)
    parser.add_argument("--policies", default="philly:heartbeat=60", help="separated by blanks")
    options = parser.parse_args()
    work = log(options.thin)
    cluster = machines(work, options.load)
    work = work.take(work.submit_s < options.days * DAY_S)
    cluster = replace(cluster, tenants=tenants(work, cluster.gpus))
    print(f"{len(work):,} jobs on {cluster.spec}, {cluster.gpus:,} GPUs, racks of {options.rack}")
    rises = [
        show(work, cluster, f"{one}{',' if ':' in one else ':'}rack_nodes={options.rack}")
        for one in options.policies.split()
    ]
    sys.exit(0 if all(rises) else 1)


def log(thin: int) -> Workload:
    """From October on, beginning at 0; one job in `thin`."""
    work = read(Path(os.environ["COTENANT_DATA"]) / "traces" / "philly_109k.csv.gz")
    work = work.take((work.submit_s >= OCTOBER_S) & (np.random.default_rng(0).random(len(work)) < 1 / thin))
    return replace(work, submit_s=work.submit_s - work.submit_s[0])


def machines(work: Workload, load: float) -> Cluster:
    """As many machines of the mix as make the demand of the plateau this load."""
    first, last = PLATEAU_S
    inside_s = np.minimum(work.submit_s + work.duration_s, last) - np.maximum(work.submit_s, first)
    demand = float((work.gpus * np.maximum(inside_s, 0.0)).sum()) / (last - first)
    part = demand / load / sum(count * gpus for count, gpus in MIX)
    groups = tuple(NodeGroup(round(count * part), gpus) for count, gpus in MIX)
    return Cluster(groups, spec="+".join(f"{group.count}x{group.gpus_per_node}" for group in groups))


def tenants(work: Workload, gpus: int) -> Tree:
    """Quotas in proportion to GPU-hours; what rounding leaves belongs to nobody."""
    hours = np.bincount(work.tenant.code, work.gpus * work.duration_s, len(work.tenant.names))
    parts = np.floor(hours / hours.sum() * gpus).astype(int).tolist()
    return Tree(tuple(Tenant(name, guaranteed=part) for name, part in zip(work.tenant.names, parts, strict=True)))


def show(work: Workload, cluster: Cluster, policy: str) -> bool:
    """Run one policy and print its table; whether the share of fragmentation rises with size."""
    began_s = time.process_time()
    run = Simulation(Experiment(work, cluster, policy, compiled=True, skip_infeasible=True))
    run.advance(np.inf)
    outcome, counted = run.outcome(), run.policy
    assert isinstance(counted, Philly)
    table = counted.delays.table(run.work.duration_s >= SHORTEST_S)
    print(f"\n`{policy}`, {time.process_time() - began_s:.0f} CPU seconds\n")
    print("| GPUs | fair-share | fragmentation | share | the paper's | share of waiting time | mean wait s |")
    print("|---|---|---|---|---|---|---|")
    shares = []
    waited = np.zeros(2)
    for bucket, paper in PAPER.items():
        row = table[bucket]
        fair, fragmented = row["fair_share"], row["fragmentation"]
        seconds = np.array([row["fair_share_s"], row["fragmentation_s"]])
        waited += seconds
        shares.append(fragmented / max(fair + fragmented, 1.0))
        of_time = seconds[1] / max(seconds.sum(), 1.0)
        least, most = BUCKETS[bucket]
        asked = (run.work.gpus >= least) & (run.work.gpus <= most) & (run.work.duration_s >= SHORTEST_S)
        wait_s = float(outcome.queue_s[asked].mean())
        counts = f"{fair:,.0f} | {fragmented:,.0f} | {shares[-1]:.1%} | {paper} %"
        print(f"| {bucket} | {counts} | {of_time:.1%} | {wait_s:,.0f} |")
    found = {key: float(str(value)) for key, value in outcome.summary.items() if isinstance(value, int | float)}
    past = max(found["starts_past_large"], 1.0)
    lines = (
        f"fragmentation: {waited[1] / max(waited.sum(), 1.0):.1%} of waiting time (the paper's: about 80 %)",
        f"starts out of order: {found['starts_out_of_order'] / found['starts']:.1%} (38.1 %)",
        f"harmless to the large job passed: {1 - found['starts_past_large_harmful'] / past:.1%} of {past:,.0f} (85 %)",
        f"held idle: {found['held_idle_gpu_s'] / 3600:,.0f} GPU-hours; preemptions: {found['preemptions']:,.0f}",
        f"GPUs in use: {found['gpu_utilization']:.1%}; mean JCT {found['avg_jct_s']:,.0f} s, wait"
        f" {found['avg_queue_s']:,.0f} s; {found['decisions']:,.0f} decisions",
    )
    print("", *lines, sep="\n", flush=True)
    return shares[0] < shares[1] < shares[2]


if __name__ == "__main__":
    main()
