"""`cotenant plan`: how many nodes a workload needs for a goal, which quota, or how much load a cluster carries."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.cli import grid, quotas
from cotenant.cli import options as opt
from cotenant.cli.setup import USUAL, Setup, spread_setup

if TYPE_CHECKING:
    from collections.abc import Callable

    from cotenant.core.cluster import Cluster
    from cotenant.sim.planning import Goal, Look

    Progress = Callable[[int, int], None]

_USUAL_GPUS = 8
_NOT_PLAYABLE = ("cannot hold", "waits for ever", "may never")


@spread_setup()
def plan(
    trace: opt.Trace,
    goal: Annotated[str, typer.Option(help="What is to hold, e.g. p95_queue<1h, avg_jct<4h, p99_queue<=30m.")],
    vary: Annotated[
        str,
        typer.Option(
            help="What is searched: nodes=10-60 (fewest), quota.vision=8-64:8 or guaranteed.vision=8-64:8"
            " (least), or load=0.5-1.5:0.05 (most)."
        ),
    ],
    cluster: opt.ClusterSpec = "",
    policy: opt.PolicySpec = "fifo",
    setup: Setup = USUAL,
    json_: opt.Plain = False,
) -> None:
    """Find the smallest cluster that meets a goal on a workload, the smallest quota, or the highest load.

    Nodes are those of --cluster, so many of them; without it they have 8 GPUs. With a quota the goal is about the jobs
    of that tenant. A look is one simulation; halving needs few.
    """
    from cotenant.cli.progress import compiling, progress_bar
    from cotenant.policies import make_policy
    from cotenant.sim.planning import Goal, search

    make_policy(policy)
    machines = opt.load_cluster(cluster or _usual(vary))
    wanted = Goal.parse(goal)
    what, candidates = _candidates(vary, machines)
    looked = _Looks(trace, machines, policy, wanted, setup, what)
    with progress_bar(f"{policy}, {wanted.text}", compiling(len(looked.work), machines.gpus)) as progress:
        found, looks = search(candidates, lambda tried: looked.at(tried, progress))
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
    if what == "nodes" or quotas.tenant_of(what):
        nodes: list[float] = [float(count) for text in grid.parse([vary], machines).values() for count in text]
        return what, sorted(nodes)
    if what != "load":
        raise InputError(
            f"--vary '{vary}': write nodes=10-60, quota.TENANT=8-64:8, guaranteed.TENANT=8-64:8 or load=0.5-1.5:0.05"
        )
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
        self._machines, self._policy = machines, policy
        self._goal, self._setup, self._what = goal, setup, what
        self.work = setup.workload(trace, machines.gpus)
        self._of = quotas.jobs_of(what, self.work, machines) if quotas.tenant_of(what) else None

    def at(self, tried: float, progress: Progress | None = None) -> Look:
        """Play it. The workload stays the same while nodes are varied: that of the cluster as given."""
        from cotenant.core.errors import InputError
        from cotenant.sim.driver import simulate
        from cotenant.sim.planning import Look
        from cotenant.sim.sweep import scale_load

        here, work = self._machines, self.work
        if self._what == "nodes":
            here = grid.of_size(here, int(tried))
        elif self._of is not None:
            here = quotas.with_quota(here, self._what, int(tried))
        else:
            work = scale_load(work, here.gpus, tried)
        try:
            outcome = simulate(self._setup.experiment(work, here, self._policy), progress)
        except InputError as error:
            if not any(words in str(error) for words in _NOT_PLAYABLE):
                raise
            return Look(tried, None, False)
        value = self._goal.value(outcome, self._of)
        return Look(tried, value, self._goal.met(value))


def _words(what: str, goal: Goal, found: Look | None, looks: list[Look], policy: str, machines: Cluster) -> str:
    runs = f"{len(looks)} simulation{'s' * (len(looks) > 1)}"
    if found is None:
        easiest = looks[0]
        got = "it cannot be played" if easiest.value is None else f"{goal.metric} is {_number(goal, easiest.value)}"
        return f"no: with {what} {easiest.tried:g} {got} under {policy}, and {goal.text} does not hold ({runs})"
    assert found.value is not None
    least = {"nodes": "fewest nodes", "load": "highest load"}.get(what, f"least {what}")
    gpus = f" ({grid.of_size(machines, int(found.tried)).gpus} GPUs)" if what == "nodes" else ""
    return (
        f"{found.tried:g}{gpus} is the {least} of those looked for at which {goal.text} holds under {policy}:"
        f" {goal.metric} is {_number(goal, found.value)} ({runs})"
    )


def _number(goal: Goal, value: float) -> str:
    from cotenant.report.units import duration

    timed = goal.metric == "makespan" or goal.metric.endswith(("queue", "jct"))
    return duration(value) if timed and value < opt.INFINITY else f"{value:.3g}"
