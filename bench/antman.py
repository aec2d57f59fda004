"""AntMan: what guaranteed jobs lose, what opportunistic jobs gain, and the paper's experiments on one GPU.

`python -m bench.antman [--jobs 800] [--seeds 3]`. A philly-like workload on 64 GPUs (8x8:h200), two tenants: A owns a
quota of 64 GPUs and two thirds of the jobs, B has none, so that its jobs are opportunistic. `slower` is the time that
guaranteed jobs hold their GPUs over the time they need alone on the same GPUs; the paper's histogram of it has buckets
of 1 %, so a job `below 1 %` counts as not affected (below 0.1 % beside it). Jobs of A that were opportunistic while its
quota was used up do not count as guaranteed. `goodput` is the work of B's jobs per second that they held GPUs. fifo and
sjf-ffs run the same jobs for comparison; `believe=false,budget=1` is feedback alone, without beliefs.

Before that: a guaranteed and an opportunistic job on one GPU, for every pair that was measured on the H200, and the
paper's two experiments, all with the options as they come. What moves the jobs is the measured pair and the pauses; the
policy knows neither, and believes that both keep the GPU busy half of the time.
"""

from __future__ import annotations

import argparse

import numpy as np

from bench.bsbf import hashed_models
from cotenant.core import columns as col
from cotenant.core.cluster import Cluster, NodeGroup
from cotenant.core.plan import Plan
from cotenant.core.spec import Spec
from cotenant.core.view import View
from cotenant.core.workload import Codes, Workload, make_workload
from cotenant.policies.antman import AntMan
from cotenant.sim.driver import Experiment, Simulation
from cotenant.testing.sharing import shared_run, sharing
from cotenant.workload.generators import generate
from cotenant.workload.profiles import measured
from cotenant.workload.profiles.together import MEMORY_CURVES

MIN = 60.0
POLICIES = (
    "fifo",
    "sjf-ffs",
    "antman",
    "antman:believe=false,budget=1",
    "antman:budget=0",
    "antman:budget=0.01",
    "antman:tolerance=0.03",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.antman", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--jobs", type=int, default=800)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--load", default="0.9")
    parser.add_argument("--policies", default="", help="separated by blanks")
    options = parser.parse_args()
    if not options.policies:
        _one_gpu()
    print(f"\nphilly-like, {options.jobs} jobs, load {options.load}, {options.seeds} seeds, 64 GPUs, two tenants")
    print(
        f"{'policy':30} {'A: guaranteed %':>15} {'slower %':>8} {'worst %':>8} {'below 1 %':>10} {'below 0.1 %':>12} "
        f"{'A: JCT s':>10} {'B: goodput':>11} {'B: JCT s':>10} {'B: longest wait s':>18}"
    )
    for policy in options.policies.split() or POLICIES:
        rows = np.array([_one(options, policy, seed) for seed in range(options.seeds)]).mean(axis=0)
        print(
            f"{policy:30} {rows[0]:15.1f} {rows[1]:8.3f} {rows[2]:8.1f} {rows[3]:10.2f} {rows[4]:12.2f} "
            f"{rows[5]:10,.0f} {rows[6]:11.2f} {rows[7]:10,.0f} {rows[8]:18,.0f}",
            flush=True,
        )


def _workload(options: argparse.Namespace, seed: int) -> Workload:
    spec = Spec.parse(f"philly-like:jobs={options.jobs},load={options.load},seed={seed}")
    work = hashed_models(generate(spec, 64, None), seed)
    tenant = (np.arange(len(work)) % 3 == 2).astype(np.int64)
    return make_workload(
        work.source,
        work.submit_s,
        work.gpus,
        work.duration_s,
        tenant=Codes(tenant, ("A", "B")),
        model=work.model,
        priority=-tenant,
    )


def _one(options: argparse.Namespace, policy: str, seed: int) -> list[float]:
    work = _workload(options, seed)
    quotas = {"A": 64, "B": 0} if policy.startswith("antman") else {}
    cluster = Cluster((NodeGroup(8, 8, "h200"),), quotas, "8x8:h200")
    run = Simulation(Experiment(work, cluster, policy, profile="h200", costs="none", skip_infeasible=True, seed=seed))
    squeezed = _watch(run.policy) if isinstance(run.policy, AntMan) else set()
    run.advance(np.inf)
    result, state, work = run.outcome(), run.state, run.work
    owner = work.tenant.code
    ever = np.isin(np.arange(len(work)), list(squeezed))
    real = work.duration_s > 0
    alone_s = np.where(real, work.duration_s, 1.0) / state.f[:, col.ALONE]
    slow = 100 * (state.f[:, col.OCCUPIED] / alone_s - 1)
    first, second = (owner == 0) & real & ~ever, (owner == 1) & real
    jct = result.finish_s - work.submit_s
    wait = np.where(np.isnan(state.f[:, col.FIRST]), np.inf, state.f[:, col.FIRST] - work.submit_s)
    return [
        float(100 * first.sum() / (owner == 0).sum()),
        float(slow[first].mean()), float(slow[first].max()), float(100 * (slow[first] < 1).mean()),
        float(100 * (slow[first] < 0.1).mean()),
        float(jct[owner == 0].mean()), float(work.duration_s[second].sum() / state.f[second, col.OCCUPIED].sum()),
        float(jct[owner == 1].mean()), float(wait[owner == 1].max()),
    ]  # fmt: skip


def _watch(policy: AntMan) -> set[int]:
    """Jobs that were opportunistic at some time: those of A too, while its quota is used up."""
    found: set[int] = set()
    inner = policy.decide

    def decide(view: View) -> Plan:
        plan = inner(view)
        found.update(row for row, terms in plan.terms.items() if terms.opportunistic)
        return plan

    policy.decide = decide  # type: ignore[method-assign]
    return found


def _one_gpu() -> None:
    """A guaranteed job of ten minutes after which an opportunistic one comes to its GPU: both speeds against alone."""
    print("one GPU, pairs of the H200     host slower, mean / worst   guest's speed, mean / median / best   held back")
    for sharing_ in measured.SHARING:
        found = np.array([_beside(*ratios) for ratios in measured.pairs(sharing_).values()])
        lost, got = 100 * (1 - found[:, 0]), found[:, 1]
        speeds = f"{got.mean():19.2f} / {np.median(got):.2f} / {got.max():.2f}"
        slow = f"{lost.mean():12.2f} / {lost.max():.2f} %"
        print(f"  {sharing_:25} {slow} {speeds} {100 * (found[:, 2] < 1).mean():16.0f} %", flush=True)
    host, guest, _ = _beside(20.1 / 105.2, 1.0)
    print("ESPnet (guaranteed) beside ResNet-50: minutes, and speed of ResNet-50         paper")
    print(f"  antman   {20.1 / host:6.1f}, {100 * guest:.1f} % or less{'':45}20.8, 57 %")
    curve = np.array([MEMORY_CURVES["sr"], MEMORY_CURVES["resnet"]])
    table = sharing([[1, 1], [1, 1]], memory_gib=[3.5, 30.0], gpu_gib=32.0, busy=[0.5, 0.5], curve=curve)
    print("GCN (opportunistic, from 0) and ResNet-50 (from 26 min) on 32 GiB: minutes      paper")
    for policy, paper in (("fifo", "43.0, 108.2"), ("antman", "43.9, 91.8")):
        marks = [-1, 0] if policy.startswith("antman") else None
        run = shared_run([(0.0, 1, 43 * MIN), (26 * MIN, 1, 91.1 * MIN)], table, "1x1", policy, priority=marks)
        run.advance(np.inf)
        ends = (run.state.f[:, col.FINISH] / MIN).tolist()
        print(f"  {policy:8} {ends[0]:6.1f}, {ends[1] - 26:.1f}{'':46}{paper}")


def _beside(host: float, guest: float) -> tuple[float, float, float]:
    """Speeds of both against alone in the ten minutes after the guest came, from the pair; and its share at the end."""
    table = sharing([[1, host], [guest, 1]], busy=[0.5, 0.5])
    run = shared_run([(0.0, 1, 1e6), (600.0, 1, 1e6)], table, "1x1", "antman", priority=[0, -1])
    run.advance(1200.0)
    done = run.engine.view(1200.0).progress_s
    return float(done[0] - 600.0) / 600.0, float(done[1]) / 600.0, float(run.state.f[1, col.SHARE])


if __name__ == "__main__":
    main()
