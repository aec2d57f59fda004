"""Gandiva grows elastic jobs onto idle GPUs of their server, and takes them back as soon as anybody needs them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster, NodeGroup
from cotenant.core.errors import InputError
from cotenant.core.workload import Codes, Workload, make_workload
from cotenant.policies.gandiva.growth import best_size
from cotenant.policies.gandiva.policy import Gandiva
from cotenant.sim.driver import Experiment, Simulation
from cotenant.workload.elastic import MODELS, ElasticJobs, speeds

NAMES = (*(model.name for model in MODELS), "rigid")


def _jobs(*rows: tuple[float, int, float, str], tenants: tuple[str, ...] = ()) -> Workload:
    """(submit, GPUs, duration, model) in order of submission; all but `rigid` are elastic."""
    submit, gpus, duration, model = zip(*rows, strict=True)
    names = tuple(dict.fromkeys(tenants)) or ("",)
    return make_workload(
        "rows", np.array(submit, np.float64), np.array(gpus, np.int64), np.array(duration, np.float64),
        model=Codes(np.array([NAMES.index(name) for name in model]), NAMES), extra={"min_gpus": np.ones(len(rows))},
        tenant=Codes(np.array([names.index(name) for name in tenants or [""] * len(rows)]), names),
    )  # fmt: skip


def _run(work: Workload, cluster: str | Cluster = "1x4", policy: str = "gandiva", costs: str = "none") -> Simulation:
    spec = Cluster.parse(cluster) if isinstance(cluster, str) else cluster
    return Simulation(Experiment(work, spec, policy, costs=costs, check_invariants=True, compiled=False))


def _sizes(run: Simulation, now_s: float) -> list[int]:
    """GPUs of each job at a moment; 0 for those that do not run."""
    run.advance(now_s)
    return np.where(run.state.i[:, col.STATE] == col.RUNNING, run.state.i[:, col.GPUS], 0).tolist()


def _counts(run: Simulation) -> dict[str, int]:
    assert isinstance(run.policy, Gandiva)
    return run.policy.counts


def test_a_watched_job_grows_to_its_whole_server_and_no_further() -> None:
    run = _run(_jobs((0.0, 1, 2000.0, "resnet18/cifar")), "2x4")
    assert _sizes(run, 59.0) == [1]
    assert _sizes(run, 60.0) == [4]  # watched for 60 s, and the GPUs idle for 30 s
    assert _sizes(run, 500.0) == [4]
    jobs = ElasticJobs(run.work, 4, 8)
    fast = speeds(jobs, np.zeros(1, np.int64), np.array([4]), np.ones(1, np.int64), True)[0]
    assert run.state.f[0, col.SPEED] == pytest.approx(fast)
    run.advance(np.inf)
    result = run.outcome()
    assert result.finish_s[0] == pytest.approx(60.0 + (2000.0 - 60.0) / fast)
    assert (result.preemptions.sum(), result.restarts.sum()) == (0, 0)


@pytest.mark.parametrize(
    ("watch_s", "idle_s", "at_s"), [(60.0, 30.0, 60.0), (60.0, 100.0, 100.0), (20.0, 0.0, 20.0), (0.0, 45.0, 45.0)]
)
def test_it_waits_until_it_was_watched_and_the_gpus_were_idle(watch_s: float, idle_s: float, at_s: float) -> None:
    run = _run(_jobs((0.0, 1, 2000.0, "resnet18/cifar")), policy=f"gandiva:watch_s={watch_s},idle_s={idle_s}")
    assert _sizes(run, at_s - 0.5) == [1]
    assert _sizes(run, at_s) == [4]


@pytest.mark.parametrize(("model", "policy"), [("rigid", "gandiva"), ("resnet18/cifar", "gandiva:grow_shrink=false")])
def test_others_keep_their_size(model: str, policy: str) -> None:
    run = _run(_jobs((0.0, 1, 1000.0, model)), policy=policy)
    assert {tuple(_sizes(run, now_s)) for now_s in (10.0, 100.0, 500.0)} == {(1,)}
    run.advance(np.inf)
    assert run.outcome().finish_s[0] == pytest.approx(1000.0)
    assert _counts(run)["grown"] == 0


def test_it_shrinks_before_anybody_waits_or_takes_turns() -> None:
    """Three arrivals take back one GPU each, at once; each runs alone at full speed. When they go it grows again."""
    rows = [(0.0, 1, 3000.0, "resnet18/cifar"), *[(200.0 + 10 * k, 1, 300.0, "rigid") for k in range(3)]]
    run = _run(_jobs(*rows))
    assert _sizes(run, 199.0)[0] == 4
    for k in range(3):
        assert _sizes(run, 200.0 + 10 * k)[0] == 3 - k
        assert (run.state.gpu >= 0).sum(axis=1).tolist() == [1, 1, 1, 1]
    assert _sizes(run, 300.0) == [1, 1, 1, 1]
    assert _sizes(run, 600.0)[0] == 4
    run.advance(np.inf)
    result = run.outcome()
    assert result.queue_s.tolist() == [0.0] * 4
    assert result.finish_s[1:] == pytest.approx([500.0, 510.0, 520.0])
    assert result.preemptions.sum() == 0


def test_growing_and_shrinking_cost_their_pauses() -> None:
    """10 s of loading beside the old worker and 2 s of pause to grow; 2 s to shrink, before the newcomer is served."""
    run = _run(_jobs((0.0, 1, 3000.0, "resnet18/cifar"), (200.0, 3, 100.0, "rigid")), costs="default")
    assert _sizes(run, 65.0) == [4, 0]
    assert run.state.f[0, col.SPEED] == pytest.approx(1.0)  # its old worker
    run.advance(71.0)
    assert run.state.f[0, col.WARM] == pytest.approx(72.0)
    assert _sizes(run, 201.0) == [1, 3]
    assert run.state.f[0, col.WARM] == pytest.approx(202.0)
    run.advance(np.inf)
    result = run.outcome()
    assert result.queue_s[1] == 0.0
    assert result.finish_s[1] == pytest.approx(300.0)
    assert result.lost_gpu_s[0] > 0
    assert result.preemptions.sum() == 0


def test_nobody_grows_while_others_take_turns_or_wait() -> None:
    """Two partitions are two pools: turns in one keep everybody in the other from growing."""
    rows = [(0.0, 1, 900.0, "resnet18/cifar"), (0.0, 4, 300.0, "rigid"), (0.0, 4, 300.0, "rigid")]
    spec = Cluster((NodeGroup(1, 4, "t4"), NodeGroup(1, 4, "p100")))
    run = _run(_jobs(*rows), spec, "gandiva:packing=false,migration=false")
    sizes = _sizes(run, 200.0)
    shared = (run.state.gpu >= 0).sum(axis=1).max()
    assert (sizes[0], int(shared)) == (1, 2)
    assert max(_sizes(run, now_s)[0] for now_s in np.arange(200.0, 890.0, 30.0)) == 4  # as soon as that is over


def test_a_size_that_turns_out_worse_is_left_again() -> None:
    """This model is faster on 4 GPUs than on 6 (8 samples do not divide by 6): tried, seen, undone."""
    rows = [(0.0, 1, 9000.0, "bert/cola"), (0.0, 2, 9000.0, "rigid"), (0.0, 2, 400.0, "rigid")]
    run = _run(_jobs(*rows), "1x8", "gandiva:watch_s=10,idle_s=20,trial_s=30,defragmentation=false")
    assert _sizes(run, 100.0)[0] == 4
    assert _sizes(run, 430.0)[0] == 6
    assert [_sizes(run, now_s)[0] for now_s in (470.0, 1000.0, 2000.0)] == [4, 4, 4]
    assert _counts(run)["grown"] == 2
    assert _counts(run)["shrunk"] == 1


def test_idle_gpus_go_to_whoever_gains_most() -> None:
    """One of each kind has shown that ResNet-50 scales better than VGG-16: then it gets what is idle beside both."""
    kinds = ("vgg16/imagenet", "resnet50/imagenet")
    rows = [(0.0, 1, 300.0, kinds[0]), (500.0, 1, 300.0, kinds[1]), *[(1000.0, 1, 3000.0, kind) for kind in kinds]]
    run = _run(_jobs(*rows))
    assert _sizes(run, 150.0)[:1] == [4]
    assert _sizes(run, 650.0)[:2] == [0, 4]
    assert _sizes(run, 1300.0) == [0, 0, 1, 3]


def test_a_quota_binds_growth_and_comes_back_to_its_tenant() -> None:
    spec = Cluster((NodeGroup(1, 8),), {"ada": 3})
    rows = [(0.0, 1, 3000.0, "resnet50/imagenet"), (0.0, 1, 3000.0, "rigid"), (300.0, 2, 100.0, "rigid")]
    run = _run(_jobs(*rows, tenants=("ada", "bob", "ada")), spec)
    assert _sizes(run, 299.0) == [3, 1, 0]
    assert _sizes(run, 300.0) == [1, 1, 2]
    assert run.outcome().first_start_s[2] == 300.0


@pytest.mark.parametrize(("most", "resize_s", "size"), [(3, 0.0, 3), (4, 200.0, 4), (4, 250.0, 1)])
def test_limits_of_the_job_and_the_price_of_a_change_bind(most: int, resize_s: float, size: int) -> None:
    """Before anything else is known, 4 GPUs seem 4 times as fast: worth 200 s of pause in the next 300, not 250."""
    run = _run(_jobs((0.0, 1, 3000.0, "resnet50/imagenet")))
    facts = run.engine.facts
    assert facts.training is not None
    facts.training.resize_s = resize_s
    run.engine.facts = replace(facts, sizes=np.array([[1, most]]))
    assert _sizes(run, 100.0) == [size]


def test_a_gang_on_several_servers_does_not_grow() -> None:
    run = _run(_jobs((0.0, 6, 500.0, "resnet50/imagenet")), "2x4")
    assert {tuple(_sizes(run, now_s)) for now_s in (50.0, 150.0, 400.0)} == {(6,)}


def test_nodes_that_fail_lose_no_job() -> None:
    """A grown job that loses its node starts anew with the GPUs that it asked for."""
    work = _jobs(*[(float(40 * k), 1 + k % 2, 400.0, NAMES[k % len(NAMES)]) for k in range(12)])
    experiment = Experiment(
        work, Cluster.parse("3x4"), "gandiva:watch_s=10,idle_s=0", fail_nodes="mtbf=200,mttr=40,checkpoint=20",
        check_invariants=True, compiled=False,
    )  # fmt: skip
    run = Simulation(experiment)
    run.advance(np.inf)
    result = run.outcome()
    assert np.isfinite(result.finish_s).all()
    assert result.summary["node_failures"] != 0
    assert _counts(run)["grown"] > 0


def test_best_size() -> None:
    rate = np.array([0.0, 1.0, 1.8, 1.8, 1.5])
    assert best_size(rate, 1, 4) == 2  # the smallest of the fastest
    assert best_size(rate, 3, 4) == 3
    assert best_size(rate, 2, 2) == 2


def test_a_negative_time_is_one_clear_line() -> None:
    with pytest.raises(InputError, match=r"idle_s=-1 must not be negative"):
        _run(_jobs((0.0, 1, 10.0, "rigid")), policy="gandiva:idle_s=-1")


def test_a_job_grows_as_far_as_the_cores_of_its_server_go() -> None:
    work = replace(_jobs((0.0, 1, 3000.0, "resnet50/imagenet")), cpus=np.array([4.0]))
    assert _sizes(_run(work, "1x4/cpu=13,mem=100"), 100.0) == [3]
