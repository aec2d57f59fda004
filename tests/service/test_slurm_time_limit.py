"""A real allocation that comes to its end: its jobs leave in time and go on elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cotenant.core.jobspec import parse_job
from cotenant.service.facade import Caller, Role
from cotenant.service.options import Options
from cotenant.service.run import Site, open_service
from cotenant.testing.live import running
from cotenant.testing.slurm_cluster import missing, slurm_cluster

ADMIN = Caller("root", Role.ADMIN)
PATIENCE_S = 90.0
MARGIN_S, LEFT_S = 20, 25


@pytest.mark.slow
def test_a_job_moves_before_its_allocation_ends(tmp_path: Path) -> None:
    """Slurm ends the pilot in 25 s, a node is left 20 s before that: the job saves, and goes on on the other node."""
    if why := missing():
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    backend = f"slurm:mode=pilot,least=2,poll=0.5,listen=tcp:127.0.0.1:0,margin={MARGIN_S}"
    script = "trap 'exit 75' TERM; echo $COTENANT_KEY >> seen; while [ ! -e go ]; do sleep 0.1; done"
    with slurm_cluster(tmp_path / "slurm", 2) as cluster:
        service = open_service(Options(tmp_path / "home", 5.0, policy="fifo"), Site(backend=backend))
        with running(service):

            def until(happens: Callable[[], object]) -> None:
                give_up_s, seq = time.monotonic() + PATIENCE_S, service.store.book.seq
                while not happens():
                    assert time.monotonic() < give_up_s, service.desk.job(ADMIN, job)
                    seq = service.desk.wait_events(seq, 0.25)

            job = ""
            until(lambda: sum(node.state == "up" for node in service.observer.nodes) == 2)
            ((job,),) = service.desk.submit(ADMIN, [parse_job({"run": script, "gpus": 4, "workdir": str(tmp_path)})])
            until(lambda: (tmp_path / "seen").exists())
            first = service.desk.job(ADMIN, job).attempts[0].nodes[0][0]
            (pilot,) = cluster.run("squeue", "-h", "-o", "%A", "-w", first).split()
            cluster.run("scontrol", "update", f"jobid={pilot}", f"endtime=now+{LEFT_S}seconds")
            until(lambda: len((tmp_path / "seen").read_text().split()) == 2)
            info = service.desk.job(ADMIN, job)
            assert info.attempts[1].nodes[0][0] != first
            assert "lost" not in info.attempts[0].why
            (tmp_path / "go").touch()
            until(lambda: str(service.desk.job(ADMIN, job).state) == "succeeded")
