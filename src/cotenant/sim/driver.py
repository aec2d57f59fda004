"""Driver 1 of the engine: virtual time. An `Experiment` in, an `Outcome` out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cotenant.beliefs.slices import SliceSpeeds
from cotenant.beliefs.stage_times import believed_stages
from cotenant.compat import Compat
from cotenant.core import columns as col
from cotenant.core import jit
from cotenant.core.cluster import Cluster
from cotenant.core.decision import Transition
from cotenant.core.errors import InputError
from cotenant.core.outcome import Outcome
from cotenant.core.state import Rule, State
from cotenant.core.workload import Floats, Ints, Workload
from cotenant.engine.cycle import Engine
from cotenant.engine.defrag import Defragmenter
from cotenant.engine.invariants import check
from cotenant.engine.tables import infeasible
from cotenant.placement.modes import parse_placement
from cotenant.policies import Context, make_policy
from cotenant.policies.users import blaming
from cotenant.sim import loop
from cotenant.sim.as_is import as_it_happened, is_replay
from cotenant.sim.crashes import Crashes, CrashRates
from cotenant.sim.ended import Ended
from cotenant.sim.experiment import Experiment
from cotenant.sim.failures import Outages, check_often
from cotenant.sim.following import Following, may_follow
from cotenant.sim.hosts import PLAIN, is_allocated, make_allocation
from cotenant.sim.network import care_of, check_network, senders_of, with_network
from cotenant.sim.outcome import outcome_of, rows_of
from cotenant.sim.pair_watch import PairWatch
from cotenant.sim.services import Serving
from cotenant.sim.setup import elastic_truth, facts, lay_out, pair_belief, pair_truth, slicing, truth
from cotenant.sim.stall import Stall
from cotenant.sim.unasked import with_giving
from cotenant.workload.stages import profiled_stages, stages_of

if TYPE_CHECKING:
    from cotenant.sim.power import NodePower

LEARN_EVERY = 100  # finished jobs after which a policy that learns from them is told
__all__ = ["Experiment", "Simulation", "is_large", "simulate"]
Progress = Callable[[int, int], None]
TakeEnded = Callable[[Outcome], None]
PART = 65_536  # jobs that are handed on together


class Simulation:
    """A run in progress: advance it to the end, or to a moment and look.

    Where nobody looks at the tables in between, they need not keep the rows of all jobs (`sim.following`); `ended` is
    given what became of jobs in the order of the log, in parts, as soon as all of a part have ended.
    """

    def __init__(self, experiment: Experiment, looked_at: bool = True, ended: TakeEnded | None = None) -> None:
        self.began = time.perf_counter()
        _validate(experiment)
        self.experiment = experiment
        self.compat = Compat(experiment.compat)
        made = make_policy(experiment.policy) if experiment.made is None else experiment.made()
        self.policy = self.compat.policy(made)
        self.traits = self.policy.traits
        if not self.traits.round_s > 0:
            raise InputError(f"policy '{experiment.policy}': round_s is {self.traits.round_s:g}; it must be above 0")
        self._following: Following | None = None
        self._take_ended, self._told = ended, 0
        self.work, self.state = self._prepare(experiment, looked_at)
        experiment.notes.extend(host_notes(self.work, experiment.cluster) if experiment.allocator == "fixed" else ())
        self.context = Context(
            round_s=experiment.round_s,
            compat=self.compat.quirks,
            seed=experiment.seed,
            services_gpu_s=self.work.gpus * self.work.duration_s,
        )
        self.policy.begin(self.context)
        self._learned = 0
        start = float(self.work.submit_s[0])
        rates = CrashRates.parse(experiment.crash) if experiment.crash else None
        failing = experiment.fail_nodes if rates is None else rates.nodes
        self.outages = Outages(failing, len(self.state.node), experiment.seed, start)
        self.crashes = None
        if rates is not None:
            self.crashes = Crashes(rates, self.state, self.outages, start, experiment.seed)
        self.power = _power(experiment, self.state, start) if experiment.power else None
        shared = pair_truth(self.state, self.profile)
        belief = pair_belief(self.state, experiment, self.profile, self.traits)
        believed = self.stages and believed_stages(self.stages, self.traits.stage_noise, experiment.seed)
        known = facts(self.state, experiment, self.work, belief, self.profile, believed)
        speeds = truth(experiment, shared, self.traits, self.profile, self.true_stages)
        cuts = slicing(experiment, self.work, self.traits, self.profile)
        self.sliced = None if cuts is None else SliceSpeeds(cuts)
        if self.sliced is not None:
            known, speeds = replace(known, slicing=cuts), self.sliced
        allocated = is_allocated(experiment, self.profile)
        senders = senders_of(experiment, self.work, self.profile, self.traits, allocated)
        speeds = with_network(experiment, senders, speeds)
        self.elastic = elastic_truth(self.state, experiment, self.work, self.traits, speeds)
        if self.elastic is not None:
            jobs = self.elastic.jobs
            known = replace(known, elastic=jobs.elastic, training=self.elastic.training, sizes=jobs.sizes)
            speeds = self.elastic
        self.allocation = None
        if allocated:
            self.allocation = make_allocation(experiment, self.work, self.state, self.profile, self.traits)
        defrag = Defragmenter() if experiment.defrag else None
        care = care_of(experiment, senders)
        self.serving, guard = None, None
        if experiment.services:
            about = self.profile, experiment.cluster, start, experiment.seed
            self.serving = Serving(experiment.services, self.state, *about)
            speeds, guard = self.serving.rates(speeds), self.serving.guard
        rule = self.rule()
        self.engine = Engine(self.state, self.policy, rule, known, speeds, self.allocation, defrag, care, guard)
        self.transitions: list[tuple[float, Transition]] = []  # in order, where they are to be written down
        self.state.x[col.LOGGING] = int(experiment.transitions)
        self.watch = None if shared is None or belief is None else PairWatch(belief, shared)
        if experiment.compiled if experiment.compiled is not None else is_large(self.work, experiment.cluster):
            jit.enable()

    def _prepare(self, e: Experiment, looked_at: bool) -> tuple[Workload, State]:
        work = self.compat.workload(e.workload)
        state = self._lay_out(work)
        bad = infeasible(state, self._rows)
        if len(bad) and bad[-1] >= len(work):
            raise InputError(f"services: no GPU of cluster '{e.cluster.spec}' is open to some: see gpu_type and tenant")
        if len(bad):
            model = work.model.names[work.model.code[bad[0]]]
            first = f"job '{work.job_id[bad[0]]}' asks for {work.asks(bad[0])}{_host_needs(work, bad[0], e.cluster)}"
            if (state.speed[self.profile.row[bad[0]], :, 0] <= 0).any():
                first += f" for model '{model}', which does not run on every type"
            hours = float((work.gpus[bad] * work.duration_s[bad]).sum()) / 3600
            if not e.skip_infeasible:
                raise InputError(
                    f"{work.source}: {first}, which cluster '{e.cluster.spec}' cannot hold"
                    f" ({len(bad)} such jobs): use a larger cluster or --skip-infeasible"
                )
            e.notes.append(f"left out {len(bad)} jobs ({hours:.1f} GPU-hours) larger than the cluster; first: {first}")
            keep = np.ones(len(work), bool)
            keep[bad] = False
            work = work.take(keep)
            if not len(work):
                raise InputError(f"{work.source}: no job fits cluster '{e.cluster.spec}'")
            state = self._lay_out(work)
        if not looked_at and may_follow(e, self.traits, state) and not is_allocated(e, self.profile):
            self._following = Following(state, self._rows)
            return work, self._following.state
        if not e.services:
            self._rows.fill(state, 0, self._rows.count)
        giving = not looked_at and not is_allocated(e, self.profile)
        return work, with_giving(state, e, self.traits) if giving else state

    def _lay_out(self, work: Workload) -> State:
        state, self.profile, self._rows = lay_out(self.experiment, work, self.policy, bool(self.experiment.services))
        logged = stages_of(work)
        profiled = profiled_stages(self.profile) if logged is None and self.traits.interleaves else None
        self.stages = profiled if logged is None else logged
        measured = self.profile.pairs is not None or self.profile.lifecycle is not None  # then pairs are the truth
        self.true_stages = None if measured and logged is None else self.stages
        return state

    def rule(self) -> Rule:
        """The policy as data, with what is known of finished jobs by now."""
        context = self.context
        if self.traits.learns:
            ended = self.state.i[:, col.STATE] == col.FINISHED
            context = replace(context, services_gpu_s=context.services_gpu_s[ended])
        rule = self.policy.rule(context)
        rule.numbers[col.RELAX_S] = parse_placement(self.experiment.placement).relax_after_s
        rule.numbers[col.CHECKPOINT_S] = self.outages.checkpoint_s
        return rule if self.allocation is None else self.allocation.rule(rule)

    def advance(self, until_s: float, progress: Progress | None = None) -> bool:
        """Run until a moment or the end; whether everything measured has finished."""
        state, step = self.state, 20_000 if jit.enabled() else 2_000
        one_by_one = self.experiment.check_invariants or self.experiment.transitions
        step = 1 if self.traits.learns or one_by_one or self.power is not None else step
        stall = Stall(state)
        while True:
            limit_s = until_s if self.power is None else min(until_s, self.power.next_s)
            limit_s = limit_s if self.crashes is None else min(limit_s, self.crashes.next_s)
            if self.serving is not None:
                limit_s = self._serve(limit_s)
            if self._following is not None:
                self._following.ahead(step)
            code = loop.run(state, self._asked(), self.outages.table, self.outages.horizon_s, limit_s, step)
            if self.power is not None and (code in (loop.STUCK, loop.PAUSED) or limit_s < until_s):
                code = self._power_step(code, limit_s, until_s)
            if self.crashes is not None and code == loop.REACHED_UNTIL and limit_s < until_s:
                self.crashes.at(self.engine, limit_s)
                code = loop.PAUSED
            if self.serving is not None and self.serving.goes_on(code, state, limit_s):
                state.t[col.NOW], code = limit_s, loop.PAUSED if limit_s < until_s else loop.REACHED_UNTIL
            if self.experiment.check_invariants:
                check(state)
            if code == loop.NEEDS_TURNS and self._network_lets_go():
                code = loop.NEEDS_DECISION
            if code != loop.NEEDS_DECISION:
                self._write_down()
            if code == loop.NEEDS_DECISION:
                now = float(state.t[col.NOW])
                if self.elastic is not None:
                    self.elastic.tell(state, now)
                self.engine.cycle(now)
                if self.watch is not None and self.watch.look(state):
                    self.engine.facts = replace(self.engine.facts, pair=self.watch.belief.table())
                loop.settle_decision(state, now)
                self._write_down()
                if self.power is not None:
                    self._sleep_and_wake(self.power, now)
                if self.experiment.check_invariants:
                    check(state)
            elif code == loop.NEEDS_TURNS:
                self.engine.settle(float(state.t[col.NOW]))
                self._write_down()
            elif code == loop.NEEDS_OUTAGES:
                self.outages.extend()
            elif code == loop.STUCK:
                raise self._stuck()
            elif code != loop.PAUSED:
                return bool(code == loop.FINISHED_ALL)
            elif self.traits.learns and state.x[col.N_FINISHED] >= self._learned + LEARN_EVERY:
                self._learned = int(state.x[col.N_FINISHED])
                self.engine.rule = self.rule()
                state.hot[col.H_BELOW] = -1.0
            if self._following is not None:
                self._tell(self._following.behind(), PART)
            stalled = stall.at()
            if stalled >= 0:
                raise self._stalled(stalled)
            if progress is not None and code == loop.PAUSED:
                progress(int(state.x[col.N_FINISHED]), len(self.work))

    def _asked(self) -> Rule:
        """The rule, but that Python decides while somebody waits, where jobs may be moved or share a network."""
        rule = self.engine.rule
        if (self.engine.defrag is None and self.engine.network is None) or rule.flags[col.EXTERNAL]:
            return rule
        flags = rule.flags.copy()
        flags[col.EXTERNAL] = 1
        return rule._replace(flags=flags)

    def _network_lets_go(self) -> bool:
        """Whether somebody no longer waits for the network, so that the policy is to be asked."""
        care = self.engine.network
        if care is None or not care.waiting:
            return False
        care.before(self.state, self.engine.rule, float(self.state.t[col.NOW]))
        return bool(self.state.x[col.N_WAITING])

    def _serve(self, limit_s: float) -> float:
        """Look after the services if it is time to; when to do so next, at the latest at a limit."""
        assert self.serving is not None
        now_s = float(self.state.t[col.NOW])
        if self.serving.next_s <= now_s:
            self.serving.at(self.engine, now_s)
            if self.state.x[col.N_WAITING] or self.serving.guard.to_leave(self.state, now_s):
                self.engine.cycle(now_s)
            else:
                self.engine.settle(now_s)
            loop.settle_decision(self.state, now_s)
            self._write_down()
        return min(limit_s, self.serving.next_s)

    def _write_down(self) -> None:
        if self.experiment.transitions:
            now_s = float(self.state.t[col.NOW])
            self.transitions.extend((now_s, item) for item in self.engine.transitions())

    def _power_step(self, code: int, limit_s: float, until_s: float) -> int:
        """Let nodes sleep and wake at their times and after events; go on where only that was waited for."""
        state, power = self.state, self.power
        assert power is not None
        if code == loop.STUCK and limit_s > until_s:
            return code
        if code == loop.STUCK:  # everything waits for a node to wake
            state.t[col.NOW] = limit_s
        if code in (loop.NEEDS_DECISION, loop.NEEDS_OUTAGES, loop.FINISHED_ALL):
            return code
        now = float(state.t[col.NOW])
        self._sleep_and_wake(power, now)
        if code == loop.STUCK and power.all_on and not state.x[col.N_RUNNING]:
            return code
        return loop.PAUSED if code in (loop.STUCK, loop.PAUSED) or limit_s < until_s else code

    def _sleep_and_wake(self, power: NodePower, now_s: float) -> None:
        """Ask the controller; decide again where capacity has changed."""
        if power.at(now_s):
            self.policy.refresh()
            self.engine.cycle(now_s)
            loop.settle_decision(self.state, now_s)

    def _stuck(self) -> InputError:
        row = int(np.flatnonzero(np.isin(self.state.i[:, col.STATE], (col.WAITING, col.ASIDE)))[0])
        return InputError(
            f"job '{self.work.job_id[row]}' ({self.work.gpus[row]} GPUs) waits for ever under policy "
            f"'{self.experiment.policy}' with placement '{self.experiment.placement}'"
        )

    def _stalled(self, row: int) -> InputError:
        return InputError(
            f"job '{self.work.job_id[row]}' is stopped again and again before it has restored"
            f" ({self.state.f[row, col.RESTORE]:g} s) under policy '{self.experiment.policy}', and no job gets on:"
            " use longer rounds (--round) or lower --costs"
        )

    def _tell(self, done: int, least: int) -> None:
        """Hand on what became of the first so many jobs where that is news of at least so many."""
        while self._take_ended is not None and done - self._told >= least:
            end = min(self._told + PART, done)
            self._take_ended(rows_of(self, self._told, end))
            self._told = end

    def start_costs(self) -> tuple[Ints, Floats, Floats]:
        """By job: its GPUs, seconds to start up, and to restore."""
        if self._following is not None:
            return self.work.gpus, self._rows.floats_of(col.START_UP), self._rows.floats_of(col.RESTORE)
        f = self.state.f
        return self.state.i[:, col.GPUS], f[:, col.START_UP], f[:, col.RESTORE]

    def tell_all(self) -> None:
        """Hand on what became of all jobs that were not yet, however they stand."""
        self._tell(len(self.work), 1)

    def ended(self) -> Ended:
        """What became of all jobs so far."""
        return Ended.of(self.state, len(self.work)) if self._following is None else self._following.ended()

    def outcome(self) -> Outcome:
        """The result so far."""
        return outcome_of(self)


def simulate(experiment: Experiment, progress: Progress | None = None, ended: TakeEnded | None = None) -> Outcome:
    """Run an experiment to its end (or to `until_s`). `ended` is given all rows in parts, when their jobs have ended
    or the run has."""
    if is_replay(experiment.policy):
        _validate(experiment)
        outcome = as_it_happened(experiment)
        if ended is not None:
            ended(outcome)
        return outcome
    with blaming(experiment.policy, experiment.made is not None):
        run = Simulation(experiment, looked_at=False, ended=ended)
        run.advance(experiment.until_s, progress)
        run.tell_all()
        if story := run.policy.story():
            experiment.notes.append(f"{experiment.policy}: {story}")
        return run.outcome()


def _power(e: Experiment, state: State, start_s: float) -> NodePower:
    from cotenant.sim.power import NodePower

    return NodePower(e.power, state, start_s, e.seed)


def _host_needs(work: Workload, row: int, cluster: Cluster) -> str:
    """Cores and memory that a job asks for, where the cluster has a limit of them."""
    words = []
    if np.isfinite(work.cpus[row]) and any(np.isfinite(group.cpus) for group in cluster.groups):
        words.append(f"{work.cpus[row]:g} cores")
    if np.isfinite(work.mem_gib[row]) and any(np.isfinite(group.mem_gib) for group in cluster.groups):
        words.append(f"{work.mem_gib[row]:g} GiB")
    return "".join(f" and {word}" for word in words)


def host_notes(work: Workload, cluster: Cluster) -> list[str]:
    """What is not played although the log asks for it: cores and memory of nodes without any limit of them."""
    notes = []
    for asked, what, key in ((work.cpus, "cores", "cpus"), (work.mem_gib, "memory", "mem_gib")):
        free = [group for group in cluster.groups if not np.isfinite(getattr(group, key))]
        if not free or np.isnan(asked).all():
            continue
        some = "" if len(free) == len(cluster.groups) else f"{', '.join(group.gpu_type for group in free)} nodes of "
        notes.append(f"jobs ask for {what}, but {some}cluster '{cluster.spec}' names none, so that nobody waits for it")
    return notes


def is_large(work: Workload, cluster: Cluster) -> bool:
    """Whether machine code pays: loading it takes about 0.05 s, making it first about 8 s, once."""
    size = len(work) * min(cluster.gpus, 200)
    return size > 1_500_000 or (size > 40_000 and jit.is_cached())


def _validate(e: Experiment) -> None:
    if not len(e.workload):
        raise InputError(f"{e.workload.source}: no jobs to simulate")
    Compat(e.compat)
    if e.allocator not in PLAIN:
        from cotenant.allocation import make_allocator

        make_allocator(e.allocator)
    if not e.round_s > 0:
        raise InputError(f"--round {e.round_s:g} must be above 0 seconds")
    if e.defrag and e.allocator not in ("fixed", "proportional"):
        raise InputError(f"--defrag does not go with --allocator {e.allocator}, which places jobs itself")
    check_network(e)
    if e.power and (e.fail_nodes is not None or e.placement.split(":")[0] == "count"):
        raise InputError("--power needs nodes that do not fail, and a placement that knows them")
    if e.crash and (e.fail_nodes is not None or e.power or e.placement.split(":")[0] == "count"):
        raise InputError("--crash lets nodes fail by itself, none sleep, and needs a placement that knows them")
    if e.fail_nodes is not None and e.placement.split(":")[0] == "count":
        raise InputError("--fail-nodes needs a placement that knows nodes: use --placement consolidated")
    if e.fail_nodes is not None:
        check_often(e.fail_nodes, float(e.workload.duration_s.max()))
    if e.services and (e.fail_nodes is not None or e.power or e.crash or e.allocator not in PLAIN):
        raise InputError(
            "services go with nodes that neither fail nor sleep, and with --allocator fixed or proportional"
        )
    if e.services and (e.compat or e.placement.split(":")[0] == "count"):
        raise InputError("services need a placement that knows nodes, and no --compat")
    if e.measure is not None:
        first, last = e.measure
        if not 0 <= first <= last:
            raise InputError(f"--measure {first}-{last}: write FROM-TO with 0 <= FROM <= TO")
        if last >= len(e.workload):
            jobs = len(e.workload)
            raise InputError(f"--measure {first}-{last}: the workload has only {jobs} jobs, 0 to {jobs - 1}")
