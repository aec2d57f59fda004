"""The service deals out cores and memory while jobs run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from service_kit import Rig

from cotenant.backends.base import NodeInfo
from cotenant.core.errors import InputError

NODE = (NodeInfo("n0", "gpu", 4, 8, 64.0),)


@pytest.fixture
def curves(tmp_path: Path) -> str:
    path = tmp_path / "curves.json"
    hungry = {"cores": [1, 2, 4], "steps_per_s": [10, 20, 40], "mem_gib": 20}
    light = {"cores": [0.5, 4], "steps_per_s": [25, 25]}
    path.write_text(json.dumps({"curves": {"hungry": hungry, "light": light}}))
    return str(path)


def rig(home: Path, curves: str, allocator: str = "synergy-tune:saturate=1") -> Rig:
    return Rig(home, nodes=NODE, allocator=allocator, curves=curves)


def limits(world: Rig) -> dict[str, tuple[float | None, float | None]]:
    return {job.spec.job: (job.cpu_share, job.mem_gib) for job in world.backend.world.jobs.values()}


def test_jobs_start_with_what_the_allocator_gives(tmp_path: Path, curves: str) -> None:
    world = rig(tmp_path, curves)
    hungry, light = world.submit(name="hungry"), world.submit("sleep 20", name="light")
    world.ticks(1)
    assert limits(world)[hungry] == (4.0, 20.0)
    assert limits(world)[light] == (2.0, None)  # its share while it starts
    world.ticks(6)
    assert limits(world)[light] == (0.5, None)


def test_shares_change_while_jobs_run_and_come_back(tmp_path: Path, curves: str) -> None:
    world = rig(tmp_path, curves)
    first, second = world.submit("sleep 100", name="hungry"), world.submit("sleep 20", name="hungry")
    world.ticks(2)
    assert [limits(world)[job][0] for job in (first, second)] == [4.0, 4.0]
    third = world.submit("sleep 20", name="strange")  # without a curve: anything will do
    fourth = world.submit("sleep 20", name="hungry")
    world.ticks(8)
    got = [limits(world)[job][0] or 0.0 for job in (first, second, third, fourth)]
    assert sum(got) <= 8.0 + 1e-6
    assert min(got[0], got[1], got[3]) >= 2.0
    world.ticks(40)
    assert limits(world)[first][0] == 4.0


def test_the_runtime_is_told_its_workers(tmp_path: Path, curves: str) -> None:
    world = rig(tmp_path, curves)
    job = world.submit("sleep 100", name="hungry")
    world.ticks(2)
    reports = world.service.reports
    assert reports.told(job).workers == 4
    jobs = [job, *(world.submit("sleep 100", name="hungry") for _ in range(3))]
    world.ticks(2)
    assert reports.told(job).workers in (2, 4)
    assert sum(reports.told(one).workers or 0 for one in jobs) == 8


def test_proportional_follows_gpus(tmp_path: Path, curves: str) -> None:
    world = rig(tmp_path, curves, "proportional")
    one, two = world.submit(name="hungry"), world.submit(name="light", gpus=2)
    world.ticks(1)
    assert limits(world)[one][0] == 2.0
    assert limits(world)[two][0] == 4.0


def test_limits_are_set_again_after_a_restart(tmp_path: Path, curves: str) -> None:
    world = rig(tmp_path, curves)
    job = world.submit("sleep 100", name="hungry")
    world.ticks(2)
    world.restart()
    for running in world.backend.world.jobs.values():
        running.cpu_share = None
    world.ticks(2)
    assert limits(world)[job][0] == 4.0


def test_without_an_allocator_jobs_have_what_they_ask(tmp_path: Path) -> None:
    world = Rig(tmp_path, nodes=NODE)
    job = world.submit(name="hungry", cpus=3)
    world.ticks(1)
    assert limits(world)[job] == (3.0, None)


def test_broken_curves_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    for text, says in (
        ("{", "JSON"),
        ("{}", "curves"),
        ('{"curves": {"a": {"cores": [2, 1], "steps_per_s": [1, 2]}}}', "grow"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=says):
            rig(tmp_path, str(path))
