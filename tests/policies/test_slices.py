"""GPUs in slices as a policy: an example by hand, legal partitions and memory always, and nothing of it when off."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant.core.cluster import Cluster, NodeGroup
from cotenant.core.errors import InputError
from cotenant.core.outcome import Outcome
from cotenant.core.partitions import mig, read_partitions
from cotenant.core.plan import Plan
from cotenant.core.view import View
from cotenant.core.workload import Codes, Workload, make_workload
from cotenant.policies.slices import SlicedGpus
from cotenant.sim.driver import Experiment, Simulation, simulate
from cotenant.testing.policy import assert_same
from cotenant.workload.cluster_file import cluster_text, load_cluster
from cotenant.workload.model_sets import H200_TYPES
from cotenant.workload.readers import read
from cotenant.workload.writer import write_csv


def _one_gpu(reconfigure_s: float) -> Cluster:
    table = read_partitions("slices", {"columns": 8, "sizes": [1, 2, 4, 8], "reconfigure": reconfigure_s}, "gpu")
    return Cluster((NodeGroup(1, 1, slices=table),), spec="1x1")


def _play(work: Workload, cluster: Cluster, policy: str = "slices", **options: object) -> Outcome:
    return simulate(Experiment(work, cluster, policy, costs="none", check_invariants=True, **options))  # type: ignore[arg-type]


def test_golden_two_jobs_on_one_gpu() -> None:
    """A (1000 s) has all of the GPU; B (100 s of work) comes at 100 s.

    Waiting, B would end 900 s + 100 s after it came. In halves it ends after 200 s; A, which has 900 s left, pauses for
    10 s, does (200 - 10) / 2 = 95 s of work beside B, pauses again, and ends at 300 + 10 + 805 = 1115 instead of
    1000: 115 s lost, 800 s gained, so B comes. When B has ended, A saves 805 s by absorbing its half, and pays 10.
    """
    work = make_workload("two", np.array([0.0, 100.0]), np.array([1, 1]), np.array([1000.0, 100.0]))
    found = _play(work, _one_gpu(10.0))
    assert found.finish_s.tolist() == [1115.0, 300.0]
    assert found.summary["reconfigurations"] == 2
    # A change that costs 2000 s is worth it for nobody: B waits.
    assert _play(work, _one_gpu(2000.0)).finish_s.tolist() == [1000.0, 1100.0]
    fixed = _play(work, _one_gpu(10.0), "slices:dynamic=false,speed=0.5")
    assert fixed.finish_s.tolist() == [2000.0, 300.0]
    assert fixed.summary["reconfigurations"] == 0


def test_jobs_that_ask_for_a_slice_get_it(tmp_path: Path) -> None:
    """Three jobs of 100 s take 400 s in a quarter of a GPU each; one that leaves it open waits, for that is better."""
    log = tmp_path / "log.csv"
    log.write_text(
        "job_id,submit_s,num_gpus,duration_s,slice\na,0,1,100,2/8\nb,0,1,100,2\nc,0,1,100,0.25\nd,0,1,500,\n"
    )
    work = read(str(log))
    found = _play(work, _one_gpu(1e6))
    assert found.finish_s.tolist() == [400.0, 400.0, 400.0, 900.0]
    write_csv(work, tmp_path / "again.csv")
    assert read(str(tmp_path / "again.csv")).extra["slice"].tolist() == ["2/8", "2", "0.25", ""]
    log.write_text("job_id,submit_s,num_gpus,duration_s,slice\na,0,2,100,2g\n")
    with pytest.raises(InputError, match=r"line 2: slice is '2g' of 2 GPUs"):
        read(str(log))
    log.write_text("job_id,submit_s,num_gpus,duration_s,slice\na,0,1,100,5g\n")
    with pytest.raises(InputError, match="unknown slice '5g'"):
        _play(read(str(log)), _one_gpu(1.0))


class _Watched(SlicedGpus):
    """Looks at every plan: columns of a GPU are given once, and a slice holds the memory of its job."""

    def decide(self, view: View) -> Plan:
        plan = super().decide(view)
        slicing = view.facts.slicing
        assert slicing is not None
        used: dict[tuple[int, int], int] = {}
        running = {int(row): view.places(int(row)) for row in view.rows[view.running]}
        for row, places in {**running, **plan.run}.items():
            terms, at = plan.terms.get(row), view.at(row)
            shape = terms.sliced if terms else int(view.sliced[at])
            column = terms.column if terms else int(view.column[at])
            for node, gpus, mask in places:
                table = slicing.tables[slicing.of_node[node]]
                cut = table.shapes[shape - 1] if shape else table.shapes[-1]
                assert gpus == 1 or shape == 0
                assert column in cut.starts
                gib = view.site.gpu_gib[view.site.node_type[node]] * cut.memory
                assert view.gpu_gib[at] <= gib + 1e-6
                for gpu in range(mask.bit_length()):
                    if mask >> gpu & 1:
                        assert not used.get((node, gpu), 0) & cut.mask(column)
                        used[node, gpu] = used.get((node, gpu), 0) | cut.mask(column)
        return plan


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from(["sjf", "fifo"]))
def test_every_partition_handed_out_is_legal_and_memory_fits(seed: int, dynamic: bool, order: str) -> None:
    draw = np.random.default_rng(seed)
    jobs = int(draw.integers(2, 40))
    models = Codes.of([H200_TYPES[k] for k in draw.integers(len(H200_TYPES), size=jobs)])
    work = make_workload(
        "random", np.sort(draw.integers(0, 2000, jobs)).astype(float), draw.choice([1, 1, 1, 1, 2, 3], jobs),
        draw.choice([0.0, 20.0, 300.0, 4000.0], jobs), model=models,
        extra={"slice": np.array([""] * jobs, object)},
    )  # fmt: skip
    asks = (work.gpus == 1) & (draw.random(jobs) < 0.2)
    work.extra["slice"][asks] = draw.choice(["1g", "2g", "3/7"], int(asks.sum()))
    small = Cluster(
        (NodeGroup(2, 2, "a100", slices=mig("a100")), NodeGroup(1, 2, "h200", slices=mig("h200"))), spec="s"
    )
    run = Simulation(
        Experiment(
            work, small, "slices", profile="h200", check_invariants=True,
            made=lambda: _Watched(dynamic=dynamic, order=order),
        )
    )  # fmt: skip
    assert run.advance(np.inf)
    assert run.outcome().finished.all()


@pytest.mark.parametrize("policy", ["srtf", "sjf-bsbf"])
def test_other_policies_see_nothing_of_slices(policy: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    models = Codes.of([H200_TYPES[k] for k in draw.integers(len(H200_TYPES), size=60)])
    lengths = draw.integers(1, 4000, 60).astype(float)
    work = make_workload("some", np.arange(60) * 50.0, draw.choice([1, 1, 2, 4], 60), lengths, model=models)
    plain = Cluster((NodeGroup(2, 4, "h200"),), spec="2x4:h200")
    cut = replace(plain, groups=(replace(plain.groups[0], slices=mig("h200")),))
    runs = [simulate(Experiment(work, cluster, policy, profile="h200")) for cluster in (plain, cut)]
    assert_same(*runs)
    path = tmp_path / "cluster.yaml"
    path.write_text(cluster_text(cut))
    assert "slices: mig" in path.read_text()
    assert load_cluster(str(path)).groups == cut.groups
