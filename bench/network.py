"""A network that gangs share: what it changes, and for which policies: `python -m bench.network`.

Jobs like Philly's and like Helios' with Tiresias' ten models, on 96 GPUs in nodes of 4 (so that gangs of 8 take two),
six nodes to a rack, links of 10 Gbit/s and uplinks of 20: three times oversubscribed. Every policy is played without
the network, with it, and where it leaves places to the engine with `--network avoid`, `wait` and both. Below each table
stand the pairs of policies that change places when the network is switched on, and in how many seeds the first of each
was ahead. `--only widths` says by how much the network slows some of them on other links.

Exit status 1 if one of these does not hold: two and three gangs on one link go as worked out by hand; on links that
never fill up everything ends as without a network; avoiding loses no more to the network than not avoiding, in sum over
the table; without a network the digests of `bench/matrix_digests.txt` are the same (`--only off`).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from cotenant.core.outcome import Outcome
    from cotenant.core.workload import Workload

POLICIES = ("fifo", "easy", "sjf", "srtf", "tiresias-l", "sjf-bsbf")
PLACED = POLICIES[:-1]
"""Those that leave it to the engine where jobs go."""
LOADS = {"philly-like": 5.0, "helios-like": 1.2}
"""Nominal: of Philly's few long jobs outlast all others, so that it takes that much for a queue."""
NODES, EACH = 24, 4
USUAL = (10, 20)
WIDTHS = (USUAL, (10, 60), (25, 50), (100, 200))
ALIKE = 0.01  # relative: policies that differ by less before and after do not change places
WAYS = ("off", "on", "avoid", "wait", "avoid,wait")
PARTS = ("golden", "off", "table", "widths")


@dataclass(frozen=True, slots=True)
class Found:
    """One run: mean JCT in hours, GPU-hours lost to the network, and the share of gangs on more nodes than needed."""

    jct_h: float
    lost_h: float
    spread: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.network", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default=",".join(PARTS), help="some of " + ", ".join(PARTS))
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    asked = options.only.split(",")
    if unknown := [name for name in asked if name not in PARTS]:
        parser.error(f"--only {unknown[0]}: write some of {', '.join(PARTS)}")
    plays = {
        "golden": golden, "off": off,
        "table": lambda: table(options.jobs, options.seeds), "widths": lambda: widths(options.jobs, options.seeds),
    }  # fmt: skip
    held = True
    for name in asked:
        began = time.process_time()
        held &= plays[name]()
        print(f"({name}: {time.process_time() - began:.0f} s of CPU)\n", flush=True)
    sys.exit(0 if held else 1)


def golden() -> bool:
    """100 MB per step over 1 GB/s, and 0.1 s to compute: 0.2 s alone, 0.3 s with two, 0.4 s with three on a link."""
    from cotenant.core.network import Network, Topology

    topology = Topology(Network(8, overlap=0), [0] * 4)
    gangs = [topology.gang((0, other), 2, 100e6, 0.1) for other in (1, 2, 3)]
    held = True
    for count, step_s in ((1, 0.2), (2, 0.3), (3, 0.4)):
        speeds = topology.speeds(gangs[:count])
        held &= bool(np.allclose(speeds, 0.2 / step_s, rtol=1e-12))
        print(f"{count} on a link: speed {speeds[0]:.4f}, by hand {0.2 / step_s:.4f}")
    work = _work("helios-like", 120, 0)
    for policy in POLICIES:
        plain, wide = (_outcome(work, policy, spec).finish_s for spec in (_cluster(), _cluster(10**9, 10**9)))
        same = bool(np.allclose(plain, wide, rtol=1e-9))
        held &= same
        print(f"{policy} on links that never fill up: {'as without a network' if same else 'NOT as without a network'}")
    return held


def off() -> bool:
    """Rows of the matrix that touch what a network touches, against the recorded digests."""
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-m", "bench.matrix", "--check", "bench/matrix_digests.txt", "--only"]
    rows = ("orders.8x8.srtf", "orders.8x8.easy", "place.spread.fifo")
    codes = [subprocess.run([*command, row], cwd=root, check=False).returncode for row in rows]
    print(f"{len(rows)} sets of rows without a network: {'as recorded' if not any(codes) else 'NOT as recorded'}")
    return not any(codes)


def table(jobs: int, seeds: int) -> bool:
    """Mean JCT in hours, and in brackets the GPU-hours lost to the network, by what is switched on."""
    lost = dict.fromkeys(WAYS, 0.0)
    for load in LOADS:
        print(f"{load}, load {LOADS[load]:g}, {jobs} jobs, {seeds} seeds, {_cluster(*USUAL)}")
        print("mean JCT in hours (GPU-hours lost to the network)")
        print(f"{'policy':<12}" + "".join(f"{way:>17}" for way in WAYS))
        rows: dict[str, dict[str, list[Found]]] = {}
        for policy in POLICIES:
            rows[policy] = {}
            for way in WAYS if policy in PLACED else WAYS[:2]:
                rows[policy][way] = [_play(load, jobs, seed, policy, way, USUAL) for seed in range(seeds)]
                lost[way] += sum(found.lost_h for found in rows[policy][way]) if policy in PLACED else 0.0
            print(f"{policy:<12}" + "".join(f"{_cell(found):>17}" for found in rows[policy].values()), flush=True)
        for way in WAYS[1:]:
            _say_order({policy: found for policy, found in rows.items() if way in found}, way, seeds)
        print()
    held = lost["avoid"] <= lost["on"]
    print(f"GPU-hours lost in all: on {lost['on']:.0f}, avoid {lost['avoid']:.0f}: {'held' if held else 'MISSED'}")
    return held


def widths(jobs: int, seeds: int) -> bool:
    """By how much the network slows each policy on other links; beside how many gangs it spreads anyway."""
    for load in LOADS:
        print(f"{load}: mean JCT with the network over without, by Gbit/s of links/uplinks")
        print(f"{'policy':<12}" + "".join(f"{f'{link}/{uplink}':>9}" for link, uplink in WIDTHS) + "   spread")
        for policy in ("fifo", "srtf", "sjf-bsbf"):
            found = [_play(load, jobs, seed, policy, "off", USUAL) for seed in range(seeds)]
            plain, spread = _mean(found), np.mean([one.spread for one in found])
            cells = (_mean([_play(load, jobs, seed, policy, "on", width) for seed in range(seeds)]) for width in WIDTHS)
            print(f"{policy:<12}" + "".join(f"{cell / plain:>9.3f}" for cell in cells) + f"{spread:>9.2f}", flush=True)
    return True


def _say_order(rows: dict[str, dict[str, list[Found]]], way: str, seeds: int) -> None:
    """From the best on, and who has changed places."""
    order = sorted(rows, key=lambda policy: _mean(rows[policy][way]))
    print(f"{way}: {', '.join(order)}")
    for words in _swaps(rows, way, seeds):
        print(f"  {words}")


def _swaps(rows: dict[str, dict[str, list[Found]]], way: str, seeds: int) -> Iterator[str]:
    """Pairs of policies of which the other one is ahead, in the mean; and in how many seeds it is, before and after."""
    for one, other in combinations(rows, 2):
        before, after = (_mean(rows[one][when]) / _mean(rows[other][when]) - 1 for when in ("off", way))
        if before * after < 0 and max(abs(before), abs(after)) >= ALIKE:
            first, second = (one, other) if before < 0 else (other, one)
            ahead = [
                sum(a.jct_h < b.jct_h for a, b in zip(rows[first][when], rows[second][when], strict=True))
                for when in ("off", way)
            ]
            yield f"{first} was ahead of {second} (in {ahead[0]} of {seeds} seeds), and is behind (in {ahead[1]})"


def _mean(found: list[Found]) -> float:
    return float(np.mean([one.jct_h for one in found]))


def _cell(found: list[Found]) -> str:
    return f"{_mean(found):.2f} ({np.mean([one.lost_h for one in found]):.0f})"


def _cluster(link: int = 0, uplink: int = 0) -> str:
    return f"{NODES}x{EACH}" + (f"/link={link},rack=6,uplink={uplink}" if link else "")


def _work(load: str, jobs: int, seed: int) -> Workload:
    from cotenant.core.spec import Spec
    from cotenant.workload.generators import generate
    from cotenant.workload.model_sets import assign_models

    spec = Spec.parse(f"{load}:jobs={jobs},load={LOADS[load]},max_gpus=32,seed={seed}")
    return assign_models(generate(spec, NODES * EACH), "tiresias", "")


def _outcome(work: Workload, policy: str, cluster: str, network: str = "") -> Outcome:
    from cotenant.core.cluster import Cluster
    from cotenant.sim.driver import Experiment, simulate

    return simulate(Experiment(work, Cluster.parse(cluster), policy, network=network))


@cache
def _play(load: str, jobs: int, seed: int, policy: str, way: str, width: tuple[int, int]) -> Found:
    cluster = _cluster() if way == "off" else _cluster(*width)
    result = _outcome(_work(load, jobs, seed), policy, cluster, "" if way in ("off", "on") else way)
    lost_h = float(str(result.summary.get("network_lost_gpu_h", 0.0)))
    return Found(float(str(result.summary["avg_jct_s"])) / 3600, lost_h, _spread(result))


def _spread(result: Outcome) -> float:
    """Share of the runs of gangs that were on more nodes than they need."""
    places: dict[tuple[int, float], int] = {}
    for run in zip(result.segments.job.tolist(), result.segments.start_s.tolist(), strict=True):
        places[run] = places.get(run, 0) + 1
    gpus = result.workload.gpus
    return float(np.mean([nodes > -(-gpus[job] // EACH) for (job, _), nodes in places.items() if gpus[job] > 1]))


if __name__ == "__main__":
    main()
