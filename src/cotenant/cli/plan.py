"""`cotenant plan`: how many nodes a workload needs for a goal, or how much load a cluster carries."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.cli import grid
from cotenant.cli import options as opt
from cotenant.cli.setup import USUAL, Setup, spread_setup

if TYPE_CHECKING:
    from cotenant.core.cluster import Cluster
    from cotenant.sim.planning import Goal, Look

_USUAL_GPUS = 8


@spread_setup()
def plan(
    trace: opt.Trace,
    goal: Annotated[str, typer.Option(help="What is to hold, e.g. p95_queue<1h, avg_jct<4h, p99_queue<=30m.")],
    vary: Annotated[str, typer.Option(help="What is searched: nodes=10-60 (fewest), or load=0.5-1.5:0.05 (most).")],
    cluster: opt.ClusterSpec = "",
    policy: opt.PolicySpec = "fifo",
    setup: Setup = USUAL,
    json_: opt.Plain = False,
) -> None:
    """Find the smallest cluster that meets a goal on a workload, or the highest load at which it still holds.

    Nodes are those of --cluster, so many of them; without it they have 8 GPUs. A look is one simulation; halving needs
    few.
    """
    from cotenant.policies import make_policy
    from cotenant.sim.planning import Goal, search

    make_policy(policy)
    machines = opt.load_cluster(cluster or _usual(vary))
    wanted = Goal.parse(goal)
    what, candidates = _candidates(vary, machines)
    looked = _Looks(trace, machines, policy, wanted, setup, what)
    found, looks = search(candidates, looked.at)
    told = _words(what, wanted, found, looks, policy, machines)
    if json_:
        rows = [{what: look.tried, wanted.metric: look.value, "met": look.met} for look in looks]
        opt.write_json(
            {"goal": wanted.text, what: None if found is None else found.tried, "looks": rows, "text": told}, "-"
        )
        return
    for look in looks:
        shown = "not playable" if look.value is None else _number(wanted, look.value)
        typer.echo(f"{what} {look.tried:<8g}{wanted.metric} {shown:<14}{'yes' if look.met else 'no'}")
    typer.echo(told)


def _usual(vary: str) -> str:
    """The fewest of the nodes that are asked for, of 8 GPUs each."""
    from cotenant.core.errors import InputError

    found = re.match(r"nodes=(\d+)", vary)
    if found is None:
        raise InputError(f"--vary '{vary}' needs --cluster, e.g. --cluster 32x8; without it write nodes=10-60")
    opt.tell([f"nodes have {_USUAL_GPUS} GPUs each: --cluster 1x4:a100 says otherwise"])
    return f"{found[1]}x{_USUAL_GPUS}"


def _candidates(vary: str, machines: Cluster) -> tuple[str, list[float]]:
    """What is searched, in the order in which the goal becomes easier."""
    from cotenant.core.errors import InputError

    what, _, rest = vary.partition("=")
    if what == "nodes":
        nodes: list[float] = [float(count) for text in grid.parse([vary], machines).values() for count in text]
        return what, sorted(nodes)
    if what != "load":
        raise InputError(f"--vary '{vary}': write nodes=10-60 or load=0.5-1.5:0.05")
    span, _, step = rest.partition(":")
    low, _, high = span.partition("-")
    try:
        first, last, by = float(low), float(high), float(step or 0.1)
    except ValueError:
        first = last = by = 0.0
    if not 0 < first <= last < opt.INFINITY or not by > 0:
        raise InputError(f"--vary '{vary}': write load=0.5-1.5:0.05, from a lower to a higher load")
    count = int((last - first) / by + 1e-9) + 1
    return what, [round(first + by * at, 6) for at in reversed(range(count))]


class _Looks:
    """One simulation for every candidate that is looked at."""

    def __init__(self, trace: str, machines: Cluster, policy: str, goal: Goal, setup: Setup, what: str) -> None:
        self._trace, self._machines, self._policy = trace, machines, policy
        self._goal, self._setup, self._what = goal, setup, what
        self._work: Any = None

    def at(self, tried: float) -> Look:
        """Play it. The workload stays the same while nodes are varied: that of the cluster as given."""
        from cotenant.core.errors import InputError
        from cotenant.sim.driver import simulate
        from cotenant.sim.planning import Look
        from cotenant.sim.sweep import scale_load

        if self._work is None:
            self._work = self._setup.workload(self._trace, self._machines.gpus)
        here, work = self._machines, self._work
        if self._what == "nodes":
            here = grid.of_size(here, int(tried))
        else:
            work = scale_load(work, here.gpus, tried)
        try:
            outcome = simulate(self._setup.experiment(work, here, self._policy))
        except InputError as error:
            if "cannot hold" not in str(error):
                raise
            return Look(tried, None, False)
        value = self._goal.value(outcome)
        return Look(tried, value, self._goal.met(value))


def _words(what: str, goal: Goal, found: Look | None, looks: list[Look], policy: str, machines: Cluster) -> str:
    runs = f"{len(looks)} simulation{'s' * (len(looks) > 1)}"
    if found is None:
        easiest = looks[0]
        got = "it cannot be played" if easiest.value is None else f"{goal.metric} is {_number(goal, easiest.value)}"
        return f"no: with {what} {easiest.tried:g} {got} under {policy}, and {goal.text} does not hold ({runs})"
    assert found.value is not None
    least = "fewest nodes" if what == "nodes" else "highest load"
    gpus = f" ({grid.of_size(machines, int(found.tried)).gpus} GPUs)" if what == "nodes" else ""
    return (
        f"{found.tried:g}{gpus} is the {least} of those looked for at which {goal.text} holds under {policy}:"
        f" {goal.metric} is {_number(goal, found.value)} ({runs})"
    )


def _number(goal: Goal, value: float) -> str:
    from cotenant.report.units import duration

    timed = goal.metric == "makespan" or goal.metric.endswith(("queue", "jct"))
    return duration(value) if timed and value < opt.INFINITY else f"{value:.3g}"
