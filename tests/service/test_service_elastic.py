"""A live elastic job grows from one virtual GPU to two and shrinks back, and loses no step."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_service_real import ADMIN, ROOT, running, until

from cotenant.core.errors import InputError
from cotenant.core.jobspec import parse_job

STEPS = 80
OURS = {"PYTHONPATH": str(ROOT / "src")}


def _losses(path: Path) -> np.ndarray:
    return np.loadtxt(path, ndmin=2) if path.exists() and path.stat().st_size else np.zeros((0, 5))


@pytest.mark.slow
def test_a_live_job_grows_and_shrinks_without_losing_a_step(tmp_path: Path) -> None:
    script = [sys.executable, str(ROOT / "examples" / "elastic_train.py"), "--steps", str(STEPS)]
    subprocess.run([*script, "--losses", str(tmp_path / "plain")], check=True, capture_output=True, cwd=tmp_path)
    told = tmp_path / "told"
    run = " ".join([*script, "--step-time", "0.05", "--losses", str(told)])
    job = parse_job({"run": run, "gpus": 1, "elastic": {"min_gpus": 1, "max_gpus": 2}, "expected": 60, "env": OURS})
    with running(tmp_path / "home", "fifo", grace_s=20.0) as service:
        ((name,),) = service.desk.submit(ADMIN, [job])
        until(service, lambda: len(_losses(told)) > 5)
        service.desk.set(ADMIN, name, {"gpus": 2})
        until(service, lambda: bool((_losses(told)[:, 1] == 2).any()))
        with pytest.raises(InputError, match="takes 1 to 2 GPUs, not 3"):
            service.desk.set(ADMIN, name, {"gpus": 3})
        service.desk.set(ADMIN, name, {"gpus": 1})
        until(service, lambda: not service.store.book.active)
        info = next(iter(service.desk.history(ADMIN)))
    assert str(info.state) == "succeeded"
    plain, found = _losses(tmp_path / "plain"), _losses(told)
    assert found[:, 0].tolist() == list(range(STEPS)), "every step once, in order"
    sizes = found[:, 1].tolist()
    assert [size for at, size in enumerate(sizes) if at == 0 or size != sizes[at - 1]] == [1, 2, 1]
    np.testing.assert_allclose(found[:, 2], plain[:, 2], rtol=1e-9)
    assert len(info.attempts) == 3


@pytest.mark.slow
def test_the_learning_rate_follows_the_batch_of_a_live_job_that_keeps_it_per_gpu(tmp_path: Path) -> None:
    script = [sys.executable, str(ROOT / "examples" / "elastic_train.py"), "--steps", "60", "--keeps", "per-gpu"]
    told = tmp_path / "told"
    run = " ".join([*script, "--step-time", "0.05", "--losses", str(told)])
    job = {"run": run, "gpus": 1, "elastic": {"min_gpus": 1, "max_gpus": 4}}
    job |= {"batch": {"size": 8, "max": 24}, "env": OURS}
    with running(tmp_path / "home", "fifo", grace_s=20.0) as service:
        ((blocker,),) = service.desk.submit(ADMIN, [parse_job({"run": "sleep 1000", "gpus": 4, "preemptible": False})])
        until(service, lambda: service.store.book.active[blocker].attempts != [])
        ((name,),) = service.desk.submit(ADMIN, [parse_job(job)])
        service.desk.set(ADMIN, name, {"gpus": 2})  # before its first start: what it asked for was 1
        service.desk.cancel(ADMIN, blocker)
        until(service, lambda: len(_losses(told)) > 3)
        service.desk.set(ADMIN, name, {"gpus": 4})
        until(service, lambda: not service.store.book.active)
    found = _losses(told)
    assert found[:, 0].tolist() == list(range(60))
    seen = {(int(gpus), int(batch), round(rate / 0.05, 9)) for _, gpus, _, batch, rate in found}
    assert seen == {(2, 16, 2.0), (4, 24, 3.0)}


def test_only_elastic_jobs_change_their_size(tmp_path: Path) -> None:
    with running(tmp_path / "home", "fifo", grace_s=1.0) as service:
        ((name,),) = service.desk.submit(ADMIN, [parse_job({"run": "sleep 0.2", "gpus": 1})])
        with pytest.raises(InputError, match="is not elastic"):
            service.desk.set(ADMIN, name, {"gpus": 2})
        until(service, lambda: not service.store.book.active)


def test_a_deadline_is_answered_at_once(tmp_path: Path) -> None:
    jobs = [
        {"run": "sleep 0.3", "expected": 1, "deadline": 600},
        {"run": "sleep 0.3", "expected": 600, "deadline": 5},
        {"run": "sleep 0.3"},
    ]
    with running(tmp_path / "home", "chronus", grace_s=1.0) as service:
        ids = [group[0] for group in service.desk.submit(ADMIN, [parse_job(job) for job in jobs])]
        until(service, lambda: all(service.desk.deadline(ADMIN, job)["verdict"] != "unanswered" for job in ids))
        told = [service.desk.deadline(ADMIN, job) for job in ids]
        assert [item["verdict"] for item in told] == ["promised", "refused", "no deadline"]
        until(service, lambda: not service.store.book.active)
        assert {str(info.state) for info in service.desk.history(ADMIN)} == {"succeeded"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy",
    [
        "ones:interval=0.5",
        "ones-goodput:interval=0.5",
        "optimus:interval=0.5",
        "gandiva:watch_s=0.5,idle_s=0.5,trial_s=1",
    ],
)
def test_an_elastic_policy_grows_a_live_job_on_idle_gpus(tmp_path: Path, policy: str) -> None:
    """Alone on two GPUs a job that scales gets both by itself, and gives one back when somebody else comes."""
    steps = 150
    script = [sys.executable, str(ROOT / "examples" / "elastic_train.py"), "--steps", str(steps)]
    told = tmp_path / "told"
    run = " ".join([*script, "--step-time", "0.08", "--scales", "--losses", str(told)])
    job = parse_job({"run": run, "gpus": 1, "elastic": {"min_gpus": 1, "max_gpus": 2}, "expected": 20, "env": OURS})
    with running(tmp_path / "home", policy, grace_s=20.0, gpus=2) as service:
        ((name,),) = service.desk.submit(ADMIN, [job])
        until(service, lambda: bool((_losses(told)[:, 1] == 2).any()))
        ((other,),) = service.desk.submit(ADMIN, [parse_job({"run": "sleep 0.5", "gpus": 1})])
        until(service, lambda: str(service.desk.job(ADMIN, other).state) == "succeeded")
        until(service, lambda: not service.store.book.active)
        info = next(info for info in service.desk.history(ADMIN) if info.id == name)
    assert str(info.state) == "succeeded"
    assert _losses(told)[:, 0].tolist() == list(range(steps)), "every step once, in order"
    sizes = _losses(told)[:, 1].tolist()
    assert 1 in sizes[sizes.index(2) :], "it made room"
