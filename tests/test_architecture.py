"""docs/architecture.md tells the way of a job: these tests go it and compare."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn

from cotenant.api import make_app
from cotenant.cli.main import main
from cotenant.service.core import CoreService
from cotenant.service.options import Options
from cotenant.service.run import Loop, Site, first_token, open_service
from way_kit import Milestone, Tracer, written

APPLY = "cotenant.service.store.book.Book.apply"
SIMULATED = (
    Milestone("cotenant.workload.readers.own.OwnLog.parse"),
    Milestone("cotenant.engine.tables.lay_tables"),
    Milestone("cotenant.engine.ledger.enqueue"),
    Milestone("cotenant.placement.fit.find_place"),
    Milestone("cotenant.engine.ledger.start"),
    Milestone("cotenant.engine.events.handle"),
    Milestone("cotenant.sim.driver.Simulation.outcome"),
    Milestone("cotenant.report.table.print_summary"),
)
TO_THE_PROCESS = (
    Milestone("cotenant.client.client.Client._send"),
    Milestone("cotenant.api.jobs.submit"),
    Milestone(APPLY, "submit"),
    Milestone("cotenant.engine.live_rows.LiveRows.enter"),
    Milestone("cotenant.engine.cycle.Engine.step"),
    Milestone(APPLY, "launch"),
    Milestone("cotenant.backends.local.orders.spawn"),
)
INSIDE = (
    Milestone("cotenant.engine.events.begin_step"),
    Milestone("cotenant.engine.ledger.enqueue"),
    Milestone("cotenant.placement.fit.find_place"),
    Milestone("cotenant.engine.ledger.start"),
    Milestone("cotenant.engine.observe.places_of"),
)
BACK = (
    Milestone("cotenant.backends.local.watcher.Watcher.wait"),
    Milestone("cotenant.backends.local.records.KeeperRecord.exit"),
    Milestone(APPLY, "exit"),
    Milestone("cotenant.engine.events.ran_out"),
)


def cotenant(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["cotenant", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def test_the_way_of_a_simulated_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log.csv"
    log.write_text("job_id,submit_s,num_gpus,duration_s\na,0,1,10\n", encoding="utf-8")
    tracer = Tracer(SIMULATED)
    with tracer.at_work():
        assert cotenant(monkeypatch, "simulate", str(log), "--cluster", "1x1", "--policy", "srtf") == 0
    found = tracer.way(SIMULATED, "cli.simulate.simulate")
    assert found == written("The way of a simulated job")


@contextmanager
def served(home: Path) -> Iterator[CoreService]:
    """A service as `cotenant serve` makes it, whose scheduler does not run yet; jobs are real processes."""
    service = open_service(Options(home=home, policy="srtf"), Site(gpus=1))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(make_app(service), log_level="warning", lifespan="off"))
        web = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        web.start()
        first_token(service, home)
        (home / "url").write_text(f"http://127.0.0.1:{listener.getsockname()[1]}\n", encoding="utf-8")
        try:
            yield service
        finally:
            server.should_exit = True
            web.join()
            service.close()


def test_the_way_of_a_live_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTENANT_HOME", str(tmp_path / "home"))
    for name in ("COTENANT_URL", "COTENANT_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    tracer = Tracer((*TO_THE_PROCESS, *INSIDE, *BACK))
    with tracer.at_work(), served(tmp_path / "home") as service:
        assert cotenant(monkeypatch, "submit", "--gpus", "1", "--", "true") == 0
        loop = Loop(service)
        loop.start()
        until_s = time.monotonic() + 15.0
        while service.store.book.active and time.monotonic() < until_s:
            time.sleep(0.02)
        loop.stop()
        assert [str(job.state) for job in service.store.view().jobs.values()] == ["succeeded"]

    there = tracer.way(TO_THE_PROCESS, "cli.submit.submit")
    assert there == written("The way of a live job")
    assert len(there) <= 20
    assert tracer.way(INSIDE, "engine.cycle.Engine.step") == written("Inside one step of the engine")
    back = tracer.way(BACK)
    assert back == written("The way back")
    assert len(back) <= 20
