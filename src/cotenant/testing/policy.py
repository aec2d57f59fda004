"""The contract of a policy: subclass it, name the policy, and pytest does the rest.

    from cotenant.testing.policy import PolicyContract

    class TestMine(PolicyContract):
        policy = "./mine.py:Mine"

Workloads are drawn from seeds, with ties in submit times, jobs of length 0 and gangs as large as the
cluster; times are whole seconds, so that every comparison is exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster, NodeGroup
from cotenant.core.outcome import Outcome
from cotenant.core.plan import Why
from cotenant.core.workload import Codes, Workload, make_workload
from cotenant.engine.explain import explain
from cotenant.engine.invariants import check
from cotenant.sim.driver import Experiment, Simulation, simulate
from cotenant.testing.vandal import Vandal

CLUSTERS = ("1x4", "4x4", "2x8+4x2", "2x4:v100+3x2:k80")
PLACEMENTS = ("count", "consolidated", "relaxed:after=30", "spread", "skew")
SEEDS = (0, 1)
TENANTS = ("ada", "bob", "eve")


def jobs(*rows: tuple[float, int, float], tenants: Iterable[str] = (), models: Iterable[str] = ()) -> Workload:
    """A workload from (submit_s, gpus, duration_s) rows, in order of submission."""
    submit, gpus, duration = (np.array(column) for column in zip(*rows, strict=True))
    return make_workload(
        "rows",
        submit.astype(np.float64),
        gpus.astype(np.int64),
        duration.astype(np.float64),
        tenant=Codes.of(list(tenants)) if tenants else None,
        model=Codes.of(list(models)) if models else None,
    )


def random_workload(seed: int, count: int, largest: int, *, busy_s: int = 40) -> Workload:
    """`count` jobs of up to `largest` GPUs in whole seconds, more than a cluster of that size can run at once."""
    draw = np.random.default_rng([seed, count, largest])
    submit = np.sort(draw.integers(0, max(count * busy_s // 8, 1), count)).astype(np.float64)
    submit[1::5] = submit[: len(submit[1::5]) * 5 : 5]  # every fifth job arrives with its neighbour
    small = draw.integers(1, min(largest, 4) + 1, count)
    gpus = np.where(draw.random(count) < 0.7, small, draw.integers(1, largest + 1, count))
    gpus[count // 2] = largest
    duration = np.where(draw.random(count) < 0.1, 0, draw.integers(1, busy_s, count)).astype(np.float64)
    models = ("vgg19", "resnet50", "")
    return make_workload(
        f"random-{seed}",
        submit,
        gpus,
        duration,
        tenant=Codes(draw.integers(0, len(TENANTS), count), TENANTS),
        model=Codes(draw.integers(0, len(models), count), models),
    )


def moments(result: Outcome) -> list[float]:
    """Every moment at which a job arrived, started, stopped or ended."""
    segments = result.segments
    times = np.concatenate([result.workload.submit_s, segments.start_s, segments.end_s])
    return [float(time_s) for time_s in np.unique(times)]


def stops(experiment: Experiment) -> Iterator[Simulation]:
    """Play a run again and stop after the last decision of each of its moments."""
    times = moments(simulate(experiment))
    run = Simulation(experiment)
    for time_s in times:
        run.advance(time_s)
        yield run


def assert_same(one: Outcome, other: Outcome) -> None:
    """Two runs agree to the last bit."""
    for name in ("first_start_s", "finish_s", "queue_s", "preemptions", "restarts", "lost_gpu_s"):
        a, b = getattr(one, name), getattr(other, name)
        assert a.tobytes() == b.tobytes(), f"{name} differs at rows {np.flatnonzero(a != b)[:5].tolist()}"


def assert_work_conserved(result: Outcome, *, shares: bool = False) -> None:
    """Each job held its GPUs for its work plus what was lost, and did nothing but wait otherwise.

    Jobs that share GPUs may hold them for longer.
    """
    work, segments = result.workload, result.segments
    held_gpu_s = np.zeros(len(work))
    np.add.at(held_gpu_s, segments.job, (segments.end_s - segments.start_s) * segments.gpus)
    needed_gpu_s = work.gpus * work.duration_s + result.lost_gpu_s
    if shares:
        assert (held_gpu_s >= needed_gpu_s - 1e-6 * np.maximum(needed_gpu_s, 1.0)).all()
    else:
        np.testing.assert_allclose(held_gpu_s, needed_gpu_s, atol=1e-6)
    np.testing.assert_allclose(result.jct_s, result.queue_s + held_gpu_s / work.gpus, atol=1e-6)


class PolicyContract:
    """What every policy must do, whatever its order is."""

    policy: ClassVar[str] = ""
    round_s: ClassVar[float] = 20.0
    work_conserving: ClassVar[bool] = True
    """Whether the policy starts a waiting job of one GPU (the head, if it is strict) as soon as one is idle."""
    shares: ClassVar[bool] = False
    """Whether jobs may hold GPUs for longer than they need because others sit there too."""

    def experiment(
        self, work: Workload, cluster: str | Cluster, placement: str = "consolidated", costs: str = "none"
    ) -> Experiment:
        """The run that the checks below are made on; override to vary more of it."""
        spec = Cluster.parse(cluster) if isinstance(cluster, str) else cluster
        return Experiment(
            work,
            spec,
            self.policy,
            placement=placement,
            costs=costs,
            round_s=self.round_s,
            check_invariants=True,
            compiled=False,
        )

    @pytest.mark.parametrize("placement", PLACEMENTS)
    @pytest.mark.parametrize("cluster", CLUSTERS)
    def test_every_job_finishes_and_work_is_conserved(self, cluster: str, placement: str) -> None:
        """Invariants hold after every decision, nobody starves for ever and no work appears or vanishes."""
        for seed, costs in zip(SEEDS, ("none", "7"), strict=True):
            work = random_workload(seed, 20, _largest_pool(cluster))
            result = simulate(self.experiment(work, cluster, placement, costs))
            assert np.isfinite(result.finish_s).all()
            assert (result.first_start_s >= work.submit_s).all()
            assert_work_conserved(result, shares=self.shares)

    @pytest.mark.parametrize("fail_nodes", ["mtbf=100,mttr=30,checkpoint=10", "mtbf=120,mttr=15,checkpoint=1000"])
    def test_node_failures_lose_work_but_no_jobs(self, fail_nodes: str) -> None:
        """With nodes failing every few minutes all jobs still finish, and lost work is counted."""
        work = random_workload(3, 24, 8)
        result = simulate(replace(self.experiment(work, "4x4", costs="5"), fail_nodes=fail_nodes))
        assert np.isfinite(result.finish_s).all()
        assert result.summary["node_failures"] != 0
        assert_work_conserved(result, shares=self.shares)

    def test_same_seed_gives_the_same_result(self) -> None:
        """Nothing but the experiment decides."""
        experiment = self.experiment(random_workload(5, 30, 8), "2x8+4x2", costs="7")
        assert_same(simulate(experiment), simulate(experiment))

    @pytest.mark.parametrize("placement", PLACEMENTS)
    def test_a_job_alone_never_waits(self, placement: str) -> None:
        """An empty cluster starts any gang that it can hold, at once and without preemption."""
        for gpus in (1, 3, 8, 11, 16):
            result = simulate(self.experiment(jobs((100.0, gpus, 500.0)), "2x8+4x2", placement))
            assert (result.first_start_s[0], result.finish_s[0], result.queue_s[0]) == (100.0, 600.0, 0.0)
            assert result.preemptions[0] == 0

    @pytest.mark.parametrize("placement", ["count", "consolidated"])
    def test_no_gpu_idles_while_a_job_of_one_gpu_waits(self, placement: str) -> None:
        """After each decision: no idle GPU beside a waiting job of one GPU; a strict policy minds the head only."""
        if not self.work_conserving:
            pytest.skip("the policy says that it may leave GPUs idle")
        for seed in SEEDS:
            work = random_workload(seed, 30, 8)
            for run in stops(self.experiment(work, "2x8", placement)):
                check(run.state)
                idle = int(run.state.x[col.IDLE])
                small = [row for row in self._entitled(run) if run.state.i[row, col.GPUS] == 1]
                assert not (idle and small), f"rows {small} wait beside {idle} idle GPUs at {run.state.t[col.NOW]:g} s"

    def test_every_job_that_waits_is_told_why(self) -> None:
        """Something about this job, from the decision itself: a plan knows no turns, and takes nothing back later."""
        work, cluster = random_workload(11, 60, 8, busy_s=90), Cluster.parse("1x8")
        asked, kept = 0, list[tuple[Why, int, str]]()
        for run in stops(replace(self.experiment(work, cluster), check_invariants=False)):
            now_s, plans = float(run.state.t[col.NOW]), run.engine.traits.plans
            assert all(why(row) == text for why, row, text in kept)
            kept = []
            for row in [row for row in range(len(work)) if _waits(run, row)][:5]:
                reason = explain(run.engine, run.work, cluster, row, now_s)
                assert reason.text == explain(run.engine, run.work, cluster, row, now_s).text
                assert re.search(r"\d", reason.text), f"job {row} under {self.policy}: {reason.text}"
                assert not (plans and re.search(r"its turn|number \d+ of \d+ waiting", reason.text)), reason.text
                if plans:
                    kept.append((run.engine.answers(), row, run.engine.answers()(row)))
                asked += 1
        assert asked, "nobody waited"

    def test_asking_for_the_rule_again_changes_nothing(self) -> None:
        """A policy forgets when a run begins, and not when it is asked what it is."""
        experiment = self.experiment(random_workload(5, 24, 8), "2x8", costs="7")
        undisturbed = simulate(experiment)
        for run in stops(experiment):
            assert run.policy.traits == run.engine.traits
            run.policy.rule(run.context)
        run.advance(np.inf)
        assert_same(run.outcome(), undisturbed)

    def test_names_of_tenants_change_nothing(self) -> None:
        """Tenants are told apart by what they own, not by how they are called or numbered."""
        work = random_workload(7, 30, 4)
        names, back = ("zoe", "ann", "mel"), np.array([2, 0, 1])
        turned = make_workload(
            work.source,
            work.submit_s,
            work.gpus,
            work.duration_s,
            model=work.model,
            tenant=Codes(back[work.tenant.code], names),
        )
        quota = {"ada": 5, "bob": 8}
        renamed = {names[back[TENANTS.index(name)]]: gpus for name, gpus in quota.items()}
        for first, second in (({}, {}), (quota, renamed)):
            groups = (NodeGroup(3, 4), NodeGroup(2, 2))
            one = simulate(self.experiment(work, Cluster(groups, first)))
            other = simulate(self.experiment(turned, Cluster(groups, second)))
            assert_same(one, other)

    def test_a_vandal_beside_it_changes_nothing_and_finds_nothing(self) -> None:
        """Overwriting whatever the view leads to has no effect, and the truth is not there (`testing.vandal`)."""
        work = random_workload(1, 12, 8)
        work = replace(work, duration_s=work.duration_s + 0.001 + np.random.default_rng(0).random(len(work)))
        experiment = replace(self.experiment(work, "2x8", costs="7"), estimator="noisy:error=0.5")
        run = Simulation(experiment)
        vandal = Vandal(run)
        run.advance(np.inf)
        assert not vandal.found
        assert_same(run.outcome(), simulate(experiment))

    def _entitled(self, run: Simulation) -> list[int]:
        """Waiting jobs that may expect the next idle GPU: all of them, or the head of a policy with a line."""
        waiting = [int(row) for row in run.engine.order(float(run.state.t[col.NOW])) if _waits(run, int(row))]
        lined_up = run.engine.traits.strict or bool(run.engine.rule.flags[col.EASY])
        return waiting[:1] if lined_up and not run.engine.traits.plans else waiting


def _waits(run: Simulation, row: int) -> bool:
    return bool(run.state.i[row, col.STATE] == col.WAITING)


def _largest_pool(cluster: str) -> int:
    """The largest gang that a cluster can hold: a gang never spans two GPU types."""
    pools: dict[str, int] = {}
    for group in Cluster.parse(cluster).groups:
        pools[group.gpu_type] = pools.get(group.gpu_type, 0) + group.gpus
    return max(pools.values())
