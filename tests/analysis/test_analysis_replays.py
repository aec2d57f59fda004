"""The worst stretch of a log, why jobs wait in a replay, and logs that are read in pieces."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cotenant.analysis import JobTable, analyze, gather
from cotenant.analysis.congestion import assumed_cluster, demand, workload_of, worst_window
from cotenant.analysis.delay import quotas_of, split
from cotenant.analysis.groups import bucket, by_group
from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError
from cotenant.core.spec import Spec
from cotenant.core.tenants import Tenant, Tree
from cotenant.core.workload import Codes, make_workload
from cotenant.sim.driver import Experiment, simulate
from cotenant.workload.generators import generate
from cotenant.workload.readers.pieces import read_pieces
from cotenant.workload.writer import write_csv

HOUR = 3600.0


def table(folder: Path, rows: list[tuple[float, int, float]]) -> JobTable:
    path = folder / "log.csv"
    lines = [f"{at},{submit:g},{gpus},{run:g}" for at, (submit, gpus, run) in enumerate(rows)]
    path.write_text("\n".join(["job_id,submit_s,num_gpus,duration_s", *lines]) + "\n", encoding="utf-8")
    return gather(read_pieces(path), str(path), folder)


def test_the_worst_stretch_is_where_most_is_wanted_beyond_the_cluster(tmp_path: Path) -> None:
    quiet = [(at * HOUR, 1, 600.0) for at in range(50)]
    burst = [(50 * HOUR + at, 8, 5 * HOUR) for at in range(4)]
    jobs = table(tmp_path, [(0.0, 4, 51 * HOUR), *quiet, *burst, *((at * HOUR, 1, 600.0) for at in range(51, 80))])
    seen = demand(jobs)
    assert seen.wanted[50] == 4 + 4 * 8  # the long one and the burst
    window = worst_window(seen, False, 16, size=4)
    assert (window.from_s, window.jobs) == (50 * HOUR, 4)
    assert "wanted beyond 16" in window.chosen_by
    work = workload_of(jobs, window)
    assert [str(name) for name in work.job_id] == ["before-0", "0", "1", "2", "3"]
    assert work.duration_s[0] == pytest.approx(HOUR)  # what is left of the long one
    assert work.gpus.tolist() == [4, 8, 8, 8, 8]


def test_an_assumed_cluster_holds_the_largest_job(tmp_path: Path) -> None:
    jobs = table(tmp_path, [(at * HOUR, 1, 60.0) for at in range(30)] + [(30 * HOUR, 30, 60.0)])
    cluster, why = assumed_cluster(demand(jobs), False, 30)
    assert (cluster.spec, cluster.gpus) == ("4x8", 32)
    assert "90 %" in why


def test_waiting_at_the_quota_is_fair_share_and_the_rest_fragmentation() -> None:
    # One node of 8. a and b hold 4 each until 100; the second job of a waits from 10 to 100, with a at its quota of 4;
    # c wants 8 from 20 on: until 100 nothing is free, until 150 four are, and 8 are only then.
    work = make_workload(
        "hand", np.array([0.0, 0.0, 10.0, 20.0]), np.array([4, 4, 4, 8]), np.array([100.0, 100.0, 50.0, 10.0]),
        tenant=Codes.of(["a", "b", "a", "c"]),
    )  # fmt: skip
    outcome = simulate(Experiment(work, Cluster.parse("1x8"), "fifo"))
    fair_s, scattered_s, wait_s = split(outcome, np.arange(4), {"a": 4.0, "b": 4.0, "c": 8.0})
    assert wait_s.tolist() == [0, 0, 90, 130]
    assert fair_s.tolist() == [0, 0, 90, 0]
    assert scattered_s.tolist() == [0, 0, 0, 0]


def test_quotas_are_the_clusters_where_it_has_any() -> None:
    rows = {"a": {"gpu_hours_share": 0.75}, "b": {"gpu_hours_share": 0.25}}
    plain = Cluster.parse("1x8")
    assert quotas_of(plain, rows) == ({"a": 6.0, "b": 2.0}, quotas_of(plain, rows)[1])
    assert "assumed" in quotas_of(plain, rows)[1]
    assert quotas_of(replace(plain, quotas={"a": 4}), rows)[0] == {"a": 4.0}
    tree = Tree((Tenant("a", guaranteed=5), Tenant("b", guaranteed=3)))
    assert quotas_of(replace(plain, tenants=tree), rows) == ({"a": 5.0, "b": 3.0}, "the cluster's guarantees")


def test_waiting_beside_idle_gpus_is_called_scattered() -> None:
    # Two nodes of 4, a job of 3 on each: two GPUs are idle, but not together.
    work = make_workload("hand", np.array([0.0, 0.0, 10.0]), np.array([3, 3, 2]), np.array([100.0, 100.0, 10.0]))
    outcome = simulate(Experiment(work, Cluster.parse("2x4"), "fifo"))
    fair_s, scattered_s, wait_s = split(outcome, np.arange(3), {})
    assert (fair_s[2], scattered_s[2], wait_s[2]) == (0, 90, 90)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("generated") / "log.csv"
    write_csv(generate(Spec.parse("philly-like:jobs=3000,seed=3"), 64), path)
    return path


def report_of(path: Path, folder: Path, **options: Any) -> dict[str, Any]:
    return analyze(gather(read_pieces(path, **options), "log", folder), replays=False)


@pytest.mark.parametrize("kind", ["csv", "gz", "parquet"])
def test_pieces_give_what_the_whole_gives(generated: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"log.{kind}"
    if kind == "gz":
        path.write_bytes(gzip.compress(generated.read_bytes()))
    elif kind == "csv":
        path.write_bytes(generated.read_bytes())
    else:
        write_csv(generate(Spec.parse("philly-like:jobs=3000,seed=3"), 64), path)
    pieces = list(read_pieces(path, piece_bytes=20_000))
    assert (len(pieces) > 5) == (kind != "parquet")
    in_pieces = analyze(gather(pieces, "log", tmp_path), replays=False)
    whole = report_of(generated, tmp_path / "none")
    for name in ("jobs", "by_hour", "by_size", "by_tenant", "statuses", "failures", "users", "congestion", "lacking"):
        assert _rounded(in_pieces[name]) == _rounded(whole[name]), name


def _rounded(data: Any) -> Any:
    """Sums of pieces are added in another order."""
    if isinstance(data, dict):
        return {key: _rounded(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_rounded(value) for value in data]
    return float(f"{data:.9g}") if isinstance(data, float) else data


def test_a_bad_cell_in_a_later_piece_is_named_by_its_line(generated: Path, tmp_path: Path) -> None:
    lines = generated.read_text(encoding="utf-8").splitlines()
    cells = lines[2500].split(",")
    lines[2500] = ",".join([*cells[:2], "many", *cells[3:]])
    path = tmp_path / "bad.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"bad\.csv line 2501: num_gpus is 'many'"):
        gather(read_pieces(path, piece_bytes=20_000), "log", tmp_path)


def test_percentiles_of_bins_are_within_one_per_cent(generated: Path, tmp_path: Path) -> None:
    jobs = gather(read_pieces(generated), "log", tmp_path)
    exact = by_group(jobs, bucket(), "run_s")
    binned = by_group(replace(jobs, exact=False), bucket(), "run_s")
    for name in ("1", "2-4", "5-8"):
        assert binned[name]["jobs"] == exact[name]["jobs"]
        for point in ("p50", "p95"):
            assert binned[name][point] == pytest.approx(exact[name][point], rel=0.02)
