"""A service for jobs to talk to, on its own thread, with waits that end when something happens."""

from __future__ import annotations

import asyncio
import hmac
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from cotenant.runtime.protocol import Hello, JobMessage, Pause, Set, Settings, Stop, TakeTurns
from cotenant.runtime.server import RuntimeServer

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a-token-of-one-job"
PATIENCE_S = 120.0


class Service:
    """A RuntimeServer with a memory. `react` is called on the loop for every message."""

    def __init__(self, *addresses: str) -> None:
        self.addresses: tuple[str, ...] = addresses
        self.settings = Settings()
        self.heard: list[JobMessage] = []
        self.react: Callable[[JobMessage], None] = lambda message: None
        self._news = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.start()

    def start(self) -> None:
        self.server = RuntimeServer(self.addresses, self._authenticate, self._hear)
        self._run(self.server.start())
        self.addresses = self.server.addresses

    def stop(self) -> None:
        self._run(self.server.stop())

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def send(self, message: Set | Stop | Pause | TakeTurns) -> bool:
        async def send() -> bool:
            return self.server.send("j1", message)

        return asyncio.run_coroutine_threadsafe(send(), self._loop).result(PATIENCE_S)

    def wait_for(self, wanted: Callable[[JobMessage], bool]) -> JobMessage:
        with self._news:
            assert self._news.wait_for(lambda: any(map(wanted, self.heard)), PATIENCE_S), self.heard[-10:]
            return next(filter(wanted, self.heard))

    def of(self, kind: type[JobMessage]) -> list[JobMessage]:
        return [message for message in self.heard if isinstance(message, kind)]

    def _run(self, coroutine: object) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)  # type: ignore[arg-type]

    def _authenticate(self, hello: Hello) -> Settings | None:
        return self.settings if hmac.compare_digest(hello.token, TOKEN) else None

    def _hear(self, hello: Hello, message: JobMessage) -> None:
        with self._news:
            self.heard.append(message)
            self._news.notify_all()
        self.react(message)


def job_env(address: str, checkpoints: Path) -> dict[str, str]:
    return {
        "COTENANT_ADDRESS": address,
        "COTENANT_JOB_TOKEN": TOKEN,
        "COTENANT_JOB_ID": "j1",
        "COTENANT_ATTEMPT": "3",
        "COTENANT_TENANT": "vision",
        "COTENANT_CHECKPOINT_DIR": str(checkpoints),
        "COTENANT_CHECKPOINT_INTERVAL_S": "0",
    }


def spawn(*args: object, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """A real script in a process of its own. It may keep its bytecode: large libraries are started many times."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("COTENANT_")}
    clean |= {"PYTHONPATH": str(ROOT / "src"), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    clean.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, *map(str, args)]
    return subprocess.Popen(
        command, env=clean | (env or {}), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )


def finish(process: subprocess.Popen[str], code: int = 0) -> str:
    """Its output, once it has ended with this code."""
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, (process.returncode, out, err)
    return out
