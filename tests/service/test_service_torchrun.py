"""A job of several processes under torchrun grows from one virtual GPU to two and back, and loses no step."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_service_real import ADMIN, ROOT, running, until

from cotenant.core.jobspec import parse_job

STEPS = 120
SCRIPT = ROOT / "examples" / "torchrun_train.py"
TORCHRUN = f"{sys.executable} -m torch.distributed.run --standalone"  # what `torchrun` is

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]


def _losses(path: Path) -> np.ndarray:
    return np.loadtxt(path, ndmin=2) if path.exists() and path.stat().st_size else np.zeros((0, 3))


def test_a_torchrun_job_grows_and_shrinks_without_losing_a_step(tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    plain = f"{TORCHRUN} --nproc-per-node 1 {SCRIPT} --steps {STEPS} --losses {tmp_path / 'plain'}"
    subprocess.run(plain.split(), check=True, capture_output=True, env=env, cwd=tmp_path)
    told = tmp_path / "told"
    run = f"{TORCHRUN} --nproc-per-node $COTENANT_GPUS {SCRIPT} --steps {STEPS} --step-time 0.05 --losses {told}"
    job = parse_job({"run": run, "gpus": 1, "elastic": {"min_gpus": 1, "max_gpus": 2}, "expected": 60, "env": env})
    with running(tmp_path / "home", "fifo", grace_s=30.0) as service:
        ((name,),) = service.desk.submit(ADMIN, [job])
        until(service, lambda: len(_losses(told)) > 5)
        service.desk.set(ADMIN, name, {"gpus": 2})
        until(service, lambda: bool((_losses(told)[:, 1] == 2).any()))
        service.desk.set(ADMIN, name, {"gpus": 1})
        until(service, lambda: not service.store.book.active)
        info = next(iter(service.desk.history(ADMIN)))
    assert str(info.state) == "succeeded"
    plain_losses, found = _losses(tmp_path / "plain"), _losses(told)
    assert found[:, 0].tolist() == list(range(STEPS)), "every step once, in order"
    ranks = found[:, 1].tolist()
    assert [count for at, count in enumerate(ranks) if at == 0 or count != ranks[at - 1]] == [1, 2, 1]
    np.testing.assert_allclose(found[:, 2], plain_losses[:, 2], rtol=1e-9)
    stops = [(attempt.why, attempt.lost_s) for attempt in info.attempts[:-1]]
    assert stops == [("asked to change its size, work saved", 0.0)] * 2
