"""The service over a world that is far away: late launches, output in no file, gangs over nodes, calls over TCP."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import pytest
from service_kit import ADMIN, Rig
from test_service_real import ROOT, running, until

from cotenant.backends.base import NodeInfo, Unreachable
from cotenant.core.errors import InputError
from cotenant.core.jobspec import parse_job
from cotenant.service.observer.reports import Reports
from cotenant.testing.backend_kit import whole

NODES = tuple(NodeInfo(f"n{n}", "gpu", 4, 8, 64.0, address=f"10.0.0.{n + 1}") for n in range(2))


def _far(home: Path) -> Rig:
    rig = Rig(home, nodes=NODES)
    rig.backend.launch_s = 20.0
    return rig


def test_a_gang_starts_late_and_its_output_is_read(tmp_path: Path) -> None:
    """A restart in between finds it starting; each rank printed its line; nothing lies in a folder of the service."""
    rig = _far(tmp_path)
    job = rig.submit("echo rank $COTENANT_NODE_RANK of $COTENANT_NODES; sleep 10; echo over", gpus=8)
    rig.ticks(15)
    assert rig.state(job) == "starting"
    assert rig.restart().desk.job(ADMIN, job).attempts[0].started_s is None
    rig.ticks(10)
    assert rig.state(job) == "running"
    log = rig.service.desk.open_log(ADMIN, job)
    assert log is not None
    assert whole(log) == b"rank 0 of 2\nrank 1 of 2\n"
    rig.finish()
    assert (rig.state(job), len(rig.service.desk.job(ADMIN, job).attempts)) == ("succeeded", 1)
    assert whole(log).endswith(b"over\nover\n")
    assert not {"logs", "checkpoints", "jobs"} & {path.name for path in tmp_path.iterdir()}


def test_a_launch_that_never_completes_is_tried_elsewhere_and_given_up(tmp_path: Path) -> None:
    rig = _far(tmp_path)
    job = rig.submit("/no/such/program", gpus=1)
    rig.finish()
    info = rig.service.desk.job(ADMIN, job)
    assert str(info.state) == "failed"
    assert "/no/such/program" in info.reason
    assert 1 < len(info.attempts) <= 10


def test_a_job_that_is_starting_can_be_cancelled(tmp_path: Path) -> None:
    rig = _far(tmp_path)
    job = rig.submit("sleep 100", gpus=2)
    rig.ticks(5)
    rig.service.desk.cancel(ADMIN, job)
    rig.finish()
    assert (rig.state(job), rig.backend.observe()) == ("cancelled", [])


def test_a_free_port_is_found_once(tmp_path: Path) -> None:
    """Running jobs know no other; but a service whose port is gone must start nevertheless."""

    async def listen() -> str:
        reports = Reports(tmp_path, ("tcp:127.0.0.1:0", f"unix:{tmp_path / 'socket'}"))
        await reports.start()
        await reports.stop()
        return reports.addresses[0]

    first, second = asyncio.run(listen()), asyncio.run(listen())
    assert first == second != "tcp:127.0.0.1:0"
    with socket.create_server(("127.0.0.1", int(first.rpartition(":")[2]))):
        assert asyncio.run(listen()) != first


def test_real_jobs_call_home_over_tcp(tmp_path: Path) -> None:
    train = f"{sys.executable} {ROOT / 'examples' / 'pure_python.py'} --steps 100 --step-time 0.02"
    with running(tmp_path / "home", "fifo", 10.0, backend="local:listen=tcp") as service:
        assert service.reports.addresses[0].startswith("tcp:127.0.0.1:")
        asked = {"run": train, "workdir": str(tmp_path), "env": {"PYTHONPATH": str(ROOT / "src")}}
        ((job,),) = service.desk.submit(ADMIN, [parse_job(asked)])
        until(service, lambda: (report := service.reports.of(job)) is not None and (report.step or 0) > 5)
        until(service, lambda: not service.store.book.active)
        assert str(service.desk.job(ADMIN, job).state) == "succeeded"


def test_a_world_out_of_reach_ends_no_job(tmp_path: Path) -> None:
    """Nothing is decided meanwhile; a launch that nobody answered is undone or adopted, never a failure."""
    rig = _far(tmp_path)
    runs = rig.submit("sleep 1000", gpus=2)
    rig.ticks(30)
    late = rig.submit("sleep 50", gpus=2)

    def cut_at_launch(point: str, key: str) -> None:
        rig.backend.world.cut = rig.backend.world.cut or point == "launch.before"

    rig.backend.hook = cut_at_launch
    for _ in range(100):
        with pytest.raises(Unreachable):
            rig.service.tick()
        rig.backend.advance(1.0)
    assert (rig.state(runs), rig.state(late)) == ("running", "starting")
    rig.backend.hook, rig.backend.world.cut = (lambda point, key: None), False
    rig.finish()
    assert (rig.state(runs), rig.state(late), rig.attempts(runs, late)) == ("succeeded", "succeeded", [1, 2])


def test_gpus_that_the_backend_chose_are_told(tmp_path: Path) -> None:
    """The tables count them, the journal knows which they are, also after a restart."""
    rig = _far(tmp_path)
    rig.backend.exact_gpus = False
    rig.restart()
    job = rig.submit("sleep 100", gpus=1)
    rig.ticks(30)
    for _ in range(2):
        assert rig.service.desk.job(ADMIN, job).attempts[0].nodes == (("n0", (3,)),)
        rig.service.store.snapshot()
        rig.restart()
    with pytest.raises(InputError, match="does not give jobs exact GPUs"):
        rig.service.admin.set_policy(ADMIN, "sjf-bsbf")
    rig.service.admin.set_policy(ADMIN, "srtf")
