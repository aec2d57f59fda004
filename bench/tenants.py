"""What tenants cost and bring: `python -m bench.tenants PART...`.

decide   CPU time of a decision of the live service (`planner.step`, as `bench.service` has it) with 10,000 jobs of 200
         tenants pending, with a tree of three levels and without one; at most 1.3 times as much. A decision costs by
         the job that starts, runs and speaks, so as many have to run on both sides: all gangs have two GPUs (of mixed
         sizes a tree lets more of the small ones run), and ask for different cores, so that there are as many classes
engine   the same of the engine alone (`engine.step`), one after the other on the same jobs
fill     CPU time of the rule alone (`tenancy.filling`): 200 tenants, 1,200 classes, 2,000 GPUs, from empty to full
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.quiet import Others
from bench.service import Mix, busy_service, decide_often
from cotenant.core import columns as col
from cotenant.core import jit
from cotenant.core.cluster import Cluster, NodeGroup
from cotenant.core.decision import Change, Event, Kind
from cotenant.core.tenants import Tenant, Tree
from cotenant.engine.cycle import Engine
from cotenant.engine.live_rows import LiveRows, NewJob
from cotenant.engine.tables import StopCosts
from cotenant.placement.modes import parse_placement
from cotenant.policies import make_policy
from cotenant.policies.base import Context
from cotenant.tenancy import filling
from cotenant.tenancy.asked import Asked, new_claims
from cotenant.tenancy.tree_tables import tree_tables

PARTS = ("decide", "engine", "fill")
NODES, PENDING, MOST_TIMES = 250, 10_000, 1.3
SIZES = (1, 1, 1, 2, 4, 8)
TREE = Tree(
    tuple(
        tenant
        for a in range(5)
        for tenant in (
            Tenant(f"a{a}", guaranteed=240, ceiling=1000),
            *(
                one
                for b in range(8)
                for one in (
                    Tenant(f"a{a}b{b}", f"a{a}", guaranteed=25, weight=1.0 + b),
                    *(Tenant(f"a{a}b{b}c{c}", f"a{a}b{b}", guaranteed=5, lend=4) for c in range(5)),
                )
            ),
        )
    ),
    half_life_s=86400.0,
)
LEAVES = tuple(tenant.name for tenant in TREE.tenants if not TREE.children(tenant.name))
ALIKE = Mix(LEAVES, gpus=(2,), cpus=(0.0, 1.0, 2.0, 4.0))


class Busy:
    """A live engine on a full cluster with a queue; every look some jobs end and as many come."""

    def __init__(self, policy: str, tree: Tree | None) -> None:
        made, context = make_policy(policy), Context()
        made.begin(context)
        rule = made.rule(context)
        cluster = Cluster((NodeGroup(NODES, 8),), tenants=tree)
        costs = StopCosts(np.inf, most_suspended=4, patience_s=5.0)
        self.tables = LiveRows(
            cluster, parse_placement("consolidated"), rule, np.ones((1, 1, 2)), costs=costs, sharing=True
        )
        self.engine = Engine(self.tables, made, rule)
        self.chance, self.now_s, self.seconds = random.Random(1), 0.0, list[float]()
        self.running: dict[int, None] = {}
        self.look([], PENDING + NODES * 4)

    def look(self, ends: list[int], comes: int) -> None:
        """Some jobs end, others come; the decision is timed."""
        self.now_s += 1.0
        events = [Event(Kind.OVER, row) for row in ends] + [Event(Kind.ARRIVED, self._job()) for _ in range(comes)]
        began = time.thread_time()
        decision = self.engine.step(self.now_s, events)
        self.seconds.append(time.thread_time() - began)
        for row in ends:
            self.running.pop(row, None)
        for told in decision.transitions:
            if told.change in (Change.START, Change.RESUME):
                self.running[told.row] = None
            elif told.change in (Change.STOP, Change.SUSPEND, Change.END):
                self.running.pop(told.row, None)

    def round(self) -> None:
        """Five jobs end, five come."""
        self.look(self.chance.sample(sorted(self.running), 5), 5)

    def _job(self) -> int:
        gpus, tenant = self.chance.choice(SIZES), self.chance.choice(LEAVES)
        row = self.tables.enter(NewJob(gpus, self.now_s, tenant))
        self.tables.state.f[row, col.BELIEF] = self.chance.uniform(1e3, 1e5)
        return row


def decide(policies: list[str], rounds: int) -> bool:
    """Print the ratio per policy; whether all are within the bound."""
    fine = True
    for policy in policies:
        (without, few), (with_, many) = (_of_service_alone(policy, tree, rounds) for tree in (None, TREE))
        what = (
            f"decide, {policy}, {PENDING:,} pending, {many:,} running ({few:,} without a tree), {len(LEAVES)} tenants"
        )
        fine &= _told(what, with_, without)
    return fine


def _of_service_alone(policy: str, tree: Tree | None, rounds: int) -> tuple[float, int]:
    """Median CPU time of decisions in milliseconds, in a process of its own, and jobs that run."""
    with multiprocessing.get_context("fork").Pool(1) as alone:
        return alone.apply(_of_service, (policy, tree, rounds))


def _of_service(policy: str, tree: Tree | None, rounds: int) -> tuple[float, int]:
    with tempfile.TemporaryDirectory() as home:
        service, backend = busy_service(policy, PENDING, Path(home), NODES, tree, ALIKE)
        _, cpu_s, _ = decide_often(service, backend, rounds, ALIKE)
        return statistics.median(cpu_s) * 1e3, len(service.store.book.on_gpus)


def _told(what: str, with_: float, without: float) -> bool:
    times = with_ / without
    verdict = "" if times <= MOST_TIMES else "   MISSED"
    print(f"{what}: {with_:.3f} ms, without a tree {without:.3f} ms, {times:.2f} times{verdict}", flush=True)
    return times <= MOST_TIMES


def engine(policies: list[str], rounds: int) -> bool:
    """The same of the engine."""
    fine = True
    for policy in policies:
        plain, shared = Busy(policy, None), Busy(policy, TREE)
        for _ in range(rounds):
            plain.round()
            shared.round()
        without, with_ = (statistics.median(busy.seconds[5:]) * 1e3 for busy in (plain, shared))
        waits = int(shared.tables.state.x[col.N_WAITING])
        what = f"engine, {policy}, {waits:,} pending, {len(shared.running):,} running, {len(LEAVES)} tenants"
        fine &= _told(what, with_, without)
    return fine


def fill(rounds: int) -> bool:
    """Print what the rule alone takes, by how much of the cluster is in use."""
    tables, chance = tree_tables(TREE, LEAVES), np.random.default_rng(0)
    count, leaf = len(tables.rows.parent), tables.leaf[:, 0]
    sizes = np.array([1, 2, 4, 8, 16, 32])
    waiting = np.array(
        [[row, gpus, chance.integers(1, 15), 1, 0] for row in leaf for gpus in chance.permutation(sizes)], np.int64
    )
    for part in (0.0, 0.5, 0.99, 1.0):
        running = np.zeros((count, 2), np.int64)
        running[leaf, 0] = chance.multinomial(int(NODES * 8 * part), np.full(len(leaf), 1 / len(leaf)))
        asked = Asked(
            np.array([NODES * 8 - running.sum()]), running, np.zeros((count, 2)), np.zeros(count), waiting,
            np.zeros((len(waiting), 2)),
        )  # fmt: skip
        into = new_claims(tables.rows, len(leaf), 1, len(waiting))
        took = _median_ms(lambda asked=asked, into=into: filling.fill_limits(tables.rows, asked, into), rounds)
        print(f"fill, {part:4.0%} of {NODES * 8:,} GPUs in use, {len(waiting):,} classes: {took:.3f} ms", flush=True)
    return True


def _median_ms(work: Callable[[], None], rounds: int) -> float:
    work()
    times = []
    for _ in range(rounds):
        began = time.thread_time()
        work()
        times.append(time.thread_time() - began)
    return statistics.median(times) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tenants", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("parts", nargs="*", default="decide", choices=PARTS, help="which of " + ", ".join(PARTS))
    parser.add_argument("--policies", default="fifo,srtf,tiresias-l")
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    others, fine = Others(), True
    for part in [options.parts] if isinstance(options.parts, str) else options.parts:
        if part != "decide":  # the service gets its compiled kernels by itself
            jit.enable()
        measure = engine if part == "engine" else decide
        fine &= fill(options.rounds) if part == "fill" else measure(options.policies.split(","), options.rounds)
    print(others.text())
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
