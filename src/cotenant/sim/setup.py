"""From an experiment to the engine's tables, the facts a policy may know, and the truth that moves jobs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cotenant.beliefs.company import PairSpeeds, SharedSpeeds, StageSpeeds
from cotenant.beliefs.estimators import estimate
from cotenant.beliefs.pair_estimator import PairBelief, make_pair_belief
from cotenant.compat import Compat
from cotenant.core import columns as col
from cotenant.core.deadlines import steps_of
from cotenant.core.declared import Oversubscription
from cotenant.core.errors import InputError, unknown
from cotenant.core.partitions import Slicing, speeds
from cotenant.core.prices import prices_of
from cotenant.core.stages import Stages
from cotenant.core.state import State
from cotenant.core.traits import Traits
from cotenant.core.view import Facts
from cotenant.core.workload import Codes, Floats, Workload
from cotenant.engine.job_rows import JobRows
from cotenant.engine.partitions import most_slices, table_of_nodes, tables_of
from cotenant.engine.rates import RateModel
from cotenant.engine.tables import lay_tables
from cotenant.placement.modes import parse_placement
from cotenant.policies import make_policy
from cotenant.policies.base import Policy
from cotenant.sim.costs import LOAD_S, RESIZE_S, charges
from cotenant.sim.elastic import ElasticTruth
from cotenant.sim.experiment import Experiment
from cotenant.sim.hosts import is_allocated
from cotenant.sim.services import with_replicas, without_end
from cotenant.workload.elastic import LIMITS, ElasticJobs
from cotenant.workload.model_facts import skew
from cotenant.workload.profiles import Profile, load_profile
from cotenant.workload.profiles.softening import declare, soften
from cotenant.workload.profiles.together import nothing_known
from cotenant.workload.stages import GPU_GIB, stage_memory, stages_of


def gpu_types(e: Experiment) -> tuple[str, ...]:
    """GPU types of the cluster in order of first appearance."""
    return tuple(dict.fromkeys(group.gpu_type for group in e.cluster.groups))


def lay_out(
    e: Experiment, work: Workload, policy: Policy | None = None, written: bool = True
) -> tuple[State, Profile, JobRows]:
    """The tables for these jobs, nothing arrived yet, the profile behind their speeds, and what the rows of jobs hold;
    that is `written` into the tables unless somebody does it later."""
    policy, compat = policy or make_policy(e.policy), Compat(e.compat)
    traits = policy.traits
    generator = np.random.default_rng([e.seed, 104729])
    jobs = len(work)
    if e.services:
        work = with_replicas(work, e.services)
    rule = Oversubscription.parse(e.oversubscribe)
    profile = declare(load_profile(e.profile, work, gpu_types(e), rule is not None), work, rule is not None)
    if rule is not None:
        profile = soften(profile, rule, placed=traits.names_gpus)
    e.notes.extend(note for note in profile.notes if note not in e.notes)
    if e.allocator == "proportional" or is_allocated(e, profile):
        work = _without_host_demands(work)
    need_gib, gpu_gib = _memory(e, work, traits, profile, compat)
    charge = charges(compat.costs(e.costs), work, profile, traits.takes_turns)
    if charge.jobs is not None:
        work = replace(work, duration_s=work.duration_s + charge.jobs.exit_s)
    state, rows = lay_tables(
        work,
        e.cluster,
        parse_placement(e.placement),
        belief_s=estimate(e.estimator or traits.default_estimator, work, e.seed),
        restore_s=charge.restore_s,
        draw=generator.random(len(work)),
        speed=profile.speed,
        speed_row=profile.row,
        steps_per_s=profile.steps_per_s[profile.row],
        sharing=traits.shares or e.transitions or bool(e.services),
        overcommits=traits.overcommits,
        need_gib=need_gib,
        gpu_gib=gpu_gib,
        skew=skew(work.model.names),
        gantt_window=e.window_s,
        measure=e.measure or (0, jobs - 1),
        costs=replace(e.stop_costs, most_suspended=max(e.stop_costs.most_suspended, charge.most_suspended)),
        job_costs=charge.jobs,
        tiers=e.transitions,
        most_slices=most_slices(e.cluster) if traits.slices else 0,
    )
    if written:
        rows.fill(state, 0, rows.count)
    if e.services:
        without_end(state, jobs)
    return state, profile, rows


def _memory(
    e: Experiment, work: Workload, traits: Traits, profile: Profile, compat: Compat
) -> tuple[Floats | None, Floats | None]:
    """GiB per GPU that each job needs and that each GPU type has; None where jobs do not share or nobody knows."""
    stages = stages_of(work) if traits.interleaves else None
    if stages is not None and compat.looks_at_memory():
        return stage_memory(stages), np.full(len(gpu_types(e)), GPU_GIB)
    if traits.shares and profile.together is not None:
        return profile.together.claimed_gib()[profile.row, 0], profile.together.gpu_gib
    return None, None


def _without_host_demands(work: Workload) -> Workload:
    """Cores and memory in proportion to GPUs never bind, so they need not be modelled."""
    absent = np.full(len(work), np.nan)
    return replace(work, cpus=absent, mem_gib=absent)


def facts(
    state: State, e: Experiment, work: Workload, belief: PairBelief | None, profile: Profile,
    stages: Stages | None = None,
) -> Facts:  # fmt: skip
    """What a policy may know of the cluster, of deadlines and of sharing."""
    types = gpu_types(e)
    pool_types = tuple(types[kind] for kind in state.pool[:, col.POOL_TYPE].tolist())
    steps = None if np.isnan(work.deadline_s).all() else steps_of(work)
    pair = None if belief is None else belief.table()
    together = profile.together
    if together is not None:
        from cotenant.beliefs.predictor import predicted_of

        together = replace(together, predicted=predicted_of(profile.kinds))
    movable = None if "movable" not in work.extra else np.asarray(work.extra["movable"], bool)
    return Facts(
        pool_types, prices_of(pool_types), pair, stages=stages, together=together, steps=steps, movable=movable
    )


def slicing(e: Experiment, work: Workload, traits: Traits, profile: Profile) -> Slicing | None:
    """How GPUs may be cut and how fast slices are; None where policy or cluster know nothing of it."""
    tables, of_node = tables_of(e.cluster), table_of_nodes(e.cluster)
    if not traits.slices or not tables:
        return None
    if parse_placement(e.placement).counts_only:
        raise InputError(f"policy '{e.policy}' cuts GPUs: use a placement that knows them, not count")
    asked = Codes.of([str(text) for text in work.extra["slice"].tolist()]) if "slice" in work.extra else None
    for name in asked.names if asked is not None else ():
        if name and all(table.find(name) < 0 for table in tables):
            shapes = dict.fromkeys(shape.name for table in tables for shape in table.shapes)
            raise InputError(f"{work.source}: {unknown('slice', name, list(shapes))}")
    busy = np.ones(len(profile.speed)) if profile.together is None else profile.together.busy
    return Slicing(tables, of_node, speeds(tables, busy, profile.slice_speeds), asked or Codes.empty(len(work)))


def elastic_truth(
    state: State, e: Experiment, work: Workload, traits: Traits, rates: RateModel | None
) -> ElasticTruth | None:
    """How elastic jobs move under a policy that resizes them; None where there is nothing of the kind.

    `rates` says what company does to them where GPUs are shared.
    """
    if not traits.resizes or not work.extra.keys() & set(LIMITS):
        return None
    jobs = ElasticJobs(work, int(state.node[:, col.NODE_SIZE].max()), e.cluster.gpus)
    free = e.costs == "none"
    company = rates if isinstance(rates, SharedSpeeds) else None
    return ElasticTruth(jobs, traits.fixed_batch, *((0.0, 0.0) if free else (RESIZE_S, LOAD_S)), e.seed, company)


def pair_belief(state: State, e: Experiment, profile: Profile, traits: Traits) -> PairBelief | None:
    """What the policy believes of pairs; None where nothing is shared."""
    if state.x[col.SHARING] == 0 or not traits.pair_belief:
        return None
    return make_pair_belief(traits.pair_belief, profile, e.seed)


def pair_truth(state: State, profile: Profile) -> PairSpeeds | None:
    """How pairs really run; None where nothing is shared or known."""
    pairs = profile.pairs if state.x[col.SHARING] == 1 else None
    gives = profile.together is not None and profile.together.soft is not None
    return None if pairs is None else PairSpeeds(pairs.pair, profile.together if gives else None)


def truth(
    e: Experiment, shared: PairSpeeds | None, traits: Traits, profile: Profile, stages: Stages | None = None
) -> RateModel | None:
    """What moves jobs where that is more than a speed per kind and GPU type.

    Jobs that interleave keep step as their `stages` say; a profile with measured pairs gives none, for these are true.
    """
    own = Compat(e.compat).rates(stages, traits, e.round_s, shared)
    if own is not None:
        return own
    if stages is not None and traits.interleaves:
        return StageSpeeds(stages)
    if not traits.names_gpus:
        return shared
    return SharedSpeeds(profile.together or nothing_known(profile), grants=not traits.overcommits)
