"""Real processes that share one virtual GPU, and hear from the service while they run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from test_service_real import ADMIN, running, until

from cotenant.core.jobspec import parse_job
from cotenant.runtime.protocol import Settings
from cotenant.service.observer.report import Report
from cotenant.testing.backend_kit import whole

# A whole step holds the one lock that stands for the GPU: beside another such job it takes twice as long, however busy
# the machine is. Who waits for it holds the lock of the line, so that the two alternate.
TRAIN = """
import fcntl, sys, time
from cotenant import runtime

with runtime.job(batch_size=8) as job, open(sys.argv[1], "a") as gpu, open(sys.argv[1] + ".line", "a") as line:
    for step in job.steps(int(sys.argv[2])):
        size = job.batch_size, job.accumulation
        fcntl.flock(line, fcntl.LOCK_EX)
        fcntl.flock(gpu, fcntl.LOCK_EX)
        fcntl.flock(line, fcntl.LOCK_UN)
        time.sleep(0.01)
        torn = float(size != (job.batch_size, job.accumulation))
        job.report(size=size[0], accumulation=size[1], pace=job.throttle_s, torn=torn)
        fcntl.flock(gpu, fcntl.LOCK_UN)
"""


def train(home: Path, steps: int, **more: object) -> dict[str, object]:
    script = home / "train.py"
    script.write_text(TRAIN, encoding="utf-8")
    return {"run": f"{sys.executable} {script} {home / 'gpu'} {steps}", "workdir": str(home), "model": "bert", **more}


def metric(report: Report | None, name: str) -> float | None:
    return report.metrics.get(name) if report is not None else None


@pytest.mark.slow
def test_a_real_pair_is_split_when_it_does_not_pay(tmp_path: Path) -> None:
    with running(tmp_path / "home", "gandiva-packing", 20.0, gpus=1, round_s=1.0, profile="h200") as service:
        ((host,),) = service.desk.submit(ADMIN, [parse_job(train(tmp_path, 10**6))])
        until(service, lambda: "alone" in service.store.book.memory.get("pairs", {}))
        ((guest,),) = service.desk.submit(ADMIN, [parse_job(train(tmp_path, 10**6))])
        until(service, lambda: service.admin.nodes(ADMIN)[0].gpus_shared == 1)
        until(service, lambda: "vetoes" in service.store.book.memory["pairs"])
        until(service, lambda: service.admin.nodes(ADMIN)[0].gpus_shared == 0)
        kinds = [event.kind for event in service.desk.events(ADMIN, guest)]
        assert kinds.index("started") < kinds.index("split")
        for job in (host, guest):
            service.desk.cancel(ADMIN, job)
        until(service, lambda: not service.store.book.active)


def test_two_real_jobs_on_one_gpu_end_rightly(tmp_path: Path) -> None:
    with running(tmp_path / "home", "gandiva-packing", 20.0, gpus=1, round_s=80000.0, profile="h200") as service:
        specs = [parse_job(train(tmp_path, steps, gpu_mem=30)) for steps in (60, 120)]
        specs.append(parse_job({"run": "echo $COTENANT_GPU_MEM_GIB; exit 3", "model": "bert", "gpu_mem": 60}))
        ids = [job for (job,) in service.desk.submit(ADMIN, specs[:2])]
        until(service, lambda: service.admin.nodes(ADMIN)[0].gpus_shared == 1)
        ids += [job for (job,) in service.desk.submit(ADMIN, specs[2:])]
        until(service, lambda: not service.store.book.active)
        ends = [service.desk.job(ADMIN, job) for job in ids]
        assert [str(end.state) for end in ends] == ["succeeded", "succeeded", "failed"]
        assert [len(end.attempts) for end in ends] == [1, 1, 1]
        began = ends[2].started_s or 0.0
        assert all(began >= (end.ended_s or 0.0) - 1.0 for end in ends[:2]), "60 GiB do not fit beside 30"
        log = service.desk.open_log(ADMIN, ids[2])
        assert log is not None
        assert whole(log).decode() == "60\n"


@pytest.mark.parametrize("how", ["running", "reconnected"])
def test_pace_and_batch_arrive_at_step_boundaries(tmp_path: Path, how: str) -> None:
    with running(tmp_path / "home", "fifo", 20.0) as service:
        ((job,),) = service.desk.submit(ADMIN, [parse_job(train(tmp_path, 10**6))])
        if how == "running":
            until(service, lambda: metric(service.reports.of(job), "size") == 8)
        service.reports.set_for(job, Settings(batch_size=4, accumulation=2))
        service.reports.set_for(job, Settings(throttle_s=0.02))
        until(service, lambda: metric(service.reports.of(job), "pace") == 0.02)
        report = service.reports.of(job)
        assert [metric(report, name) for name in ("size", "accumulation", "torn")] == [4, 2, 0]
        service.reports.set_for(job, Settings(throttle_s=0.0))
        until(service, lambda: metric(service.reports.of(job), "pace") == 0.0)
        assert metric(service.reports.of(job), "size") == 4, "what is not named stays as told"
        service.desk.cancel(ADMIN, job)
        until(service, lambda: not service.store.book.active)
