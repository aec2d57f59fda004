"""Where the time of one run goes: `python -m bench.engine --profile [LOG] --policies srsf`.

CPU seconds, since the machine may be shared. The loop is compiled once more, with clocks in some of its kernels
(`cotenant.core.native.clocks`), which makes it a little slower. Turns are those of all `for` loops: how many rows were
touched. What a process imports is timed first, by package.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

MOST_IMPORTS = 12  # lines of the table
PARTS: dict[str, tuple[str, ...]] = {
    "events": ("engine.events.handle", "engine.events.next_own_time"),
    "ordering": (
        "engine.keys.refresh_keys", "engine.keys.compact_running", "engine.keys.gpus_not_ahead",
        "engine.sorting.line_up_running", "engine.sorting._merge_sort", "engine.lines.line_up",
        "engine.behind.begin_decision", "engine.behind.begin_tail", "engine.behind.next_behind",
        "engine.behind._insert", "engine.openings.may_open", "engine.openings.look_at_node",
    ),
    "walking": (
        "engine.decide.start_without_displacing", "engine.decide._decide_plain", "engine.tail.walk_from_tail",
        "engine.tail._reach", "engine.walk.merge_and_commit", "engine.fill.start_if_it_fits",
        "engine.walk.walk_preemptive", "engine.walk._open_behind",
        "engine.walk._keep_stretch", "engine.walk.visit_waiting", "engine.walk._weigh_running", "engine.fill.fill",
        "engine.easy.easy",
    ),
    "placing": ("placement.fit.find_place", "engine.victims.displace_latest"),
    "bookkeeping": (
        "engine.ledger.enqueue", "engine.ledger.start", "engine.ledger.release", "engine.leaving.preempt",
        "engine.keys.position_of", "engine.keys.note_shield", "engine.walk.commit", "sim.loop.sample",
    ),
}  # fmt: skip


def profile(options: argparse.Namespace) -> None:
    """Print it for each policy."""
    _imports()
    clock = _Clock()
    from cotenant.core import jit
    from cotenant.core.cluster import Cluster
    from cotenant.core.native.build import build
    from cotenant.core.native.load import Library
    from cotenant.core.spec import Spec
    from cotenant.sim import loop
    from cotenant.sim.driver import Experiment
    from cotenant.workload.generators import generate
    from cotenant.workload.readers import read

    clock("imports")
    cluster = Cluster.parse(f"{options.gpus // 8}x8")
    jobs = f"philly-like:jobs={options.sizes.split(',')[0]},load={options.load},seed=1"
    work = read(options.profile) if options.profile else generate(Spec.parse(jobs), cluster.gpus)
    clock("reading" if options.profile else "making jobs")
    kernels = {name: _plain(name) for names in PARTS.values() for name in names}
    clocked = build([_plain("sim.loop.run")], list(kernels.values()))
    clock("compiling the loop with clocks")
    if jit.is_cached():
        jit.enable()
        clock("loading compiled code")
    library = Library(clocked)
    loop.run = library.function(_plain("sim.loop.run"))  # type: ignore[assignment]
    print(f"{len(work):,} jobs on {cluster.spec}, placement {options.placement}, costs {options.costs}")
    clock.show(len(work))
    for policy in options.policies.split(","):
        made = Experiment(
            work, cluster, policy, placement=options.placement, costs=options.costs, compiled=jit.enabled()
        )
        _run(made, library, list(kernels))


def _run(experiment: Any, library: Any, kernels: list[str]) -> None:
    from cotenant.core.native.clocks import NAME, size
    from cotenant.sim.driver import Simulation

    cells = library.cells(NAME, size(len(kernels)))
    cells[:-2] = cells[-1] = 0
    clock = _Clock()
    run = Simulation(experiment)
    clock("set-up")
    run.advance(math.inf)
    loop_s = clock("the loop, with clocks")
    outcome = run.outcome()
    clock("outcome")
    print(f"\n{experiment.policy}")
    clock.show(len(run.work))
    events, decisions = (int(str(outcome.summary[name])) for name in ("events", "decisions"))
    table = cells[:-2].reshape(-1, 3)
    calls, turns = table[:, 1], table[:, 2]
    shares = table[:, 0] / table[:, 0].sum()
    print(f"the loop: {events:,} events, {decisions:,} decisions, {loop_s / events * 1e9:,.0f} ns per event")
    print(f"{'':34}{'share':>8}{'s':>9}{'ns/event':>10}{'calls':>12}{'turns/decision':>16}")
    rows = {name: row for row, name in enumerate([*kernels, "sim.loop.run"])}
    for part, names in (PARTS | {"the rest": ("sim.loop.run",)}).items():
        own = [rows[name] for name in names]
        _line(part, float(shares[own].sum()), loop_s, events, None, int(turns[own].sum()) / decisions)
        for row in sorted(own, key=lambda row: -shares[row]):
            if calls[row]:
                name = f"  {list(rows)[row].partition('.')[2]}"
                _line(name, float(shares[row]), loop_s, events, int(calls[row]), int(turns[row]) / decisions)


def _line(name: str, share: float, loop_s: float, events: int, calls: int | None, turns: float) -> None:
    told = "" if calls is None else f"{calls:,}"
    seconds = share * loop_s
    print(f"{name:<34}{share:>7.1%}{seconds:>10.3f}{seconds / events * 1e9:>10,.0f}{told:>12}{turns:>16,.1f}")


class _Clock:
    """CPU seconds by part."""

    def __init__(self) -> None:
        self._parts: list[tuple[str, float]] = []
        self._since = time.process_time()

    def __call__(self, part: str) -> float:
        now = time.process_time()
        took, self._since = now - self._since, now
        self._parts.append((part, took))
        return took

    def show(self, jobs: int) -> None:
        """Print the parts."""
        print(f"{'':34}{'CPU s':>9}{'us/job':>10}")
        for part, took in self._parts:
            print(f"{part:<34}{took:>9.3f}{took / jobs * 1e6:>10.2f}")


def _imports() -> None:
    """What importing costs, by package: CPU is not told by Python, so these are wall seconds."""
    code = "import cotenant.cli.simulate, cotenant.report.table, cotenant.sim.driver, cotenant.workload.readers"
    ran = subprocess.run([sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True)
    own: dict[str, float] = {}
    for line in ran.stderr.splitlines()[1:]:
        alone, _, name = line.removeprefix("import time:").split("|")
        parts = name.strip().split(".")
        package = ".".join(parts[:2]) if parts[0] == "cotenant" else parts[0].lstrip("_")
        own[package] = own.get(package, 0.0) + int(alone) / 1e6
    print(f"imports of `cotenant simulate`: {sum(own.values()):.3f} s of wall time")
    for package, took in sorted(own.items(), key=lambda item: -item[1])[:MOST_IMPORTS]:
        print(f"  {package:<32}{took:>9.3f}")
    print()


def _plain(name: str) -> Callable[..., Any]:
    """A kernel in its plain form."""
    from cotenant.core import jit

    module, _, own = f"cotenant.{name}".rpartition(".")
    return next(plain for plain in jit.kernels() if (plain.__module__, plain.__name__) == (module, own))
