"""The fault table's own rows, and a service over a real PostgreSQL that is stopped."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.fault_table import LeftOut, try_one

from cotenant.core.jobspec import parse_job
from cotenant.service.facade import Caller, Role, Unavailable
from cotenant.service.options import Options
from cotenant.service.run import Site, open_service
from cotenant.testing.live import running

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "journal"))

from journal_postgres import PostgresServer, find_binaries

ADMIN = Caller("root", Role.ADMIN)


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "it did not come true in time"
        time.sleep(0.05)


@pytest.mark.slow
def test_postgresql_stopped_for_five_seconds(tmp_path: Path) -> None:
    """Nothing is restarted: what ended meanwhile is noted, what waited starts, and all is told as it is."""
    with PostgresServer(find_binaries()) as server:
        site = Site(db=server.new_schema(), gpus=2)
        with running(open_service(Options(tmp_path / "home", 2.0), site)) as service:
            go = tmp_path / "go"
            script = f"echo began >> {tmp_path}/diary; while [ ! -e {go} ]; do sleep 0.05; done"
            ((job,),) = service.desk.submit(ADMIN, [parse_job({"run": script, "gpus": 2})])
            ((after,),) = service.desk.submit(ADMIN, [parse_job({"run": "true", "gpus": 2})])
            until(lambda: str(service.desk.job(ADMIN, job).state) == "running")
            server.stop()
            stopped = time.monotonic()
            until(lambda: "does not answer" in service.admin.trouble())
            with pytest.raises(Unavailable, match="nothing was accepted"):
                service.desk.submit(ADMIN, [parse_job({"run": "true"})])
            go.touch()
            until(lambda: time.monotonic() - stopped > 5.0)
            server.start()
            until(lambda: service.admin.trouble() == "")
            until(lambda: str(service.desk.job(ADMIN, after).state) == "succeeded")
            assert str(service.desk.job(ADMIN, job).state) == "succeeded"
            assert len(service.desk.jobs(ADMIN)) == 2
    assert (tmp_path / "diary").read_text() == "began\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    ["journal swapped", "journal truncated", "journal: garbage in a record", "disk full", "clock +1 day while stopped"],
)
def test_faults_of_the_table_harm_nobody(fault: str) -> None:
    try:
        row = try_one(fault)
    except LeftOut as why:
        pytest.skip(str(why))
    assert (row.lost, row.doubled, row.killed) == (0, 0, 0), row
    assert row.seen
