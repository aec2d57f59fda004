"""One service with three jobs, for `bench.fault_table`: started, broken, looked at, judged by what its jobs wrote.

`bench.faults` has its service from here too, and jobs of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import httpx

from cotenant.client import Client
from cotenant.core.errors import CotenantError

PATIENCE_S = 120.0  # longer than a backend looks for its nodes, so that the service itself says what is wrong
_DIARY = """
echo "$COTENANT_JOB_ID began" >> {diary}
while [ ! -e {go} ]; do sleep 0.05; done
echo "$COTENANT_JOB_ID ended" >> {diary}
"""


class Case:
    """`short` and `long` run, `waits` waits for both; each writes to a diary when it begins and when it ends."""

    def __init__(
        self, folder: Path, home: Path | None = None, db: str | None = None, words: Sequence[str] = (),
        before: Sequence[str] = (), env: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        self._words, self._before, self._env = words, before, {**os.environ, **(env or {})}
        self.folder, self.home, self.db = folder, home or folder / "home", db
        self.diary, self.clock, self.log = folder / "diary", folder / "clock", folder / "log"
        self.diary.touch()
        self.set_clock()
        self._service: subprocess.Popen[bytes] | None = None
        self.jobs: dict[str, str] = {}
        self._client: Client | None = None
        self.result: tuple[int, int, int] | None = None

    # -- the service -----------------------------------------------------------------------------------------------

    def set_clock(self, by_s: float = 0.0, passed_s: float = 0.0) -> None:
        """Set the service's clock, and let time pass for it."""
        (self.folder / "clock.new").write_text(f"{by_s} {passed_s}")
        (self.folder / "clock.new").replace(self.clock)

    def start(self, *words: str) -> str:
        """Start the service; what it says when it refuses, else nothing."""
        (self.home / "url").unlink(missing_ok=True)
        before = self.log.stat().st_size if self.log.exists() else 0
        self.spawn(*words)
        self.until(lambda: self.ended() or (self.home / "url").exists())
        if self.ended():
            return self.log.read_bytes()[before:].decode().strip()
        self._client = Client((self.home / "url").read_text().strip(), (self.home / "token").read_text().strip())
        return ""

    def spawn(self, *words: str) -> None:
        """Start it, and do not wait for it."""
        command = [*self._before, sys.executable, "-m", "bench.fault_service", self.home, self.clock]
        command += [*self._words, *words, *(("--db", self.db) if self.db else ())]
        with self.log.open("ab") as log:
            self._service = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, env=self._env)

    def ended(self) -> bool:
        """Whether the service has ended."""
        return self._service is None or self._service.poll() is not None

    def kill(self) -> None:
        """`kill -9`, or nothing where it has ended."""
        self.end(signal.SIGKILL)

    def end(self, number: int = signal.SIGTERM) -> None:
        """Ask it to end."""
        if self._service is not None and not self.ended():
            self._service.send_signal(number)
            self._service.wait(PATIENCE_S)

    @property
    def client(self) -> Client:
        """A connection to the service."""
        assert self._client is not None
        return self._client

    def ready(self) -> str:
        """What /readyz says."""
        answer = httpx.get(f"{self.client.url}/readyz", timeout=30.0)
        return f"{answer.status_code}: {answer.json().get('error', answer.json().get('status'))}"

    def said(self, word: str) -> str:
        """The last line of its log with a word in it."""
        lines = [line for line in self.log.read_text().splitlines() if word in line]
        return lines[-1] if lines else ""

    # -- its jobs --------------------------------------------------------------------------------------------------

    def submit(self, name: str, **more: object) -> str:
        """One more job, which ends when it is let go."""
        run = _DIARY.format(diary=self.diary, go=self.folder / f"go-{name}")
        ((job,),) = self.client.submit([{"run": run, "name": name, **more}])
        self.jobs[name] = job
        return job

    def begin(self) -> None:
        """Start, with three jobs."""
        if text := self.start():
            raise RuntimeError(text)
        self.submit("short")
        self.submit("long", max_runtime=3600)
        self.submit("waits", gpus=2)
        self.until(lambda: self.diary.read_text().count("began") == 2)
        self.until(lambda: {str(self.client.job(self.jobs[n]).state) for n in ("short", "long")} == {"running"})

    def let_go(self, *names: str) -> None:
        """Let jobs come to their end."""
        for name in names:
            (self.folder / f"go-{name}").touch()

    def until(self, condition: Callable[[], object], seconds: float = PATIENCE_S) -> None:
        """Wait for something."""
        give_up = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > give_up:
                raise TimeoutError(f"not in {seconds:g} s; the log says: {self.log.read_text()[-2000:]}")
            time.sleep(0.05)

    def finish(self) -> tuple[int, int, int]:
        """Let all end; how many jobs were lost, begun twice, and ended before their time."""
        self.let_go(*self.jobs)
        left = dict(self.jobs)

        def all_over() -> bool:
            for name, job in list(left.items()):
                try:
                    if str(self.client.job(job).state) in ("succeeded", "failed", "cancelled"):
                        del left[name]
                except CotenantError:
                    return False
            return not left

        with suppress(TimeoutError):
            self.until(all_over)
        lines = self.diary.read_text().split("\n")
        began = [sum(line == f"{job} began" for line in lines) for job in self.jobs.values()]
        ended = [sum(line == f"{job} ended" for line in lines) for job in self.jobs.values()]
        over = [job for name, job in self.jobs.items() if name not in left]
        wrong = sum(str(self.client.job(job).state) != "succeeded" for job in over)
        twice = sum(count > 1 for count in began)
        return len(left), twice, max(wrong, sum(b > e for b, e in zip(began, ended, strict=True)))

    def alive(self) -> int:
        """How many of its jobs have begun and not ended, and are there."""
        return sum(_there(record) for record in (self.home / "jobs" / "jobs").glob("*/child.json"))

    def close(self) -> None:
        """Nothing may outlive its folder."""
        self.let_go(*self.jobs)
        self.kill()
        if self._client is not None:
            self._client.close()
        give_up = time.monotonic() + 5.0
        while self.alive() and time.monotonic() < give_up:
            time.sleep(0.05)


def _there(record: Path) -> bool:
    import json

    try:
        pid = json.loads(record.read_text())["pid"]
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (OSError, ValueError):
        return False
