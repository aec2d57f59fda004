"""Live jobs move together for a gang that waits (`serve --defrag`), if they can save and did not say no."""

from __future__ import annotations

from pathlib import Path

import pytest
from service_kit import ADMIN, Rig, cells, play, states, tell

from cotenant.backends.base import NodeInfo

TWO = tuple(NodeInfo(f"n{k}", "gpu", 4, 8, 64.0) for k in range(2))


def _gaps(home: Path, policy: str = "fifo", defrag: bool = True, saves: bool = True, **fields: object) -> Rig:
    """Two jobs of 2 GPUs on each of two nodes; one of either ends after 20 s. Then a gang of 4 comes."""
    rig = Rig(home, policy, TWO, defrag=defrag)
    for run in ("sleep 20", "sleep 2000", "sleep 20", "sleep 2000"):
        rig.submit(run, gpus=2, expected=float(run.split()[1]), **fields)
    play(rig, 2.0)
    for job in ("2", "4") if saves else ():
        tell(rig, job, 10, 1.0)
    play(rig, 320.0)
    rig.submit("sleep 30", gpus=4, expected=30)
    play(rig, 10.0)
    return rig


@pytest.mark.parametrize("policy", ["fifo", "easy"])
def test_a_gang_starts_and_a_job_goes_on_elsewhere(tmp_path: Path, policy: str) -> None:
    rig = _gaps(tmp_path, policy)
    assert states(rig, ["2", "4", "5"]) == ["running"] * 3
    assert rig.attempts("2", "4", "5") == [2, 1, 1]
    where = [{node for node, _ in cells(rig.service.store.book.jobs[job].last.gpus)} for job in ("2", "4", "5")]
    assert where == [{"n1"}, {"n1"}, {"n0"}]
    (stop,) = [event for event in rig.service.desk.events(ADMIN, "2") if event.kind == "stop"]
    assert stop.data["why"] == "move"
    assert rig.service.admin.metrics()["cotenant_moves_total"] == 1
    play(rig, 40.0)
    assert rig.state("5") == "succeeded"


@pytest.mark.parametrize("why", [{"defrag": False}, {"movable": False}, {"saves": False}, {"preemptible": False}])
def test_otherwise_it_waits(tmp_path: Path, why: dict[str, bool]) -> None:
    rig = _gaps(tmp_path, **why)  # type: ignore[arg-type]
    assert rig.state("5") == "pending"
    assert rig.attempts("2", "4") == [1, 1]
