"""Real processes on four virtual GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cotenant.core.errors import InputError
from cotenant.core.jobspec import parse_job
from cotenant.service.core import CoreService
from cotenant.service.facade import Caller, Role
from cotenant.service.options import Options
from cotenant.service.run import Site, open_service
from cotenant.testing.backend_kit import whole
from cotenant.testing.live import running as live

ADMIN = Caller("root", Role.ADMIN)
ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120.0


@contextmanager
def running(
    home: Path, policy: str, grace_s: float, gpus: int = 4, backend: str = "local", **more: Any
) -> Iterator[CoreService]:
    """A service as `cotenant serve` runs it, less the web server."""
    with live(open_service(Options(home, grace_s, policy=policy, **more), Site(backend=backend, gpus=gpus))) as service:
        yield service


def until(service: CoreService, done: Callable[[], bool]) -> None:
    """Wait, event by event."""
    deadline, seq = time.monotonic() + PATIENCE_S, service.store.book.seq
    while not done():
        assert time.monotonic() < deadline, [(job.id, str(job.state)) for job in service.store.book.active.values()]
        seq = service.desk.wait_events(seq, 0.25)


# Not preemptible: a job that ends by itself while it is asked to stop counts as preempted, not as failed.
RETRIED = {"run": "echo try >> tries; exit 4", "retries": 1, "name": "retried", "preemptible": False}


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fifo", "srtf", "tiresias-l"])
def test_forty_real_jobs_reach_the_right_states(tmp_path: Path, policy: str) -> None:
    jobs = [{"run": f"echo on $CUDA_VISIBLE_DEVICES; sleep 0.{1 + k % 3}", "gpus": 1 + k % 4} for k in range(24)]
    jobs += [{"run": "echo $COTENANT_ARRAY_INDEX", "array": "0-5"}]
    jobs += [{"run": "sleep 0.1", "name": "first"}, {"run": "true", "name": "second", "after": ["first"]}]
    jobs += [{"run": "true", "name": "third", "after": ["second"]}]
    jobs += [{"run": "exit 3", "name": "fails"}, RETRIED]
    jobs += [{"run": "sleep 1000", "max_runtime": 1, "name": "hangs"}]
    deaf = "trap '' TERM INT; while true; do sleep 0.1; done"
    jobs += [{"run": deaf, "max_runtime": 1, "name": "deaf"}]
    jobs += [{"run": "sleep 1000", "name": "cancelled", "preemptible": False}]
    jobs += [{"run": "true", "name": "orphan", "after": ["fails"]}, {"run": "true"}]
    with running(tmp_path / "home", policy, grace_s=1.0) as service:
        (tmp_path / "work").mkdir()
        specs = [parse_job({"expected": 1, "workdir": str(tmp_path / "work"), **job}) for job in jobs]
        ids = [job for group in service.desk.submit(ADMIN, specs) for job in group]
        assert len(ids) == 40
        by_name = {info.name: info.id for info in service.desk.jobs(ADMIN)}
        until(service, lambda: service.store.book.jobs[by_name["cancelled"]].state == "running")
        service.desk.cancel(ADMIN, by_name["cancelled"])
        until(service, lambda: not service.store.book.active)
        ends = {info.name: info for info in service.desk.history(ADMIN) if info.name != "job"}
        assert {name: str(info.state) for name, info in ends.items()} == {
            "first": "succeeded", "second": "succeeded", "third": "succeeded", "fails": "failed", "retried": "failed",
            "hangs": "failed", "deaf": "failed", "cancelled": "cancelled", "orphan": "cancelled",
        }  # fmt: skip
        assert {str(info.state) for info in service.desk.history(ADMIN) if info.name == "job"} == {"succeeded"}
        assert ends["deaf"].attempts[-1].signal == 9
        assert [a.exit_code for a in ends["retried"].attempts if a.exit_code is not None] == [4, 4]
        assert (tmp_path / "work" / "tries").read_text() == "try\n" * 2
        for k, job in enumerate(ids[:24]):
            log = service.desk.open_log(ADMIN, job)
            assert log is not None, "logs are kept after the end"
            assert len(whole(log).decode().removeprefix("on ").split(",")) == 1 + k % 4
        until(service, lambda: service.backend.observe() == [])
        assert service.admin.nodes(ADMIN)[0].gpus_used == 0


@pytest.mark.parametrize("script", ["numpy_train.py", "pure_python.py"])
def test_a_preempted_job_goes_on_from_its_checkpoint(tmp_path: Path, script: str) -> None:
    command = [sys.executable, str(ROOT / "examples" / script), "--steps", "60"]
    alike = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}  # jobs have none
    plain = subprocess.run(
        [*command, "--step-time", "0"], check=True, capture_output=True, text=True, cwd=tmp_path, env=alike
    ).stdout  # fmt: skip
    with running(tmp_path / "home", "srtf:weigh=false", grace_s=20.0, max_suspended=0) as service:
        train = " ".join([*command, "--step-time", "0.03"])
        ((long,),) = service.desk.submit(ADMIN, [parse_job({"run": train, "gpus": 4, "expected": 60})])
        until(service, lambda: (report := service.reports.of(long)) is not None and (report.step or 0) > 5)
        ((short,),) = service.desk.submit(ADMIN, [parse_job({"run": "sleep 0.2", "gpus": 4, "expected": 0.2})])
        until(service, lambda: not service.store.book.active)
        info = service.desk.job(ADMIN, long)
        assert str(info.state) == "succeeded"
        first, last = info.attempts
        assert (first.exit_code, first.why, first.lost_s) == (75, "preempted, work saved", 0.0)
        assert (first.ended_s or 0) <= (service.desk.job(ADMIN, short).started_s or 0) < (last.started_s or 0)
        log = service.desk.open_log(ADMIN, long)
        assert log is not None
        assert json.loads(whole(log).decode()) == json.loads(plain)
        cost = service.store.book.costs.of("ask")
        assert (cost.taken, cost.resumed, cost.lost_s) == (1, 1, 0.0)


COUNT = "for ((i = 0; i < 30; i++)); do echo $i; sleep 0.05; done"


def test_a_job_that_knows_nothing_of_us_is_suspended_and_goes_on(tmp_path: Path) -> None:
    with running(tmp_path / "home", "srtf:weigh=false", grace_s=20.0) as service:
        ((long,),) = service.desk.submit(ADMIN, [parse_job({"run": COUNT, "gpus": 4, "expected": 60})])
        until(service, lambda: service.store.book.jobs[long].state == "running")
        gate = tmp_path / "gate"
        os.mkfifo(gate)
        short = parse_job({"run": f"read word < {gate}", "gpus": 4, "expected": 1, "preemptible": False})
        ((guest,),) = service.desk.submit(ADMIN, [short])
        until(service, lambda: service.store.book.jobs[guest].state == "running")
        assert service.store.book.jobs[long].state == "suspended"
        seen = {item.key: item.state for item in service.backend.observe()}
        assert (seen[f"{long}-1"], service.admin.nodes(ADMIN)[0].jobs) == ("suspended", (guest,))
        gate.write_text("go on\n")
        until(service, lambda: not service.store.book.active)
        info = service.desk.job(ADMIN, long)
        (attempt,) = info.attempts
        assert (str(info.state), attempt.exit_code, attempt.lost_s) == ("succeeded", 0, 0.0)
        log = service.desk.open_log(ADMIN, long)
        assert log is not None
        assert whole(log).decode().split() == [str(i) for i in range(30)]
        cost = service.store.book.costs.of("suspend")
        assert (cost.taken, cost.resumed, cost.lost_s) == (1, 1, 0.0)


def test_impossible_jobs_keep_nobody_waiting_in_a_real_service(tmp_path: Path) -> None:
    """Refused at submission; set aside after a restart with fewer GPUs; back after one with as many as before."""
    home = tmp_path / "home"
    with running(home, "fifo", grace_s=1.0, gpus=2) as service:
        for field, ask in (("cpus", {"cpus": 1e6}), ("mem", {"mem": "900000G"}), ("gpus", {"gpus": 3})):
            with pytest.raises(InputError, match=f"field '{field}' is .* at most|largest"):
                service.desk.submit(ADMIN, [parse_job({"run": "true", **ask})])
        service.admin.drain(ADMIN, "local")
        ((wide,),) = service.desk.submit(ADMIN, [parse_job({"run": "true", "gpus": 2, "workdir": str(tmp_path)})])
    with running(home, "fifo", grace_s=1.0, gpus=1) as service:
        service.admin.drain(ADMIN, "local", undo=True)
        ((small,),) = service.desk.submit(ADMIN, [parse_job({"run": "true", "workdir": str(tmp_path)})])
        until(service, lambda: service.store.book.jobs[small].finished)
        assert str(service.desk.job(ADMIN, small).state) == "succeeded"
        assert "set aside" in service.desk.job(ADMIN, wide).reason
    with running(home, "fifo", grace_s=1.0, gpus=2) as service:
        until(service, lambda: service.store.book.jobs[wide].finished)
        assert str(service.desk.job(ADMIN, wide).state) == "succeeded"
