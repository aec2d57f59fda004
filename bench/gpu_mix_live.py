"""One run of the mix through a real `cotenant serve`, by the command line, and all that `bench.gpu_mix` keeps of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from bench.gpu_mix_jobs import GAP_S, MIX, ROOT, Play, Setting

KEPT = ("why", "rung", "gain_s", "cost_s", "worth", "exit_code", "code", "signal", "level", "free_s", "lost_s", "step")
PATIENCE_S = 400.0
POINTS_S = 0.5


class Shell:
    """The command line, for the service at one home."""

    def __init__(self, home: Path) -> None:
        path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        self.env = {**os.environ, "COTENANT_HOME": str(home), "PYTHONPATH": path}
        self.command = [sys.executable, "-m", "cotenant.cli.main"]

    def run(self, *words: str, check: bool = True) -> str:
        """The output of one call."""
        ran = subprocess.run([*self.command, *words], env=self.env, capture_output=True, text=True, check=False)
        if check and ran.returncode:
            raise SystemExit(f"cotenant {' '.join(words)}: exit code {ran.returncode}\n{ran.stdout}{ran.stderr}")
        return ran.stdout

    def ask(self, *words: str, check: bool = True) -> Any:
        """What a call answers as JSON; None where it fails and may."""
        out = self.run(*words, "--json", check=check)
        return json.loads(out) if out.strip() else None


@contextmanager
def serving(home: Path, words: Sequence[str]) -> Iterator[Shell]:
    """A service of its own, `cotenant serve` with these words. Its last words are shown when something goes wrong."""
    shell, log = Shell(home), home / "serve.log"
    home.mkdir(parents=True, exist_ok=True)
    command = [*shell.command, "serve", "--port", "0", *words]
    with log.open("w") as errors:
        server = subprocess.Popen(command, env=shell.env, stdout=subprocess.PIPE, stderr=errors)
        try:
            assert server.stdout is not None
            if not server.stdout.readline():
                raise SystemExit("serve did not start")
            yield shell
        except BaseException:
            print(log.read_text()[-4000:], file=sys.stderr)
            raise
        finally:
            shell.run("shutdown", "--jobs", "stop", check=False)
            server.terminate()
            server.wait(60)


@contextmanager
def served(setting: Setting, policy: str, share: str) -> Iterator[Shell]:
    """A service under a policy, which knows the profile of the mix."""
    words = ["--policy", policy, "--share", share, *(["--gpus", "1"] if setting.stand_in else [])]
    words += ["--profile", str(setting.known)]
    folder = tempfile.TemporaryDirectory(prefix="cotenant-mix-", ignore_cleanup_errors=True)
    with folder as home, serving(Path(home), words) as shell:
        yield shell


def play_live(setting: Setting, play: Play, policy: str, expected: Mapping[str, float]) -> dict[str, Any]:
    """Submit the mix, ask for a forecast, wait for the end; everything that is to be kept, as plain data."""
    with served(setting, policy, play.share) as shell:
        files = _job_files(setting, play, expected)
        began, ids = time.monotonic(), []
        for number, file in enumerate(files):
            time.sleep(max(0.0, began + number * GAP_S - time.monotonic()))
            ids.append(shell.run("submit", str(file)).split()[-1])
        foretold = shell.ask("whatif", "--policy", policy)
        listed = shell.ask("ps")
        shell.run("wait", *ids, "--timeout", str(PATIENCE_S), check=False)
        with ThreadPoolExecutor(len(ids)) as many:
            jobs = list(many.map(lambda job: _kept(shell, job), ids))
        return {
            "policy": policy,
            "share": play.share,
            "whatif": foretold,
            "ps": [{key: row.get(key) for key in row if key in ("id", "state") or "expected" in key} for row in listed],
            "jobs": jobs,
            "events": _events(shell),
            "calibration": shell.ask("forecast", "evaluate", check=False),
        }


def _job_files(setting: Setting, play: Play, expected: Mapping[str, float]) -> list[Path]:
    folder = setting.state / "jobs"
    folder.mkdir(exist_ok=True)
    files = []
    for member in MIX:
        files.append(folder / f"{member.model}.yaml")
        files[-1].write_text(yaml.safe_dump(setting.job(member, play, expected.get(member.model, 0.0))))
    return files


def _kept(shell: Shell, number: str) -> dict[str, Any]:
    job = shell.ask("show", number)
    lines = [line for line in shell.run("logs", number, check=False).splitlines() if line.startswith("{")]
    kept = {key: job[key] for key in ("id", "name", "state", "reason", "submitted_s", "started_s", "ended_s")}
    said: dict[str, Any] = json.loads(lines[-1]) if lines else {"loss": None}
    if job["state"] != "succeeded":
        kept["stderr"] = shell.run("logs", number, "--stderr", check=False)[-1500:]
    return {**kept, "attempts": len(job["attempts"]), "loss": said["loss"], "points": _thinned(said.get("times", ()))}


def _thinned(times: Sequence[float]) -> list[tuple[float, int]]:
    """When so many steps of the last attempt were done, twice a second or less: its first step, some, and its last."""
    kept: list[tuple[float, int]] = []
    for done, at_s in enumerate(times, 1):
        if not kept or at_s - kept[-1][0] >= POINTS_S or done == len(times):
            kept.append((at_s, done))
    return kept


def _events(shell: Shell) -> list[dict[str, Any]]:
    """The journal, without what is long."""
    found = shell.ask("events", "--limit", "10000")
    first_s = found[0]["time_s"] if found else 0.0
    return [
        {"s": round(one["time_s"] - first_s, 3), "kind": one["kind"], "job": one["job"]}
        | {key: value for key, value in one["data"].items() if key in KEPT}
        for one in found
        if one["job"]
    ]
