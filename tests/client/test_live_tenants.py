"""Tenants of a real service: real processes on eight virtual GPUs, its own process killed, people with their tokens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from cotenant.client import Client
from cotenant.client.errors import Denied, Unreachable
from cotenant.service.facade import NotFound

ROOT = Path(__file__).resolve().parents[2]
GRACE_S, MIN_RUN_S, PATIENCE_S = 20.0, 1.0, 120.0
STEPS = 400
CLUSTER = f"""
groups: [{{nodes: 1, gpus: 8, labels: {{rack: a3}}}}]
fair_share: {{min_run: {MIN_RUN_S}}}
tenants:
  vision: {{guaranteed: 4, admins: [vic]}}
  nlp: {{guaranteed: 2}}
  product: {{guaranteed: 2, admins: [pia]}}
"""
TRAIN = f"{sys.executable} {ROOT / 'examples' / 'pure_python.py'} --steps {STEPS}"


def until(done: Callable[[], bool], patience_s: float = PATIENCE_S) -> float:
    """Poll; seconds that it took."""
    began = time.monotonic()
    while not done():
        assert time.monotonic() - began < patience_s
        time.sleep(0.05)
    return time.monotonic() - began


@contextmanager
def served(home: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """`cotenant serve`, killed at the end."""
    command = [
        sys.executable,
        "-m",
        "cotenant.cli.main",
        "serve",
        "--gpus",
        "8",
        "--port",
        "0",
        "--grace",
        str(GRACE_S),
    ]
    (home / "url").unlink(missing_ok=True)
    log = (home.parent / "serve.log").open("ab")
    process = subprocess.Popen(
        [*command, "--max-suspended", "0", *more], env={**os.environ, "COTENANT_HOME": str(home)}, stderr=log
    )
    try:
        until(lambda: process.poll() is not None or _answers(home))
        assert process.poll() is None, (home.parent / "serve.log").read_text()
        yield process
    finally:
        process.kill()
        process.wait()


def _answers(home: Path) -> bool:
    try:
        with Client((home / "url").read_text().strip(), (home / "token").read_text().strip()) as client:
            return bool(client.nodes())
    except (OSError, Unreachable):
        return False


@pytest.mark.slow
def test_borrowed_gpus_return_and_quotas_survive_a_kill(tmp_path: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "cluster.yaml"
    home.mkdir(mode=0o700)
    file.write_text(CLUSTER)
    plain = subprocess.run(f"{TRAIN} --step-time 0", shell=True, check=True, capture_output=True, cwd=tmp_path).stdout
    with ExitStack() as stack:
        first = stack.enter_context(served(home, "--cluster", str(file)))
        secret = (home / "token").read_text().strip()

        def client(token: str = secret) -> Client:
            return stack.enter_context(Client((home / "url").read_text().strip(), token))

        admin = client()
        tokens = {
            name: admin.create_token(name, "user", tenant)[1]
            for name, tenant in (("vic", "vision"), ("ned", "nlp"), ("pia", "product"))
        }
        vic, ned, pia = (client(tokens[name]) for name in ("vic", "ned", "pia"))
        assert admin.nodes()[0].labels == {"rack": "a3"}

        def held(tenant: str) -> int:
            return next(row["gpus_held"] for row in client_now.tenants()["tenants"] if row["name"] == tenant)

        client_now = admin
        jobs = [pia.submit([{"run": f"{TRAIN} --step-time 0.1", "gpus": 2}])[0][0] for _ in range(4)]
        until(lambda: all((pia.job(job).step or 0) > 3 for job in jobs))
        assert held("product") == 8
        # its owner asks: within the grace period they are back
        ((mine,),) = vic.submit([{"run": "sleep 4", "gpus": 4}])
        took_s = until(lambda: vic.job(mine).state == "running")
        assert took_s < MIN_RUN_S + GRACE_S
        assert (held("vision"), held("product")) == (4, 4)
        # nobody touches another's
        for refused in (lambda: vic.cancel(jobs[0]), lambda: vic.hold(jobs[0]), lambda: pia.cancel(mine)):
            with pytest.raises(NotFound):
                refused()
        for client_, name in ((vic, "product"), (pia, "vision"), (vic, "vision")):
            with pytest.raises(Denied):
                client_.set_tenant(name, {"guaranteed": 8})
        until(lambda: vic.job(mine).state == "succeeded")
        until(lambda: held("product") == 8)
        # another quota holds at once, and after a kill
        ((wide,),) = ned.submit([{"run": "sleep 4", "gpus": 4}])
        assert ned.why(wide)["cause"] != "running"
        admin.set_tenant("vision", {"guaranteed": 2})
        admin.set_tenant("nlp", {"guaranteed": 4, "limits": {"gpus": 6}})
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        stack.enter_context(served(home))
        client_now = admin = client()
        pia, ned = client(tokens["pia"]), client(tokens["ned"])
        rows = {row["name"]: row for row in admin.tenants()["tenants"]}
        assert [rows[name]["guaranteed"] for name in ("vision", "nlp", "product")] == [2, 4, 2]
        assert (rows["nlp"]["limits"]["gpus"], admin.nodes()[0].labels) == (6, {"rack": "a3"})
        assert until(lambda: ned.job(wide).state in ("running", "succeeded")) < MIN_RUN_S + GRACE_S
        assert {job.state for job in pia.wait(jobs, PATIENCE_S)} == {"succeeded"}
        for job in jobs:
            info = pia.job(job)
            assert sum(attempt.lost_s for attempt in info.attempts) == 0.0
            assert {attempt.why for attempt in info.attempts[:-1]} <= {"preempted, work saved"}
            assert json.loads("".join(pia.logs(job))) == json.loads(plain)
        assert sum(len(pia.job(job).attempts) for job in jobs) > len(jobs)
        audit = [row for row in admin.audit() if row["path"] == "/v1/tenants/nlp"]
        assert [(row["who"], row["note"]) for row in audit] == [
            ("admin", "nlp: guaranteed 2 -> 4, limits (default) -> {'gpus': 6}")
        ]
