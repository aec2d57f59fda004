"""The live part of `python -m bench.inference --live SECONDS`: an HTTP server and training on one virtual GPU.

examples/serve_http.py (10 ms of work a request, 200 ms allowed) is submitted as a service, a training script beside it,
under sjf-bsbf. Requests come at random: 5 per second, in the middle third 45, then 5 again. Training joins, has to make
room in the middle, where the prediction at the measured rate is over target, and goes on afterwards. Latency is
measured by the client, from the moment at which a request was due. Exit status 1 unless 99 % are within target, and
training was there, was away and came back.
"""

from __future__ import annotations

import http.client
import socket
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.demo import EXAMPLES, ME, live_service, paced
from bench.quiet import Others
from cotenant.core.jobspec import parse_job
from cotenant.service.core import CoreService

TARGET_S, SERVICE_MS, STEP_S = 0.2, 10, 0.05
LOW, HIGH = 5.0, 45.0  # requests per second
WITHIN = 0.99


@dataclass(slots=True)
class Client:
    """Sends requests at random, each when it is due, and keeps what they took."""

    port: int
    took_s: list[float] = field(default_factory=list)
    failed: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, rate: float, seconds: float, seed: int) -> None:
        """Random arrivals for so long."""
        draw = np.random.default_rng(seed)
        due_s, until_s = time.monotonic(), time.monotonic() + seconds
        with ThreadPoolExecutor(64) as pool:
            while (due_s := due_s + draw.exponential(1 / rate)) < until_s:
                time.sleep(max(due_s - time.monotonic(), 0.0))
                pool.submit(self._one, due_s)

    def _one(self, due_s: float) -> None:
        try:
            link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
            link.request("GET", "/")
            good = link.getresponse().read() != b""
            link.close()
        except OSError:
            good = False
        with self._lock:
            self.failed += not good
            self.took_s.append(time.monotonic() - due_s if good else np.inf)


def play(seconds: float) -> int:
    """Serve for so long; the exit status."""
    others = Others()
    with (
        tempfile.TemporaryDirectory(prefix="cotenant-inference-") as home,
        live_service(Path(home), "sjf-bsbf", gpus=1) as service,
    ):
        client, seen, steps = _serve(service, seconds)
    took = np.array(client.took_s)
    share, p99_s = float((took <= TARGET_S).mean()), float(np.quantile(took, 0.99))
    late = f"within {TARGET_S * 1000:g} ms {share:.3%}, p99 {p99_s * 1000:.0f} ms"
    print(f"requests {len(took)}, failed {client.failed}, {late}")
    dedicated = seconds / STEP_S
    print(f"training beside it: {steps} steps, {steps / dedicated:.2f} of a GPU of its own; it was {', '.join(seen)}")
    print(others.text())
    good = share >= WITHIN and steps > 0 and seen == ("beside", "away", "beside")
    print("as promised" if good else "MISSED")
    return int(not good)


def _serve(service: CoreService, seconds: float) -> tuple[Client, tuple[str, ...], int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run = f"{sys.executable} {EXAMPLES / 'serve_http.py'} --port {port} --service-ms {SERVICE_MS}"
    said = {"target_ms": TARGET_S * 1000, "service_ms": SERVICE_MS, "rate": LOW}
    chat = parse_job({"run": run, "name": "chat", "service": said, "expected": 1})
    ((chat_id,),) = service.desk.submit(ME, [chat])
    _wait(service, lambda: "p99_ms" in service.desk.job(ME, chat_id).metrics)
    training = parse_job({"run": paced("pure_python.py", 1_000_000, STEP_S), "name": "training"})
    ((train_id,),) = service.desk.submit(ME, [training])
    client, seen = Client(port), []
    for third, rate in enumerate((LOW, HIGH, LOW)):
        client.send(rate, seconds / 3, seed=third)
        state = str(service.desk.job(ME, train_id).state)
        seen.append("beside" if state == "running" else "away")
        print(f"  after {rate:g} requests/s: training is {state}; {_shown(service, chat_id)}", flush=True)
    steps = service.desk.job(ME, train_id).step or 0
    for job in (train_id, chat_id):
        service.desk.cancel(ME, job)
    _wait(service, lambda: not service.store.book.active)
    return client, tuple(seen), steps


def _shown(service: CoreService, job: str) -> str:
    metrics = service.desk.job(ME, job).metrics
    return ", ".join(f"{name} {value:.3g}" for name, value in metrics.items())


def _wait(service: CoreService, done: object, patience_s: float = 60.0) -> None:
    until = time.monotonic() + patience_s
    while not done():  # type: ignore[operator]
        if time.monotonic() > until:
            raise SystemExit("the service did not answer in time")
        service.desk.wait_events(service.store.book.seq, 0.1)
