"""Deadlines on a public log: `python -m bench.chronus`.

COTENANT_DATA (default ../shared/data) names the folder above chronus/ with the logs. First the 10 % sample of MIX1 on
12 nodes of 8 GPUs: simple policies, Chronus as its authors released it (`--compat chronus`), and with our defaults.
Then how long a decision takes on 120 nodes (960 GPUs), over the first day of MIX1, at moments with 400 jobs or more.
`--quick` leaves the integer program out, `--only TEXT` all rows whose name does not have it. `adaptive`, the authors'
objective, spares the next lease while somebody is here without a promise: the rows `minimise` and `maximise` always
and never do. The rows `restore` test why fewer deadlines are missed than in the released simulator, which takes all
jobs off their GPUs at every lease boundary: here those that stay restore at each boundary all the same, either
everybody or only who holds a lease. `survey` believes what users foretell, `splits` has jobs that are split over nodes
run as slowly as `model_info.json` says.

`--live`: promises of the live service, 200 random submissions on the fake world and 20 real jobs, killed on the way
(`bench.chronus_live`); fails where one is broken or was not the policy's own.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

LEASE_S = 1200.0

# (name, policy, compat, costs, miss rate to be met or known, what it is)
RUNS = (
    ("edf", "edf", "", "none", 0.340, "known"),
    ("edf-backfill", "edf-backfill", "", "none", 0.218, "known"),
    ("sjf", "sjf", "", "none", 0.194, "known"),
    ("chronus, compat, greedy", "chronus", "chronus", "default", 0.053, "at most"),
    ("chronus, compat, program", "chronus:solver=milp,budget=5", "chronus", "default", 0.047, "at most"),
    ("compat, program, minimise", "chronus:solver=milp,budget=5,objective=minimise", "chronus", "default", None, ""),
    ("compat, program, maximise", "chronus:solver=milp,budget=5,objective=maximise", "chronus", "default", None, ""),
    ("chronus", "chronus", "", "default", None, ""),
    ("chronus, best effort first", "chronus:spare=best-effort", "", "default", None, ""),
    ("chronus, leases of an hour", "chronus:lease=3600", "", "default", None, ""),
    ("chronus, survey", "chronus", "", "default", None, ""),
    ("chronus, splits", "chronus", "", "default", None, ""),
    ("chronus, splits, search", "chronus:search=16", "", "default", None, ""),
    ("compat, greedy, all restore", "chronus", "chronus", "default", 0.043, "authors"),
    ("compat, greedy, leases restore", "chronus", "chronus", "default", 0.043, "authors"),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.chronus", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="leave the integer program out")
    parser.add_argument("--only", default="", help="rows with this text in their name")
    parser.add_argument("--live", action="store_true", help="promises of the live service instead")
    parser.add_argument("--seed", type=int, default=0, help="of the live submissions")
    options = parser.parse_args()
    if options.live:
        sys.exit(live(options.seed))
    from cotenant.core.cluster import Cluster
    from cotenant.sim.driver import Experiment, Simulation
    from cotenant.workload.readers import read

    work = read(data("mix1_sample_10pc.csv.gz"))
    best_effort = np.isnan(work.deadline_s)
    print(f"{len(work):,} jobs, {int((~best_effort).sum()):,} with deadlines, 12x8 GPUs, consolidated")
    heads = ("missed", "published", "JCT min", "BE JCT min", "stops/job", "wall s")
    print(f"{'policy':<30}" + "".join(f"{head:>18}" for head in heads), flush=True)
    for name, policy, compat, costs, known, kind in RUNS:
        if (options.quick and "milp" in policy) or options.only not in name:
            continue
        began = time.perf_counter()
        names = (compat,) if compat else ()
        more = {"estimator": "survey"} if "survey" in name else {}
        more |= {"profile": str(data("model_info.json"))} if "splits" in name else {}
        run = Simulation(
            Experiment(work, Cluster.parse("12x8"), policy, compat=names, costs=costs, compiled=False, **more)
        )
        if "restore" in name:
            restores = restore_at_boundaries(run, float(work.submit_s[0]), everybody="all" in name) / len(work)
        run.advance(np.inf)
        outcome = run.outcome()
        cells = (
            f"{outcome.summary['wdmr']:.4f}",
            "-" if known is None else f"{kind} {known:.3f}",
            f"{float(outcome.jct_s.mean()) / 60:,.1f}",
            f"{float(outcome.jct_s[best_effort].mean()) / 60:,.1f}",
            f"{float(outcome.preemptions.mean()):.2f}",
            f"{time.perf_counter() - began:.1f}",
        )
        print(f"{name:<30}" + "".join(f"{cell:>18}" for cell in cells), flush=True)
        if "restore" in name:
            print(f"  {restores:.1f} restores per job in place, beside those of stops")
        if "milp" in policy:
            show_programs(run.policy)
    if not options.only:
        decision_times()


def live(seed: int) -> int:
    """Promises of the live service; 1 where any is not what it should be."""
    from bench.chronus_live import play_fake, play_real

    wrong = []
    with tempfile.TemporaryDirectory(prefix="cotenant-chronus-") as folder:
        for name, play in (
            ("fake world", lambda: play_fake(Path(folder) / "fake", seed, 200)),
            ("real jobs", lambda: play_real(Path(folder) / "real", seed, 20)),
        ):
            began, tally = time.perf_counter(), play()
            wrong += tally.wrong
            print(f"{name}: {tally}; {len(tally.wrong)} wrong, {time.perf_counter() - began:.0f} s", flush=True)
    print("\n".join(wrong[:20]) or "every promise was kept, and every answer was the policy's")
    return int(bool(wrong))


def restore_at_boundaries(run: Any, first_s: float, everybody: bool) -> int:
    """Play to the end; at each lease boundary jobs that go on in place pay for a restore. How many did."""
    from cotenant.core import columns as col
    from cotenant.engine.rates import restart

    state, paid, now_s = run.state, 0, float(np.ceil(first_s / LEASE_S) * LEASE_S)
    while not run.advance(now_s):
        stays = (state.i[:, col.STATE] == col.RUNNING) & (state.f[:, col.SINCE] < now_s)
        if not everybody:
            stays &= np.isin(np.arange(len(stays)), list(run.policy._held))
        rows = np.flatnonzero(stays)
        restart(state, run.engine.rule, rows, state.f[rows, col.SPEED], state.f[rows, col.RESTORE], now_s)
        paid, now_s = paid + len(rows), now_s + LEASE_S
    return paid


def show_programs(policy: Any) -> None:
    tally = policy.timetables.tally
    gaps = np.array(tally.gaps)
    print(
        f"  {len(gaps):,} programs of up to {tally.pairs} pairs, {tally.optimal:,} proved best, {tally.stopped} stopped"
        f"; greedy packing as good in {100 * float((gaps < 1e-6).mean()):.0f} %, mean gap {gaps.mean():.3f}, "
        f"largest {gaps.max():.3f} (a lost step costs at least 2, the present lease at most 1)"
    )


def decision_times() -> None:
    from cotenant.core.cluster import Cluster
    from cotenant.sim.driver import Experiment, Simulation
    from cotenant.workload.readers import read

    run = Simulation(
        Experiment(
            read(data("mix1_day1.csv.gz")), Cluster.parse("120x8"), "chronus", compat=("chronus",), compiled=False
        )
    )
    policy: Any = run.policy
    taken: list[tuple[int, float]] = []
    inner = policy.decide

    def timed(view: Any) -> Any:
        began = time.process_time()
        plan = inner(view)
        taken.append((len(view.rows), time.process_time() - began))
        return plan

    policy.decide = timed
    run.advance(np.inf)
    times = np.array([seconds for jobs, seconds in taken if jobs >= 400])
    most = max(jobs for jobs, _ in taken)
    p50, p99 = np.percentile(times, [50, 99])
    print(
        f"greedy decision at 960 GPUs, {len(times)} of them at 400 to {most:,} jobs: median {1000 * p50:.0f} ms, "
        f"p99 {1000 * p99:.0f} ms, largest {1000 * times.max():.0f} ms of processor time (at most 1 s asked); "
        f"missed {run.outcome().summary['wdmr']:.4f} (released simulator 0.0011)"
    )


def data(name: str) -> Path:
    default = Path(__file__).resolve().parents[1].parent / "shared" / "data"
    path = Path(os.environ.get("COTENANT_DATA") or default) / "chronus" / name
    if not path.is_file():
        sys.exit(f"bench.chronus: {path} is missing; COTENANT_DATA must name the folder above chronus/")
    return path


if __name__ == "__main__":
    main()
