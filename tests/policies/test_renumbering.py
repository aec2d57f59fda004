"""A policy whose rows and kinds are laid out anew before every decision (`renumber`) decides as one whose are not.

The live service makes its tables anew for every decision: rows in order of submission, without those who are gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.plan import Plan
from cotenant.core.spec import Spec
from cotenant.core.stages import Stages
from cotenant.core.together import Together
from cotenant.core.training import Training
from cotenant.core.view import Facts, View
from cotenant.core.workload import Codes, Ints, make_workload
from cotenant.engine.observe import Window
from cotenant.policies import known_policies
from cotenant.policies.base import PlanPolicy, carry_over
from cotenant.policies.bsbf.policy import SjfBsbf
from cotenant.policies.horus.policy import Horus
from cotenant.sim.driver import Experiment, Simulation
from cotenant.testing.policy import assert_same
from cotenant.testing.sharing import shared_run, sharing
from cotenant.workload.generators import generate

GAP = 3  # rows that are nobody's, at most, between two jobs


class Anew:
    """Lays rows and kinds out anew before every decision of a policy, and translates what it answers."""

    def __init__(self, run: Simulation, seed: int) -> None:
        self.run = run
        self.policy, self.rng, self.calls = run.engine.policy, np.random.default_rng(seed), 0
        self.row_of: dict[int, int] = {}  # job (row of the simulation) -> its row at the last decision
        self.job_at: Ints = np.zeros(0, np.int64)  # the other way round, -1 for nobody
        assert isinstance(self.policy, PlanPolicy)
        self.inner: Callable[[View], Plan] = self.policy.decide
        self.policy.decide = self.decide  # type: ignore[method-assign]

    def decide(self, view: View) -> Plan:
        """The policy's answer to the same situation under other numbers."""
        jobs = np.sort(view.rows)
        if view.facts.training is not None:  # what those who are gone have told of their kinds is kept
            jobs = np.arange(int(self.run.state.x[col.NEXT_ARRIVAL]))
        at = np.cumsum(self.rng.integers(1, GAP + 1, len(jobs))) - 1
        row_of = dict(zip(jobs.tolist(), at.tolist(), strict=True))
        self.policy.renumber({old: row_of[job] for job, old in self.row_of.items() if job in row_of})
        self.row_of, self.calls = row_of, self.calls + 1
        self.job_at = np.full(int(at.max(initial=-1)) + 2, -1, np.int64)
        self.job_at[at] = jobs
        return self._plan(self.inner(self._view(view)))

    # -- the view ----------------------------------------------------------------------------------------------

    def _view(self, view: View) -> View:
        state, job_at = self.run.state, self.job_at
        kinds = len(state.speed)
        new_kind = self.rng.permutation(kinds)
        old_kind = np.argsort(new_kind)
        f, i = state.f[job_at], state.i[job_at]
        f[job_at < 0], i[job_at < 0] = 7e9, 0
        i[:, col.SPEED_ROW] = new_kind[i[:, col.SPEED_ROW]]
        i[:, col.HOST] = self._rows(i[:, col.HOST])
        i[:, col.TURN] = self._rows(i[:, col.TURN] - 1) + 1
        laid = state._replace(f=f, i=i, gpu=self._rows(state.gpu), speed=state.speed[old_kind], x=state.x.copy())
        rows = np.array([self.row_of[job] for job in view.rows.tolist()], np.int64)
        return Window(laid).view(self._facts(view.facts, old_kind), rows, view.now_s)

    def _rows(self, jobs: Ints) -> Ints:
        """Rows of jobs; -1 for nobody and for those who are gone."""
        return np.vectorize(lambda job: self.row_of.get(int(job), -1), otypes=[np.int64])(jobs)

    def _facts(self, facts: Facts, old_kind: Ints) -> Facts:
        job_at = self.job_at
        stages, together, steps, training = facts.stages, facts.together, facts.steps, facts.training
        if stages is not None:
            stages = self._stages(stages)
        if together is not None:
            by_kind = {name: getattr(together, name)[old_kind] for name in ("pace", "memory_gib", "busy", "curve")}
            cells = np.ix_(old_kind, old_kind)
            guess = None if together.guess is None else together.guess[cells]
            together = replace(together, ratio=together.ratio[cells], guess=guess, **by_kind)
        if training is not None:
            training = self._training(training)
        return replace(
            facts, ident=job_at.copy(), stages=stages, together=together, training=training,
            steps=None if steps is None else steps.take(job_at),
            rates=None if facts.rates is None else facts.rates[job_at],
            elastic=None if facts.elastic is None else facts.elastic[job_at],
            sizes=None if facts.sizes is None else facts.sizes[job_at],
        )  # fmt: skip

    def _stages(self, known: Stages) -> Stages:
        """Only the kinds of those who are there."""
        of = np.where(self.job_at >= 0, known.of[self.job_at], -1)
        used = np.unique(of[of >= 0])
        of = np.where(of >= 0, np.searchsorted(used, of), -1)
        by_kind = {name: getattr(known, name)[used] for name in ("gpus", "times", "alone_s", "start_s", "gpu_gib")}
        return replace(known, of=of, **by_kind)

    def _training(self, told: Training) -> Training:
        columns = {name: getattr(told, name)[self.job_at] for name in told.__slots__ if name not in _SCALARS}
        columns["kind"] = self.rng.permutation(int(told.kind.max()) + 1)[columns["kind"]]
        columns["kind"][self.job_at < 0] = -1
        columns["seen"][self.job_at < 0] = np.nan
        return Training(**columns, resize_s=told.resize_s, load_s=told.load_s)

    # -- the answer --------------------------------------------------------------------------------------------

    def _plan(self, plan: Plan) -> Plan:
        back = {row: job for job, row in self.row_of.items()}
        terms = {
            row: replace(term, turn=back[term.turn - 1] + 1) if term.turn else term for row, term in plan.terms.items()
        }
        run = carry_over(plan.run, back)
        assert len(run) == len(plan.run)
        stop, pause_s = frozenset(back[row] for row in plan.stop), carry_over(plan.pause_s, back)
        pools = plan.pools
        if pools is not None:
            hosts = np.append(self.job_at, -1)[pools.hosts]
            pools = replace(pools, rows=self.job_at[pools.rows], hosts=hosts)
        return replace(plan, run=run, terms=carry_over(terms, back), stop=stop, pause_s=pause_s, pools=pools)


_SCALARS = ("resize_s", "load_s", "total")


def _company(seed: int, kinds: int) -> Together:
    draw = np.random.default_rng(seed)
    return sharing(
        draw.uniform(0.3, 1.0, (kinds, kinds)), memory_gib=draw.uniform(4, 20, kinds), gpu_gib=32.0,
        busy=draw.uniform(0.1, 0.7, kinds), pace=(1.0, 0.9, 0.8), curve=np.sort(draw.uniform(0.2, 1.0, (kinds, 11))),
    )  # fmt: skip


def _shared(policy: str, seed: int) -> Simulation:
    """Small jobs of six kinds, more than the cluster holds, arriving one by one; some opportunistic."""
    draw = np.random.default_rng([seed, 5])
    count = 24
    submit = np.sort(draw.uniform(0, 600, count))
    rows = [(float(t), int(g), float(s)) for t, g, s in zip(
        submit, draw.choice([1, 1, 2, 4], count), draw.integers(30, 900, count), strict=True
    )]  # fmt: skip
    return shared_run(
        rows, _company(seed, 6), "2x4", policy, kinds=draw.integers(0, 6, count).tolist(),
        priority=draw.choice([0, 0, -1], count).tolist(),
    )  # fmt: skip


def _elastic(policy: str, seed: int) -> Simulation:
    """Elastic jobs on whole GPUs, as far as the policy cares; every third has a deadline."""
    work = generate(Spec.parse(f"ones-like:jobs=14,seed={seed}"), 16)
    deadline = np.where(np.arange(len(work)) % 3 == 0, work.submit_s + 4 * work.duration_s, np.nan)
    work = replace(work, deadline_s=deadline)
    return Simulation(Experiment(work, Cluster.parse("4x4"), policy, compiled=False, check_invariants=True, seed=seed))


PLANS = tuple(name for name, policy in known_policies().items() if issubclass(policy, PlanPolicy))
SPECS = (*PLANS, "chronus:lease=120,slot=60", "gandiva:watch_s=5,trial_s=5,residence_s=0", "horus+:queues=2")
SPECS += (
    "horus:pairs=oracle",
    "antman:pairs=formula",
    "gandiva:pairs=formula,watch_s=5,trial_s=5",
    "themis:form=auction",
)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("policy", "make"),
    [
        *((spec, _shared if known_policies()[spec.split(":")[0]].shares is True else _elastic) for spec in SPECS),
        ("gandiva:watch_s=5,idle_s=0", _elastic),
    ],
)
def test_plans_do_not_depend_on_the_numbers_of_rows_and_kinds(
    policy: str, make: Callable[[str, int], Simulation], seed: int
) -> None:
    plain, turned = make(policy, seed), make(policy, seed)
    anew = Anew(turned, seed)
    for run in (plain, turned):
        run.advance(np.inf)
    assert anew.calls > 20
    assert_same(plain.outcome(), turned.outcome())


def _in_stages(policy: str) -> Simulation:
    """Jobs of eight kinds by stage times."""
    draw = np.random.default_rng(11)
    count = 60
    kind = draw.integers(0, 8, count)
    gpus = np.array([1, 1, 1, 2, 2, 2, 4, 4])[kind]
    times = draw.uniform(0.01, 0.2, (8, 3))[kind]
    extra = {f"resource_time_{k}": times[:, k] for k in range(3)}
    work = make_workload(
        "stages", np.sort(draw.uniform(0, 2000, count)), gpus, draw.uniform(60, 900, count),
        model=Codes(kind, tuple(f"kind {k}" for k in range(8))), extra={**extra, "iteration_time_s": times.sum(axis=1)},
    )  # fmt: skip
    return Simulation(Experiment(work, Cluster.parse("2x4"), policy, compiled=False, check_invariants=True))


@pytest.mark.parametrize("policy", ["muri-s", "muri-l"])
def test_groups_do_not_depend_on_the_numbers_of_rows_and_kinds(policy: str) -> None:
    plain, turned = _in_stages(policy), _in_stages(policy)
    assert plain.stages is not None
    anew = Anew(turned, 3)
    for run in (plain, turned):
        run.advance(np.inf)
    assert anew.calls > 20
    assert_same(plain.outcome(), turned.outcome())


@pytest.mark.parametrize("policy", ["sjf-bsbf:noise=0.4", "horus:noise=0.4"])
def test_noise_stays_with_the_jobs_of_a_kind(policy: str) -> None:
    """Kinds change their numbers; what is believed of a pair of jobs, or of a job, does not."""
    run = shared_run([(0.0, 1, 500.0)] * 5, _company(1, 5), "1x4", policy, kinds=[4, 3, 2, 1, 0])
    run.advance(0.0)
    anew, chosen = Anew(run, 7), run.policy
    inner, seen = anew.inner, []

    def look(view: View) -> Plan:
        answer, kind = inner(view), view.kind[np.argsort(view.ident)]
        if isinstance(chosen, SjfBsbf):
            seen.append(chosen._slowdowns(view)[np.ix_(kind, kind)])
        elif isinstance(chosen, Horus):
            seen.append(chosen.utilisation(view)[kind])
        return answer

    anew.inner = look
    for _ in range(3):
        run.engine.cycle(0.0)
    assert len(seen) == 3
    assert all((one == seen[0]).all() for one in seen)


def test_what_was_learned_of_pairs_stays_with_the_jobs_of_a_kind() -> None:
    """Four jobs of four kinds side by side on two GPUs; after a minute their kinds change numbers again and again."""
    table = replace(_company(1, 5), guess=np.full((5, 5, 1), 0.95))
    rows = [(0.0, 1, 2000.0), (0.0, 1, 2000.0), (1.0, 1, 1500.0), (1.0, 1, 1500.0), (90.0, 1, 900.0)]
    run = shared_run(rows, table, "1x2", "sjf-bsbf:pairs=learned", kinds=[4, 3, 2, 1, 0])
    anew, chosen = Anew(run, 7), run.policy
    assert isinstance(chosen, SjfBsbf)
    inner, seen = anew.inner, []

    def look(view: View) -> Plan:
        answer, kind = inner(view), view.kind[np.argsort(view.ident)]
        seen.append(chosen._slowdowns(view)[np.ix_(kind, kind)])
        return answer

    anew.inner = look
    run.advance(90.0)
    assert run.state.gpu[:, 1].min() >= 0
    for _ in range(3):
        run.engine.cycle(90.0)
    truth = 1 / table.ratio[np.ix_([4, 3, 2, 1, 0], [4, 3, 2, 1, 0])]
    for a, b in [jobs[:2] for jobs in run.state.gpu.tolist()]:
        for found in seen[-3:]:
            assert found[a, b] == pytest.approx(truth[a, b])
            assert found[b, a] == pytest.approx(truth[b, a])
    assert (seen[-1] == seen[-3]).all()
    assert (seen[0] == 1 / 0.95).all()


def test_what_is_kept_by_row_moves_with_it() -> None:
    assert carry_over({1: "a", 4: "b", 6: "c"}, {1: 0, 6: 2, 9: 3}) == {0: "a", 2: "c"}
