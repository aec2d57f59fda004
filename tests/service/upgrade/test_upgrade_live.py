"""Commit 7050bf1 serves real jobs and is killed; the service of today opens its home and finishes all of them, once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.backends.local import LocalBackend
from cotenant.core.jobspec import parse_job
from cotenant.service.facade import Caller, Role
from cotenant.service.options import Options
from cotenant.service.run import Site, open_service
from cotenant.testing.backend_kit import whole
from cotenant.testing.live import running

ADMIN = Caller("root", Role.ADMIN)
ROOT = Path(__file__).resolve().parents[3]
OLD = "7050bf1"
PATIENCE_S = 120.0
LINES = {"quick": 1, "long": 60, "stays": 200, "short": 100, "held": 1, "waits-0": 2, "waits-1": 2, "waits-2": 2}


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """The sources of the old commit, from the history that is here: nothing is fetched."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    env = {**os.environ, "GIT_NO_LAZY_FETCH": "1"}
    archive = subprocess.run(["git", "archive", OLD, "src"], cwd=ROOT, env=env, capture_output=True, check=False)
    if archive.returncode != 0:
        pytest.skip(f"the sources of commit {OLD} are not here: a clone with its whole history has them")
    (tmp_path / "old").mkdir()
    subprocess.run(["tar", "-x", "-C", str(tmp_path / "old")], input=archive.stdout, check=True)
    return tmp_path / "old" / "src"


@pytest.fixture
def home(sources: Path, tmp_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """A home whose service was killed, and the states in which its jobs were, by name."""
    env = {**os.environ, "PYTHONPATH": str(sources)}
    command = [sys.executable, str(Path(__file__).with_name("old_service.py")), str(tmp_path / "home")]
    service = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert service.stdout is not None
        said = service.stdout.readline()
    finally:
        service.send_signal(signal.SIGKILL)
        service.wait()
    yield tmp_path / "home", dict(json.loads(said).values())
    backend = LocalBackend(tmp_path / "home" / "jobs", home=tmp_path / "home", gpus=4)
    for item in backend.observe():  # only after an error
        backend.kill(item.key)
    backend.close()


@pytest.mark.slow
def test_real_jobs_of_the_last_version_are_finished(home: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    folder, before = home
    assert before == {
        "quick": "succeeded", "long": "suspended", "stays": "running", "short": "running", "held": "pending",
        "waits-0": "pending", "waits-1": "pending", "waits-2": "pending",
    }  # fmt: skip
    with running(open_service(Options(folder, 20.0), Site(gpus=4))) as service:
        ids = {info.name: info.id for info in service.desk.jobs(ADMIN)}
        assert ids.keys() == before.keys()
        assert service.store.book.policy == "srtf"
        assert service.admin.authenticate((folder / "token").read_text().strip()) is not None
        again = parse_job({"run": "true", "name": "short"})
        assert service.desk.submit(ADMIN, [again], "short", "short") == [[ids["short"]]]
        give_up, seq = time.monotonic() + PATIENCE_S, service.store.book.seq
        while len(service.store.view().active) > 1:
            assert time.monotonic() < give_up, {job.spec.name: str(job.state) for job in service.store.view().active}
            seq = service.desk.wait_events(seq, 0.25)
        service.desk.resume(ADMIN, ids["held"])
        while service.store.view().active:
            assert time.monotonic() < give_up
            seq = service.desk.wait_events(seq, 0.25)
        told = Counter((tmp_path / "trail").read_text().splitlines())
        for name, job in ids.items():
            info = service.desk.job(ADMIN, job)
            assert (str(info.state), len(info.attempts)) == ("succeeded", 1), info
            lines = [f"{job}-1 {number}" for number in range(LINES[name])]
            assert [told[line] for line in lines] == [1] * len(lines), f"{name} did its work once"
            log = service.desk.open_log(ADMIN, job)
            assert log is not None
            assert whole(log).decode().splitlines() == [*lines, "done"]
        kinds = [event.kind for event in service.desk.events(ADMIN, ids["long"])]
        assert kinds.count("suspended") == kinds.count("continued") >= 1
        while service.backend.observe():  # what has ended is forgotten a look later
            assert time.monotonic() < give_up
            service.desk.wait_events(service.store.book.seq, 0.1)
