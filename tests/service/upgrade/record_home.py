"""Write down what a service of an older commit leaves behind when it is killed: `record_home.py FOLDER`.

It runs with the sources of that commit (of the one whose homes must stay readable, 7050bf1), not with those beside it:

    git archive 7050bf1 src | tar -x -C /tmp/old
    PYTHONPATH=/tmp/old/src python tests/service/upgrade/record_home.py tests/service/upgrade/home_7050bf1

The service serves jobs on a fake world in virtual time and is killed (-9) between the record of a launch and the launch
itself. Three small files of text are left: `journal.sql`, `world.json` (what runs and stands still at that moment) and
`answers.json` (what the service said of its jobs just before).
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import sqlite3
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cotenant.backends.base import NodeInfo
from cotenant.backends.fake import FakeBackend
from cotenant.core.jobspec import parse_job
from cotenant.journal import open_journal
from cotenant.service.desk import CoreService  # type: ignore[attr-defined]  # where it was then
from cotenant.service.facade import Caller, Role

ADMIN = Caller("root", Role.ADMIN)
EPOCH_S = 1_000_000.0
NODES = (NodeInfo("n0", "gpu", 4, 8, 64.0), NodeInfo("n1", "gpu", 2, 8, 64.0))
KEY, ASKED = "twice", "the same"  # a submission that may be repeated


class Old:
    """The old service over a fake world."""

    def __init__(self, home: Path) -> None:
        self.home, self.kills_at, self.out = home, "", Path()
        self.backend = FakeBackend(NODES, hook=self.slow)
        self.backend.world.now_s = EPOCH_S
        clock = lambda: self.backend.now_s  # noqa: E731
        journal = open_journal(str(home / "journal.db"), clock)
        self.service = CoreService(
            journal, self.backend, home=home, policy="srtf", grace_s=5.0, clock=clock, hook=self.hook
        )
        self.service.reconcile()

    def hook(self, point: str) -> None:
        """Die here, if this is the place."""
        if point == self.kills_at:
            write_down(self, self.out)
            os.kill(os.getpid(), signal.SIGKILL)

    def slow(self, point: str, key: str) -> None:
        """Suspending takes a while."""
        if point == "suspend.after":
            self.backend.advance(0.5)

    def submit(self, run: str, key: str = "", **fields: Any) -> str:
        """One job; its id."""
        ((job, *_),) = self.service.submit(ADMIN, [parse_job({"run": run, **fields})], key, ASKED if key else "")
        return str(job)

    def ticks(self, seconds: int) -> None:
        """Let time pass."""
        self.service.tick()
        for _ in range(seconds):
            self.backend.advance(1.0)
            self.service.tick()


def live(old: Old, out: Path) -> None:
    """Jobs in every state; the service does not outlive this."""
    old.out = out
    for name, tenant in (("alice", "a"), ("mallory", "m")):
        secrets.token_urlsafe = lambda size, name=name: f"of-{name}-in-tests"  # type: ignore[assignment,misc]
        secrets.token_hex = lambda size, name=name: f"id-{name}"  # type: ignore[assignment,misc]
        old.service.create_token(ADMIN, name, Role.USER, tenant)
    old.service.revoke_token(ADMIN, "id-mallory")
    old.submit("sleep 2", name="done", gpus=2)
    old.submit("exit 3", name="fails")
    cancelled = old.submit("sleep 50", name="cancelled", gpus=4, expected=40)
    old.submit("sleep 90", name="away", gpus=2, preemptible=False, expected=90)  # will sit on n1
    old.ticks(4)
    old.service.cancel(ADMIN, cancelled)
    old.ticks(3)
    old.service.drain(ADMIN, "n1")
    old.submit("sleep 60", name="measured", gpus=4, expected=70)
    old.ticks(3)
    old.submit("sleep 3", name="quick", gpus=4, expected=3)
    old.ticks(8)  # `measured` was suspended and goes on: what that costs is known
    old.service.snapshot()
    old.submit("sleep 40", KEY, name="again", gpus=2, expected=30)
    old.submit("sleep 50", name="stays", expected=45)
    old.ticks(2)
    held = old.submit("sleep 5", name="held", expected=5, gpus=3)
    old.service.hold(ADMIN, held)
    old.submit("sleep 10", name="row", array="0-2", gpus=4, expected=100)
    first = old.submit("sleep 10", name="first", expected=200, gpus=4, priority=-1)
    old.submit("sleep 5", name="second", after=[first], expected=1)
    old.service.set(ADMIN, first, {"priority": 0})
    old.ticks(2)
    old.kills_at = "before:launched"
    old.submit("sleep 6", name="unborn", expected=6)
    old.ticks(9)
    raise SystemExit("it was not killed")


def write_down(old: Old, out: Path) -> None:
    """What is left behind, as text."""
    out.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(old.home / "journal.db") as database:
        (out / "journal.sql").write_text("".join(f"{line}\n" for line in database.iterdump()))
    jobs = old.backend.world.jobs.items()
    _write(out / "world.json", {
        "now_s": old.backend.now_s, "nodes": [asdict(node) for node in NODES],
        "jobs": [{
            "key": key, "job": job.spec.job, "script": job.spec.script, "gpus": job.spec.gpus, "state": job.state,
            "started_s": job.started_s,
            "left_s": job.left_s - (old.backend.now_s - job.since_s if job.state == "running" else 0.0),
        } for key, job in jobs],
    })  # fmt: skip
    _write(out / "answers.json", {
        "jobs": [old.service.job(ADMIN, info.id).as_dict() for info in old.service.jobs(ADMIN)],
        "costs": old.service.book.costs.rows(), "policy": old.service.policy(), "seq": old.service.book.seq,
    })  # fmt: skip


def _write(path: Path, data: dict[str, Any]) -> None:
    """JSON with a line per job."""
    jobs = ",\n  ".join(json.dumps(job) for job in data.pop("jobs"))
    path.write_text(f'{json.dumps(data)[:-1]}, "jobs": [\n  {jobs}\n]}}\n')


if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp())
    if os.fork() == 0:
        live(Old(folder), Path(sys.argv[1]))
    os.wait()
    shutil.rmtree(folder)
