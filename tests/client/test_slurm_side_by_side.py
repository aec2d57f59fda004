"""A service on a real Slurm: jobs through pilots that come with the queue, and every line of the guide, by both."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import pytest
from client_server import Server
from live_kit import PATIENCE_S, Live

import cotenant
from cotenant.cli import slurm_verbs
from cotenant.cli.main import main
from cotenant.cli.slurm_shims import SHIMS
from cotenant.client import Client
from cotenant.service.facade import EVERY
from cotenant.service.options import Options
from cotenant.service.run import Site, first_token, open_service
from cotenant.testing.live import running
from cotenant.testing.slurm_cluster import SlurmCluster, missing, slurm_cluster

pytestmark = pytest.mark.slow
UNFINISHED = ("pending", "starting", "running", "suspended", "stopping")
ROOT = Path(__file__).resolve().parents[2]
BACKEND = "slurm:listen=tcp:127.0.0.1:0,poll=0.5,most=2,linger=1"
SCRIPT = "#!/bin/bash\n#SBATCH --gres=gpu:1 --mem=1G -J job.sh\necho started\nsleep 60\n"


@dataclass
class Both:
    """A cluster, a service that has nodes of it, and a folder from which somebody works."""

    cluster: SlurmCluster
    live: Live
    folder: Path
    env: dict[str, str] = field(default_factory=dict)

    def run(self, line: str, shims: bool = False) -> subprocess.CompletedProcess[str]:
        """A line as somebody would type it there; ours within this process, which is much quicker."""
        words = shlex.split(line)
        if shims or words[0] == "cotenant":
            return self._here(words)
        return subprocess.run(words, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=60)

    def _here(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        out, err, code = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True), io.StringIO(), 0
        with (
            mock.patch.dict(os.environ, self.env),
            mock.patch.object(sys, "argv", words),
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                code = main() if words[0] == "cotenant" else slurm_verbs.main(words)
            except SystemExit as end:
                code = int(end.code or 0)
        return subprocess.CompletedProcess(words, code, out.buffer.getvalue().decode(), err.getvalue())  # type: ignore[attr-defined]

    def end_all(self) -> None:
        """Of both sides."""
        self.live.client.change("cancel", EVERY, every=True, force=True)
        self.live.until(lambda: not self.live.client.jobs(states=UNFINISHED))
        self.cluster.run("scancel", "-n", "job.sh", check=False)
        self.cluster.run("scancel", "-n", "wrap", check=False)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    if why := missing():
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("work")
    with slurm_cluster(tmp_path_factory.mktemp("slurm"), 4) as cluster:
        opened = open_service(Options(home, 5.0, policy="fifo"), Site(backend=BACKEND))
        with running(opened) as service:
            secret = first_token(service, home)
            with Server(service) as server, Client(server.url, secret) as client:
                (folder / "job.sh").write_text(SCRIPT)
                told = {"COTENANT_URL": server.url, "COTENANT_TOKEN": secret, "COTENANT_HOME": str(home)}
                path = {"PYTHONPATH": str(Path(cotenant.__file__).parents[1])}
                live = Live(service, client, server.url, secret)
                found = Both(cluster, live, folder, {**os.environ, **cluster.env, **told, **path})
                assert found.run(f"cotenant slurm-shims {folder / 'shims'}").returncode == 0
                yield found
                found.end_all()


def test_nodes_come_with_the_queue_and_go(both: Both) -> None:
    """Nothing is held before there are jobs; a gang of two nodes runs; idle nodes are given back."""
    client = both.live.client
    assert {node.state for node in client.nodes()} == {"asleep"}
    job = both.live.submit("echo rank $COTENANT_NODE_RANK; hostname > /dev/null", gpus="a100:8", nodes=2)
    assert client.wait([job], PATIENCE_S)[0].state == "succeeded"
    assert sorted("".join(client.logs(job)).split("\n")) == ["", "rank 0", "rank 1"]
    both.live.until(lambda: {node.state for node in client.nodes()} == {"asleep"})
    assert "".join(client.logs(job)).count("rank") == 2
    assert both.cluster.run("squeue", "-h") == ""


def _rows() -> list[tuple[str, str, str]]:
    text = (ROOT / "docs" / "slurm.md").read_text().partition("## Side by side")[2]
    return re.findall(r"^\| ([^|]+) \| `([^`]+)` \| `([^`]+)` \|$", text, re.MULTILINE)


def _fresh(both: Both, line: str, shims: bool) -> str:
    """A job for a line to speak of: one that runs, or waits where only those can be meant."""
    waits = "hold" in line or "release" in line or "why" in line
    if line.startswith("cotenant") or shims:
        if waits:
            return _waits(both)
        job = both.live.submit("echo started; sleep 60", gpus=1, name="job")
        both.live.runs(job)
        if "logs" in line:
            both.live.until(lambda: "started" in "".join(both.live.client.logs(job)))
        return job
    begin = ["--begin=now+1hour"] if waits else []
    number = both.cluster.run(
        "sbatch", "--parsable", "-w", "n4", *begin, f"--chdir={both.folder}", str(both.folder / "job.sh")
    )
    deadline = time.monotonic() + PATIENCE_S
    while not waits and "RUNNING" not in both.cluster.run("squeue", "-h", "-j", number.strip(), "-o", "%T"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    printed = both.folder / f"slurm-{number.strip()}.out"
    while "cat" in line and not (printed.exists() and printed.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return number.strip()


def _waits(both: Both) -> str:
    first = both.live.submit("sleep 60", gpus=1)
    return both.live.submit("sleep 60", gpus=1, name="job", after=[first])


def test_every_line_is_run_by_both(both: Both) -> None:
    rows = _rows()
    assert len(rows) == 21
    for what, slurm, ours in rows:
        shim = slurm.split()[0] in SHIMS
        for line, shims in ((slurm, False), *([(slurm, True)] if shim else []), (ours, False)):
            mine = shims or line.startswith("cotenant")
            text = line.replace("NODE", "n1" if mine else "n3").replace("USER", "admin" if mine else "root")
            if "JOB" in text:
                text = text.replace("JOB", _fresh(both, text, shims))
            elif line.split()[0] in ("squeue", "cotenant") and "submit" not in line:
                _fresh(both, text, shims)  # that there is something to show
            done = both.run(text, shims)
            if "accounting storage is disabled" in done.stderr:
                continue  # Slurm's own `sacct` needs a database
            assert done.returncode == 0, (what, text, shims, done.stderr)
            quiet = any(word in text for word in ("scancel", "scontrol hold", "release", "scontrol update"))
            assert quiet or done.stdout, (what, text, shims)
        both.end_all()


def test_shims_speak_as_slurm_does(both: Both) -> None:
    both.end_all()
    heading = [both.run("squeue -u nobody", shims=shims).stdout.split() for shims in (False, True)]
    assert heading[0] == heading[1]
    done = both.run("sbatch --parsable --begin=now+1hour -t 10 job.sh", shims=True)
    assert re.fullmatch(r"\d+\n", done.stdout)
    assert "warning: job.sh: command line: --begin=now+1hour has no meaning here" in done.stderr
    job = done.stdout.strip()
    both.live.runs(job)
    assert both.run(f"squeue -h -j {job} -o '%i|%j|%t|%T|%D'", shims=True).stdout == f"{job}|job.sh|R|RUNNING|1\n"
    assert both.run("scancel", shims=True).returncode == 1
    assert both.run(f"scancel {job}", shims=True).returncode == 0
    both.live.client.wait([job], PATIENCE_S)
    told = both.run(f"sacct -n -P -j {job} --format=JobID,JobName,State", shims=True).stdout
    assert told == f"{job}|job.sh|CANCELLED\n"
    done = both.run("sbatch --wait --wrap 'exit 3'", shims=True)
    shim = subprocess.run(
        [both.folder / "shims" / "squeue", "-h"], env=both.env, capture_output=True, text=True, timeout=60
    )
    assert (shim.returncode, shim.stdout, shim.stderr) == (0, "", "")
    assert (done.returncode, done.stdout.split()[:3]) == (3, ["Submitted", "batch", "job"]), done.stderr
