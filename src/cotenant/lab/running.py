"""`simulate`, `compare` and `why` from Python. PlayOptions are those of the command line, by the same names."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError, unknown
from cotenant.core.outcome import Outcome
from cotenant.core.reasons import Reason
from cotenant.core.workload import Workload
from cotenant.lab.progress import progress_of
from cotenant.lab.results import Result, Results
from cotenant.lab.trace import Trace, cluster_of, workload_of
from cotenant.policies.base import Policy

if TYPE_CHECKING:
    from cotenant.sim.experiment import Experiment
    from cotenant.sim.sweep import Run

AnyPolicy = str | Policy | type[Policy]
AnyTrace = str | Path | Trace | Workload
AnyCluster = str | Path | Cluster


class PlayOptions(TypedDict, total=False):
    """How a workload is played; see `cotenant simulate --help` and docs/simulator.md."""

    placement: str
    allocator: str
    profile: str
    estimator: str
    costs: str
    round_s: float
    compat: tuple[str, ...]
    measure: tuple[int, int] | None
    until_s: float
    seed: int
    fail_nodes: str | None
    crash: str
    power: str
    oversubscribe: str
    defrag: bool
    network: str
    skip_infeasible: bool


def simulate(
    trace: AnyTrace,
    cluster: AnyCluster,
    policy: AnyPolicy = "fifo",
    *,
    progress: bool | None = None,
    **options: Unpack[PlayOptions],
) -> Result:
    """Play a workload on a cluster under one policy: a name, or a `Policy` class or object of yours.

    >>> from cotenant import PriorityPolicy, simulate
    >>> class SmallestFirst(PriorityPolicy):
    ...     '''By GPUs.'''
    ...     def priority(self, view):
    ...         return view.gpus
    >>> simulate("philly-like:jobs=50,seed=1", "2x8", SmallestFirst)
    <Result SmallestFirst: 50 of 50 jobs, average JCT 3.39 h>
    """
    from cotenant.sim import driver

    machines = cluster_of(cluster)
    experiment = _experiment(workload_of(trace, machines), machines, policy, options)
    with progress_of(experiment.policy, progress) as show:
        outcome = driver.simulate(experiment, show)
    return Result(outcome, tuple(experiment.notes))


def compare(
    trace: AnyTrace,
    cluster: AnyCluster,
    policies: Sequence[AnyPolicy],
    *,
    seeds: Iterable[int] | None = None,
    loads: Iterable[float] | None = None,
    baseline: str = "",
    workers: int | None = None,
    progress: bool | None = None,
    **options: Unpack[PlayOptions],
) -> Results:
    """Play a workload under several policies, over seeds and loads, on all cores; the first is the baseline.

    With `seeds` a generator named by a text makes a new workload for each; a trace stays as it is.

    >>> from cotenant import compare
    >>> found = compare("philly-like:jobs=50", "2x8", ["fifo", "srsf"], seeds=range(3), workers=1)
    >>> len(found), found.means.shape[0]
    (6, 2)
    """
    from cotenant.sim.sweep import default_workers, plan_runs, run_each

    if isinstance(policies, str):
        raise InputError(f"policies is '{policies}': give a list, such as ['fifo', 'srsf']")
    machines = cluster_of(cluster)
    by_name = _named(policies)
    if not by_name:
        raise InputError("policies is empty: give at least one")
    baseline = baseline or next(iter(by_name))
    if baseline not in by_name:
        raise unknown("baseline", baseline, by_name)
    works = _PerCell(trace, machines, seeds is not None)
    runs = plan_runs(list(by_name), list(seeds or [options.get("seed", 0)]), [None] if loads is None else list(loads))
    made: list[Experiment] = []

    def make(run: Run) -> Experiment:
        cell = PlayOptions(**{**options, "seed": run.seed})
        made.append(_experiment(works.get(run.seed, run.load), machines, by_name[run.policy], cell, run.policy))
        return made[-1]

    found: dict[int, Outcome] = {}
    with progress_of(f"{len(runs)} runs", progress) as show:
        for at, outcome in run_each(runs, make, workers or default_workers()):
            found[at] = outcome
            if show is not None:
                show(len(found), len(runs))
    return Results([Result(found[at], tuple(made[at].notes)) for at in sorted(found)], baseline)


def why(
    trace: AnyTrace,
    job: str,
    at_s: float,
    cluster: AnyCluster,
    policy: AnyPolicy = "fifo",
    **options: Unpack[PlayOptions],
) -> Reason:
    """Why a job was not running at a moment of a simulation.

    >>> import polars as pl
    >>> from cotenant import Trace, why
    >>> two = Trace.from_polars(pl.DataFrame(
    ...     {"job_id": ["a", "b"], "submit_s": [0, 5], "num_gpus": [4, 4], "duration_s": [60, 60]}))
    >>> why(two, "b", 10, "1x4").cause.value
    'waiting for capacity'
    """
    import numpy as np

    from cotenant.engine.explain import explain
    from cotenant.sim.driver import Simulation

    machines = cluster_of(cluster)
    run = Simulation(_experiment(workload_of(trace, machines), machines, policy, options))
    rows = np.flatnonzero(run.work.job_id == job)
    if not len(rows):
        raise unknown(f"job in {run.work.source}", job, [str(name) for name in run.work.job_id[:50_000]])
    run.advance(at_s)
    return explain(run.engine, run.work, machines, int(rows[0]), at_s)


class _PerCell:
    """Workloads per seed and load: a generator makes new ones, a trace is stretched in time."""

    def __init__(self, trace: AnyTrace, machines: Cluster, reseed: bool) -> None:
        from cotenant.workload.generators import GENERATORS

        self._trace, self._machines = trace, machines
        self._generated = isinstance(trace, str) and trace.split(":", 1)[0] in GENERATORS
        self._reseed = reseed and self._generated
        self._made: dict[tuple[int | None, float | None], Workload] = {}

    def get(self, seed: int, load: float | None) -> Workload:
        key = (seed if self._reseed else None, load)
        if key not in self._made:
            self._made[key] = self._make(*key)
        return self._made[key]

    def _make(self, seed: int | None, load: float | None) -> Workload:
        from cotenant.core.spec import Spec
        from cotenant.sim.sweep import scale_load

        if self._generated:
            spec = Spec.parse(str(self._trace))
            given = {"seed": seed, "load": load}
            params = {**spec.params, **{key: str(value) for key, value in given.items() if value is not None}}
            return Trace.generate(str(Spec(spec.name, params)), self._machines).work
        work = workload_of(self._trace, self._machines)
        return work if load is None else scale_load(work, self._machines.gpus, load)


def _experiment(
    work: Workload, machines: Cluster, policy: AnyPolicy, options: PlayOptions, name: str = ""
) -> Experiment:
    from cotenant.policies import make_policy
    from cotenant.sim.experiment import Experiment

    unknown_options = [key for key in options if key not in PlayOptions.__annotations__]
    if unknown_options:
        raise unknown("option", unknown_options[0], PlayOptions.__annotations__)
    if isinstance(policy, str):
        make_policy(policy)
        return Experiment(work, machines, policy, services=machines.services, **options)
    named = name or name_of(policy)
    return Experiment(work, machines, named, made=_maker(policy), services=machines.services, **options)


def _maker(policy: Policy | type[Policy]) -> Callable[[], Policy]:
    """A fresh object for every run, so that no run learns from another."""
    if isinstance(policy, Policy):
        return lambda: copy.deepcopy(policy)
    if not (isinstance(policy, type) and issubclass(policy, Policy)):
        raise InputError(f"{policy!r} is no policy: give a name, or a class or object of cotenant.Policy")
    missing: frozenset[str] = getattr(policy, "__abstractmethods__", frozenset())
    if missing:
        raise InputError(f"policy class '{policy.__name__}' lacks {' and '.join(f'{m}()' for m in sorted(missing))}")
    return policy


def name_of(policy: AnyPolicy) -> str:
    """What a policy is called in results."""
    if isinstance(policy, str):
        return policy
    own = getattr(policy, "name", "")
    return str(own or (policy if isinstance(policy, type) else type(policy)).__name__)


def _named(policies: Sequence[AnyPolicy]) -> dict[str, AnyPolicy]:
    """Policies by name; objects of one class are numbered."""
    found: dict[str, AnyPolicy] = {}
    for policy in policies:
        name, again = name_of(policy), 2
        if name in found and isinstance(policy, str):
            raise InputError(f"policy '{name}' is named twice")
        while name in found:
            name, again = f"{name_of(policy)}-{again}", again + 1
        found[name] = policy
    return found
