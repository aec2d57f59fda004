"""A service as people start it and a browser that tells of what goes wrong in it: for benches and tests of the page."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cotenant.api.window import DIST
from cotenant.client import Client
from cotenant.service.facade import EVERY

BUILT = (DIST / "index.html").is_file()
DEADLINE_S = 60.0
UNFINISHED = ("pending", "starting", "running", "suspended", "stopping")


def browser_arguments() -> list[str]:
    return [
        "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    ]  # fmt: skip


def until(check: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """Poll until something is true."""
    end_s = time.monotonic() + deadline_s
    while not (found := check()):
        assert time.monotonic() < end_s, f"not within {deadline_s:g} s: {what}"
        time.sleep(0.05)
    return found


class Served:
    """`cotenant serve` in a process and a home of its own; can be ended and started again at the same port."""

    def __init__(self, home: Path, *options: str) -> None:
        self.home, self._options, self._port = home, options, 0
        self._process: subprocess.Popen[str] | None = None
        self.url, self.token = "", ""

    def start(self) -> None:
        """Start it, and wait until it answers."""
        own = () if "--gpus" in self._options else ("--gpus", "2")
        options = ("--home", str(self.home), "--port", str(self._port), "--grace", "2", *own, *self._options)
        log = (self.home / "serve.log").open("a", encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cotenant.cli.main", "serve", *options], stdout=log, stderr=log, text=True,
            env={**os.environ, "COTENANT_HOME": str(self.home)},
        )  # fmt: skip
        log.close()
        until(self._answers, "the service answers")
        self.url = (self.home / "url").read_text().strip()
        self.token = (self.home / "token").read_text().strip()
        self._port = int(self.url.rpartition(":")[2])

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.home / "serve.log").read_text()
        if not (self.home / "url").is_file() or not (self.home / "token").is_file():
            return False
        with Client((self.home / "url").read_text().strip(), (self.home / "token").read_text().strip()) as client:
            return client.ready()

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._process is not None
        return self._process.pid

    def client(self, token: str = "") -> Client:
        """A client of it, as admin unless another token is given."""
        return Client(self.url, token or self.token)

    def stop(self) -> None:
        """End it; its jobs go on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(30)
            self._process = None

    def end(self) -> None:
        """End its jobs, then the service."""
        if self._process is not None:
            with self.client() as client:
                client.change("cancel", EVERY, every=True, force=True)
                until(lambda: not client.jobs(states=UNFINISHED, limit=1), "all jobs have ended")
        self.stop()

    def token_for(self, role: str, tenant: str = "") -> str:
        """A new token."""
        with self.client() as client:
            return client.create_token(role, role, tenant)[1]


class Watched:
    """A page of the window that keeps what went wrong: errors in the console, and requests to somebody else."""

    def __init__(self, page: Any, url: str) -> None:
        self.page, self.url = page, url
        self.errors: list[str] = []
        self.strangers: list[str] = []
        page.set_default_timeout(DEADLINE_S * 1000)
        page.on("console", lambda message: self._hear(message))
        page.on("pageerror", lambda error: self.errors.append(f"uncaught: {error}"))
        page.on("request", lambda request: self._request(request.url))

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning") and "ERR_CONNECTION" not in message.text:
            self.errors.append(message.text)

    def _request(self, url: str) -> None:
        if not url.startswith((self.url, "data:", "blob:")):
            self.strangers.append(url)

    def sign_in(self, token: str) -> None:
        """Open the page and sign in."""
        self.page.goto(self.url)
        self.sign_in_here(token)

    def sign_in_here(self, token: str) -> None:
        """Sign in on the page that asks for it."""
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.locator("nav").wait_for(state="attached")

    def show(self, where: str) -> None:
        """Go to another page."""
        self.page.evaluate("where => { location.hash = '#/' + where }", where)

    def check(self) -> None:
        """Nothing went wrong so far."""
        assert not self.errors, self.errors
        assert not self.strangers, self.strangers


@contextmanager
def watched(browser: Any, served: Served, dark: bool = False, **more: Any) -> Iterator[Watched]:
    context = browser.new_context(
        color_scheme="dark" if dark else "light", viewport={"width": 1280, "height": 860}, **more
    )
    try:
        yield Watched(context.new_page(), served.url)
    finally:
        context.close()
