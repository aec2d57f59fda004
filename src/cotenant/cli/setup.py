"""The options that say how a workload is played: the same, in the same order, for simulate, compare and why.

A verb takes them as one parameter `setup`; `spread_setup` puts the options in its place for Typer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, get_type_hints

from cotenant.cli import options as opt

if TYPE_CHECKING:
    from cotenant.core.cluster import Cluster
    from cotenant.core.workload import Workload
    from cotenant.sim.driver import Experiment


@dataclass(frozen=True, slots=True)
class Setup:
    """What was said on the command line about everything but workload, cluster and policy."""

    placement: opt.Placement = "consolidated"
    allocator: opt.Allocator = "fixed"
    profile: opt.Profile = "none"
    models: opt.Models = ""
    estimator: opt.Estimator = ""
    costs: opt.Costs = "default"
    round_s: opt.Round = 360.0
    compat: opt.Compat = ""
    measure: opt.Measure = ""
    until: opt.Until = opt.INFINITY
    seed: opt.Seed = 0
    fail_nodes: opt.FailNodes = ""
    fail_jobs: opt.FailJobs = ""
    crash: opt.Crash = ""
    power: opt.Power = ""
    oversubscribe: opt.Oversubscribe = ""
    defrag: opt.Defrag = False
    network: opt.Network = ""
    services: opt.Services = ""
    skip_infeasible: opt.SkipInfeasible = False
    format_: opt.Format = ""
    from_: opt.From = ""
    to: opt.To = ""
    where: opt.Where = ""

    def workload(self, trace: str, cluster_gpus: int | None, quiet: bool = False) -> Workload:
        """The log or generator, read with the options that concern it."""
        work = opt.load_workload(
            trace, cluster_gpus, format_=self.format_, profile=self.profile, models=self.models, quiet=quiet
        )
        if self.from_ or self.to or self.where:
            from cotenant.workload.selecting import select

            work = select(work, self.where, self.from_, self.to)
            opt.tell(() if quiet else work.notes[-1:])
        if not self.fail_jobs:
            return work
        from cotenant.workload.failing import with_failures

        work = with_failures(work, self.fail_jobs, self.seed)
        opt.tell(() if quiet else work.notes[-1:])
        return work

    def experiment(self, work: Workload, cluster: Cluster, policy: str) -> Experiment:
        """The options as an experiment."""
        from cotenant.core.errors import InputError
        from cotenant.core.spec import split_specs
        from cotenant.sim.driver import Experiment
        from cotenant.workload.readers.elastic import tells_durations

        speeds = "none" if self.profile not in ("", "none") and tells_durations(self.profile) else self.profile
        if len(work) and not self.until >= work.submit_s[0]:
            first_s = work.submit_s[0]
            raise InputError(f"--until {self.until:g}: must not be before the first submission, at {first_s:g} s")
        return Experiment(
            work, cluster, policy, placement=self.placement, allocator=self.allocator, profile=speeds,
            estimator=self.estimator, costs=self.costs, round_s=self.round_s, compat=tuple(split_specs(self.compat)),
            measure=opt.parse_range(self.measure, "--measure"), until_s=self.until, seed=self.seed,
            fail_nodes=self.fail_nodes or None, crash=self.crash, power=self.power, oversubscribe=self.oversubscribe,
            skip_infeasible=self.skip_infeasible, defrag=self.defrag, network=self.network,
            services=opt.load_services(self.services) if self.services else cluster.services,
        )  # fmt: skip


USUAL = Setup()


def spread_setup(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The verb with one option for each field of `Setup`, but those named, where it has the parameter `setup`."""
    hints = get_type_hints(Setup, include_extras=True)
    options = [
        Parameter(one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name])
        for one in fields(Setup)
        if one.name not in without
    ]

    def spread(verb: Callable[..., None]) -> Callable[..., None]:
        types = get_type_hints(verb, include_extras=True)
        shape = signature(verb)
        shown: list[Parameter] = []
        for name, own in shape.parameters.items():
            whole = own.replace(kind=Parameter.KEYWORD_ONLY, annotation=types[name])
            shown += options if name == "setup" else [whole]

        def call(**given: Any) -> None:
            verb(setup=Setup(**{one.name: given.pop(one.name) for one in options}), **given)

        call.__name__, call.__doc__ = verb.__name__, verb.__doc__
        call.__annotations__ = {one.name: one.annotation for one in shown}
        call.__signature__ = shape.replace(parameters=shown)  # type: ignore[attr-defined]
        return call

    return spread
