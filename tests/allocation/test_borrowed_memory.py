"""Host memory that a node borrows of its peers, at a price (Valet's check in numbers)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cotenant.allocation import Request, Share, demands, make_allocator
from cotenant.allocation.allocate import soft_speeds
from cotenant.allocation.tables import make_packing
from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError
from cotenant.core.sensitivity import RATE, Sensitivity
from cotenant.core.workload import make_workload
from cotenant.sim.driver import Experiment, Simulation
from cotenant.workload.cluster_file import cluster_text, load_cluster


def play(cluster: str, mem_gib: list[float], seconds: float = 900.0, **more: Any) -> Simulation:
    rows = len(mem_gib)
    work = make_workload(
        "rows", np.arange(rows, dtype=np.float64), np.ones(rows, np.int64), np.full(rows, seconds),
        mem_gib=np.array(mem_gib),
    )  # fmt: skip
    usual: dict[str, Any] = {"costs": "none", "check_invariants": True, "compiled": False}
    run = Simulation(Experiment(work, Cluster.parse(cluster), "fifo", **usual | more))
    run.advance(np.inf)
    return run


def nodes_of(run: Simulation) -> list[int]:
    return run.outcome().segments.node.tolist()


def test_a_fifth_borrowed_at_half_speed_is_a_tenth_slower() -> None:
    """80 GiB local and 20 borrowed: 0.8 + 0.2 * 0.5 = 0.9."""
    assert play("1x1/mem=80,borrow=20@0.5", [100]).outcome().finish_s == pytest.approx([1000])
    assert play("1x1/mem=100", [100]).outcome().finish_s == pytest.approx([900])


def test_a_node_with_enough_of_its_own_wins() -> None:
    run = play("1x1/mem=80,borrow=20@0.5+1x1/mem=100", [100])
    assert nodes_of(run) == [1]
    assert run.outcome().finish_s == pytest.approx([900])
    both = play("1x1/mem=80,borrow=20@0.5+1x1/mem=100", [100, 100])  # the second borrows rather than waits
    assert both.outcome().finish_s == pytest.approx([900, 1001])


def test_what_a_node_borrows_is_spread_over_its_jobs() -> None:
    """60 + 60 on 100 own: a sixth is borrowed, so both move at 1 - 1/6 * 1/2; a third job waits for room."""
    run = play("1x3/mem=100,borrow=20@0.5", [60, 60, 60], seconds=1100.0)
    slow = 1 - 20 / 120 / 2
    first = 1 + (1100 - 1) / slow
    assert run.outcome().finish_s[0] == pytest.approx(first)
    assert run.outcome().first_start_s.tolist() == pytest.approx([0, 1, first])


def test_nobody_gets_more_than_is_lent() -> None:
    with pytest.raises(InputError, match="waits for ever"):
        play("1x1/mem=80,borrow=20@0.5", [101])


@pytest.mark.parametrize(("speed", "expected"), [(0.8, 0.9), (0.4, 0.5)])
def test_synergy_borrows_where_that_beats_the_share(speed: float, expected: float) -> None:
    """Each wants 16 GiB (speed 1) on a server with 16; its share of 8 makes 0.5. With 16 lent the second would have all
    of its memory borrowed: worth it at 0.8, not at 0.4. Spread over both, half of the memory costs 0.2 of its speed."""
    table = Sensitivity(
        np.array([1.0]), np.array([8.0, 16.0]), np.array([[[0.5, 1.0]]]), np.full((1, 3), np.nan), np.ones(1)
    )
    share, gangs, kind, order = Share(2, 2, 16, 16), np.ones(1, np.int64), np.zeros(2, np.int64), np.arange(2)
    packing = make_packing(2, np.array([[2.0, 2.0, 16.0]]), np.array([[16.0, speed]]))
    packing.gpus[:] = 1
    request = Request(
        packing, order, order.copy(), kind, gangs, demands(table, gangs, share), share, 0, 1, kind, np.ones(2),
        np.full((2, 2), np.nan),
    )  # fmt: skip
    make_allocator("synergy-tune").pack(request)
    speeds = packing.got[:, RATE] * soft_speeds(packing)
    assert speeds.tolist() == pytest.approx([expected, expected])


def test_clusters_say_what_they_borrow(tmp_path: Path) -> None:
    group = Cluster.parse("2x4/mem=80,borrow=20@0.25").groups[0]
    assert (group.mem_gib, group.borrow_gib, group.borrow_factor) == (80, 20, 0.25)
    file = tmp_path / "cluster.yaml"
    file.write_text(cluster_text(Cluster((group,))))
    assert load_cluster(str(file)).groups == (group,)
    for wrong in ("1x1/mem=80,borrow=20@0", "1x1/mem=80,borrow=x", "1x1/borrow=20"):
        with pytest.raises(InputError, match="borrow"):
            Cluster.parse(wrong)
    file.write_text("groups: [{nodes: 1, gpus: 1, mem: 80, borrow: 20, borrow_factor: 2}]")
    with pytest.raises(InputError, match=r"borrow_factor is 2"):
        load_cluster(str(file))
    assert play("1x1/mem=100", [100]).state.host[0, col.HOST_MEM_CAP] == 100
