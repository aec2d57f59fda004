"""Horus: cost, feasibility, credit, clusters, and where jobs go."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.policies.horus.cost import MARGIN_MIB, feasible, gpu_cost
from cotenant.policies.horus.queues import clusters, credit
from cotenant.testing.sharing import shared_run, sharing

CAPACITY = 16_384.0


@pytest.mark.parametrize(
    ("residents", "util", "mib", "cost"),
    [
        ([], 80, 3000, 0.4380),
        ([], 60, 3000, 0.6380),
        ([(40, 3000)], 60, 3000, 1.4761),
        ([(60, 3000)], 80, 3000, 2.1161),
        ([(60, 3000), (60, 3000)], 80, 3000, 3.9941),
        ([(35, 4000)], 50, 2000, 1.6261),
        ([(70, 9000)], 50, 2000, 2.1928),
    ],
)
def test_golden_costs(residents: list[tuple[float, float]], util: float, mib: float, cost: float) -> None:
    used, held = sum(one for one, _ in residents), sum(one for _, one in residents)
    assert gpu_cost(used, held, len(residents), util, mib, CAPACITY, 1.0, 0.0) == pytest.approx(cost, abs=5e-5)


def test_feasibility_edge() -> None:
    assert not feasible(12_000, 1, 3_884, CAPACITY, MARGIN_MIB)
    assert feasible(12_000, 1, 3_883, CAPACITY, MARGIN_MIB)
    assert not feasible(0, 3, 100, CAPACITY, MARGIN_MIB)


def test_credit() -> None:
    assert credit([0, 0, 0]) == 3
    assert credit([10, 20, 90]) == 60
    assert credit([]) == 0


def test_clusters_tell_sizes_apart() -> None:
    features = np.array([[1, 10.0], [1, 11.0], [1, 12.0], [8, 90.0], [8, 91.0]])
    of = clusters(features, 2, np.random.default_rng(0))
    assert len(set(of[:3])) == 1
    assert len(set(of[3:])) == 1
    assert of[0] != of[4]


def test_prefers_the_gpu_that_comes_closest_to_full() -> None:
    """A job of 50 % goes beside one of 35 %, not beside one of 70 %; never beside anybody while a GPU is empty."""
    table = sharing(np.full((3, 3), 0.9), memory_gib=[4, 9, 2], gpu_gib=16, busy=[0.35, 0.70, 0.50])
    run = shared_run([(0.0, 1, 900.0), (0.0, 1, 900.0), (1.0, 1, 900.0)], table, "1x2", "horus")
    run.advance(1.0)
    users = [[job for job in jobs if job >= 0] for jobs in run.state.gpu.tolist()]
    assert sorted(map(sorted, users)) == [[0, 2], [1]]
    run = shared_run([(0.0, 1, 900.0), (0.0, 1, 900.0), (1.0, 1, 900.0)], table, "1x3", "horus")
    run.advance(1.0)
    assert (run.state.gpu[:, 1] < 0).all()


def test_at_most_three_on_a_gpu_and_memory_kept() -> None:
    table = sharing(np.full((5, 5), 0.9), memory_gib=[2] * 5, gpu_gib=16, busy=[0.1] * 5)
    run = shared_run([(0.0, 1, 900.0)] * 5, table, "1x1", "horus")
    run.advance(0.0)
    assert int((run.state.gpu[0] >= 0).sum()) == 3
    table = sharing(np.full((2, 2), 0.9), memory_gib=[8, 8], gpu_gib=16, busy=[0.1] * 2)
    run = shared_run([(0.0, 1, 900.0)] * 2, table, "1x1", "horus")
    run.advance(0.0)
    assert run.state.i[1, col.STATE] == col.WAITING


def test_credit_queues_lower_the_worst_wait_of_heavy_jobs() -> None:
    """Light jobs keep coming; plain Horus lets the heavy one wait for all of them."""
    light = [(10.0 * k, 1, 60.0) for k in range(40)]
    rows = sorted([*light, (5.0, 2, 60.0)])
    kinds = [1 if gpus == 2 else 0 for _, gpus, _ in rows]
    table = sharing(np.full((2, 2), 0.5), memory_gib=[9, 9], gpu_gib=16, busy=[0.3, 0.95])
    waits = []
    for policy in ("horus", "horus+"):
        run = shared_run(rows, table, "1x2", policy, kinds=kinds)
        run.advance(np.inf)
        waits.append(float(run.state.f[kinds.index(1), col.WAITED]))
    assert waits[1] <= waits[0]
