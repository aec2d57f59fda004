"""Whether the service goes on while it is besieged: `python -m bench.siege [--seconds 60] [--only streams,polls]`.

A service of its own on loopback, with 1,024 descriptors as many machines give, 300 waiting jobs, and an honest caller
who submits, cancels and lists. First it is left alone, then half-open, slow, oversized and malformed requests, wrong
tokens, 1,000 streams and 1,000 long polls, of one caller and of many, come for so many seconds each. Held when the p99
of its decisions stays below twice the quiet one (and not below 10 ms, where a shared machine decides), the honest
caller's p99 below 1 s, its log below 10 MB, and its memory below twice the quiet one. Exit code 1 when one is missed.
Times mean little where the last line says that other load was present; processor time within decisions is told beside.
"""

from __future__ import annotations

import argparse
import http.client
import json
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.quiet import Others

DESCRIPTORS = 1024
WAITING = 300
CALLERS = 50
JSON = {"Content-Type": "application/json"}
PAUSE_S = 0.05  # between two rounds of the honest caller
MOST_LOG_MB, MOST_REQUEST_S, LEAST_DECISION_S = 10.0, 1.0, 0.010
SIEGES = (
    ("half-open", 0), ("slow", 1), ("oversized", 1), ("malformed", 0), ("wrong-tokens", 0),
    ("streams", 1), ("streams", CALLERS), ("polls", 1), ("polls", CALLERS),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measured:
    """One stretch of time."""

    name: str
    decisions: int
    decision_s: float
    decision_cpu_s: float
    requests: int
    failed: int
    request_s: float
    log_mb: float
    memory_mib: float

    def missed(self, quiet: Measured) -> list[str]:
        """What did not hold."""
        limit_s = max(2 * quiet.decision_s, LEAST_DECISION_S)
        found = [
            ("decisions", self.decision_s > limit_s or self.decisions < quiet.decisions / 10),
            ("requests", self.request_s > MOST_REQUEST_S or self.failed > 0),
            ("log", self.log_mb > MOST_LOG_MB),
            ("memory", self.memory_mib > 2 * quiet.memory_mib),
        ]
        return [name for name, bad in found if bad]

    def row(self, verdict: str) -> str:
        """A line of the table."""
        return (
            f"{self.name:<22}{self.decisions:>10}{1000 * self.decision_s:>9.1f}{1000 * self.decision_cpu_s:>9.1f}"
            f"{self.requests:>10}{self.failed:>8}"
            f"{1000 * self.request_s:>11.1f}{self.log_mb:>9.2f}{self.memory_mib:>9.0f}  {verdict}"
        )


_COLUMNS = (("", 22), ("decisions", 10), ("p99 ms", 9), ("cpu ms", 9), ("requests", 10), ("failed", 8), ("p99 ms", 11))
HEAD = "".join(f"{name:>{width}}" for name, width in (*_COLUMNS, ("log MB", 9), ("MiB", 9)))


def serve(home: Path) -> None:
    """A service as `cotenant serve` makes it, which writes down how long each decision took."""
    from functools import partial

    from cotenant.api.front import Doors, Front
    from cotenant.service import run
    from cotenant.service.core import CoreService
    from cotenant.service.options import Options

    def timed(doors: Doors, service: CoreService) -> Front:
        step, times = service.planner.step, (home / "decisions").open("a", buffering=1)

        def measured(now_s: float) -> object:
            began, cpu = time.perf_counter(), time.thread_time()
            try:
                return step(now_s)
            finally:
                times.write(f"{time.perf_counter() - began!r} {time.thread_time() - cpu!r}\n")

        service.planner.step = measured  # type: ignore[method-assign, assignment]
        return Front(service, doors)

    run.serve(partial(timed, Doors(home, port=0)), Options(home, policy="srtf"), run.Site(gpus=1))


class Besieged:
    """A running service, and what can be read of it from outside."""

    def __init__(self, home: Path, process: subprocess.Popen[bytes]) -> None:
        self.home, self.process = home, process
        self.port = int((home / "url").read_text().rsplit(":", 1)[1])
        self.admin = (home / "token").read_text().strip()

    def ask(self, method: str, path: str, body: object = None, token: str = "") -> object:
        """One request over TCP, as an honest caller who comes anew each time."""
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            text = None if body is None else json.dumps(body)
            conn.request(method, path, text, {"Authorization": f"Bearer {token or self.admin}", **JSON})
            answer = conn.getresponse()
            data = answer.read()
            if answer.status >= 400:
                raise OSError(f"{method} {path}: {answer.status} {data[:200]!r}")
            return json.loads(data) if data else None
        finally:
            conn.close()

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Its only GPU is taken meanwhile, so that whatever else comes waits."""
        made = self.ask("POST", "/v1/jobs", {"jobs": [{"run": "exec sleep 3600", "gpus": 1, "priority": 1}]})
        assert isinstance(made, dict)
        path = f"/v1/jobs/{made['ids'][0][0]}"
        self._until(path, "running")
        try:
            yield
        finally:
            self.ask("POST", f"{path}/cancel")
            self._until(path, "cancelled")

    def _until(self, path: str, state: str) -> None:
        end_s = time.monotonic() + 60
        while True:
            found = self.ask("GET", path)
            if isinstance(found, dict) and found["state"] == state:
                return
            if time.monotonic() > end_s:
                raise TimeoutError(f"{path} is not {state}")
            time.sleep(0.1)

    def token(self, name: str, role: str, tenant: str) -> str:
        """A new caller."""
        made = self.ask("POST", "/v1/tokens", {"name": name, "role": role, "tenant": tenant})
        assert isinstance(made, dict)
        return str(made["secret"])

    def decisions(self) -> list[tuple[float, float]]:
        """Seconds that each decision took so far, and those of processor time in it."""
        lines = (self.home / "decisions").read_text().split("\n")[:-1]
        return [(float(wall), float(cpu)) for wall, cpu in map(str.split, lines)]

    def log_bytes(self) -> int:
        """What it has said."""
        return (self.home / "log").stat().st_size

    def memory_mib(self) -> float:
        """What it has in memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in status.split("\n") if line.startswith("VmRSS")).split()[1]) / 1024


@contextmanager
def besieged(home: Path) -> Iterator[Besieged]:
    """Start one and end it."""

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))

    home.mkdir(parents=True, exist_ok=True)
    with (home / "log").open("ab") as log:
        command = [sys.executable, "-m", "bench.siege", "--serve", str(home)]
        process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=bound)
    try:
        until_s = time.monotonic() + 90
        while not (home / "url").exists() and process.poll() is None and time.monotonic() < until_s:
            time.sleep(0.1)
        service = Besieged(home, process)
        with service.busy():
            yield service
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Honest(threading.Thread):
    """Submits, cancels and lists, and remembers how long each took."""

    def __init__(self, service: Besieged, token: str) -> None:
        super().__init__(daemon=True)
        self._service, self._token = service, token
        self._ending = threading.Event()
        self.took_s: list[float] = []
        self.errors: list[str] = []
        self.memory_mib = 0.0

    def run(self) -> None:
        """Until asked to end."""
        while not self._ending.is_set():
            made = self._timed("POST", "/v1/jobs", {"jobs": [{"run": "true", "gpus": 1}]})
            if isinstance(made, dict):
                self._timed("POST", f"/v1/jobs/{made['ids'][0][0]}/cancel")
            self._timed("GET", "/v1/jobs?limit=20")
            self.memory_mib = max(self.memory_mib, self._service.memory_mib())
            self._ending.wait(PAUSE_S)

    def _timed(self, method: str, path: str, body: object = None) -> object:
        began = time.perf_counter()
        try:
            return self._service.ask(method, path, body, self._token)
        except (OSError, http.client.HTTPException) as error:
            self.errors.append(f"{type(error).__name__}: {error}")
            return None
        finally:
            self.took_s.append(time.perf_counter() - began)

    def end(self) -> None:
        """After the present round."""
        self._ending.set()
        self.join()


def p99(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[98] if len(values) > 1 else float("inf")


def measure(service: Besieged, honest: str, name: str, seconds: float, attack: list[str]) -> Measured:
    """One stretch: with an attack, or without."""
    before, log_bytes = len(service.decisions()), service.log_bytes()
    caller = Honest(service, honest)
    command = [sys.executable, "-m", "bench.siege_attacks", str(service.port), str(seconds), *attack]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) if attack else _nothing() as process:
        caller.start()
        time.sleep(seconds)
        caller.end()
        if process is not None:
            process.wait(30)
    decisions = service.decisions()[before:]
    for error in caller.errors[:3]:
        print(f"  {name}: {error}", file=sys.stderr)
    return Measured(
        name, len(decisions), *(p99([one[at] for one in decisions]) for at in (0, 1)),
        len(caller.took_s), len(caller.errors), p99(caller.took_s),
        (service.log_bytes() - log_bytes) / 1e6, caller.memory_mib,
    )  # fmt: skip


@contextmanager
def _nothing() -> Iterator[None]:
    yield None


def run(home: Path, seconds: float, only: Sequence[str] = ()) -> bool:
    """Besiege a service of its own; whether it held."""
    others, held = Others(), True
    with besieged(home) as service:
        honest = service.token("honest", "user", "honest")
        enemies = [service.token(f"enemy-{number}", "user", f"enemy-{number}") for number in range(CALLERS)]
        service.ask("POST", "/v1/jobs", {"jobs": [{"run": "true", "gpus": 1, "array": f"1-{WAITING}"}]})
        measure(service, honest, "warm", min(5.0, seconds), [])
        quiet = measure(service, honest, "quiet", seconds, [])
        print(HEAD, quiet.row(""), sep="\n", flush=True)
        for name, callers in SIEGES:
            if only and name not in only:
                continue
            shown = f"{name}, {callers} caller{'s' if callers > 1 else ''}" if callers else name
            found = measure(service, honest, shown, seconds, [name, json.dumps(enemies[: max(callers, 1)])])
            missed = found.missed(quiet)
            held = held and not missed
            print(found.row(f"missed: {', '.join(missed)}" if missed else "held"), flush=True)
    print(others.text())
    return held


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.siege", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each siege")
    parser.add_argument("--only", default="", help="some of " + ", ".join(dict.fromkeys(name for name, _ in SIEGES)))
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(Path(options.serve))
        return
    with tempfile.TemporaryDirectory(prefix="siege-") as folder:
        held = run(Path(folder) / "home", options.seconds, tuple(filter(None, options.only.split(","))))
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
