"""The live part of `python -m bench.inference --live SECONDS`: an HTTP server that computes, beside training.

examples/serve_http.py (matrix products, about 20 ms a request on this core, 250 ms allowed) is submitted as a service
of one to two replicas, and two training scripts that compute all the time (examples/numpy_train.py), under sjf-bsbf on
two virtual GPUs. Each virtual GPU is one core of this machine, so whoever shares a GPU really takes turns on a core.
Requests come at random by a curve: 4 per second, then up to 60 and down again. Training joins the replica, makes room
when requests rise, and comes back; the second replica is started and stopped by what is measured. The client deals
requests to the replicas that answer, at random, and measures from the moment at which a request was due. Exit status 1
unless 99 % are within target, both numbers of replicas were seen, and training was beside the service, away and back.
"""

from __future__ import annotations

import http.client
import random
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.demo import EXAMPLES, ME, live_service
from bench.quiet import Others
from cotenant.core.jobspec import parse_job
from cotenant.service.core import CoreService

TARGET_S, SERVICE_MS, WORK = 0.25, 20, 8
CURVE = ((0.0, 4.0), (0.25, 4.0), (0.4, 60.0), (0.6, 60.0), (0.75, 4.0), (1.0, 4.0))  # part of the time, requests/s
CALM_S = 15
WITHIN = 0.99
ON_ITS_CORE = "exec taskset -c $CUDA_VISIBLE_DEVICES"
LOOK_S = 0.5


@dataclass(slots=True)
class Client:
    """Sends requests at random, each when it is due, to a replica at random, and keeps what they took."""

    ports: list[int] = field(default_factory=list)
    took_s: list[tuple[float, float]] = field(default_factory=list)  # when it was due, and how long it took
    again: int = 0  # requests that another replica had to answer
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, seconds: float) -> None:
        """Random arrivals by the curve for so long."""
        draw, most = np.random.default_rng(0), max(rate for _, rate in CURVE)
        began_s = due_s = time.monotonic()
        parts, rates = zip(*CURVE, strict=True)
        with ThreadPoolExecutor(64) as pool:
            while (due_s := due_s + draw.exponential(1 / most)) < began_s + seconds:
                if draw.random() * most < np.interp((due_s - began_s) / seconds, parts, rates):
                    time.sleep(max(due_s - time.monotonic(), 0.0))
                    pool.submit(self._one, due_s, due_s - began_s)

    def _one(self, due_s: float, at_s: float) -> None:
        good, tries = False, 0
        while not good and tries < 20:
            good = self._ask(random.choice(self.ports or [1]))
            tries += 1
            time.sleep(0.0 if good else 0.05)
        with self._lock:
            self.again += tries > 1
            self.took_s.append((at_s, time.monotonic() - due_s if good else np.inf))

    @staticmethod
    def _ask(port: int) -> bool:
        try:
            link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            link.request("GET", "/")
            good = link.getresponse().read() != b""
            link.close()
        except (OSError, http.client.HTTPException):
            return False
        return good


@dataclass(slots=True)
class Seen:
    """What was looked at every half second: replicas that answer, and trainings that run beside one."""

    replicas: list[int] = field(default_factory=list)
    beside: list[int] = field(default_factory=list)


def play(seconds: float) -> int:
    """Serve for so long; the exit status."""
    others = Others()
    with (
        tempfile.TemporaryDirectory(prefix="cotenant-inference-") as home,
        live_service(Path(home), "sjf-bsbf", gpus=2) as service,
    ):
        alone = _alone(service)
        client, seen, steps = _serve(service, seconds)
    at_s, took = (np.array(column) for column in zip(*client.took_s, strict=True))
    share, p99_s = float((took <= TARGET_S).mean()), float(np.quantile(took, 0.99))
    late = f"within {TARGET_S * 1000:g} ms {share:.3%}, p99 {p99_s * 1000:.0f} ms"
    lost = int(np.isinf(took).sum())
    print(f"requests {len(took)}, not answered {lost}, sent to another replica {client.again}, {late}")
    for tenth in range(10):
        mine = (at_s >= tenth * seconds / 10) & (at_s < (tenth + 1) * seconds / 10)
        looks = slice(len(seen.replicas) * tenth // 10, len(seen.replicas) * (tenth + 1) // 10)
        rate, replicas, beside = mine.sum() / (seconds / 10), seen.replicas[looks], seen.beside[looks]
        good = float((took[mine] <= TARGET_S).mean()) if mine.any() else 1.0
        row = f"{rate:5.1f} requests/s, {np.mean(replicas):.1f} replicas, {np.mean(beside):.1f} trainings beside them"
        print(f"  {tenth / 10:.1f}: {row}, {good:.2%} within target")
    print(f"training: {steps} steps, as many as {steps / (alone * seconds):.2f} GPUs of its own make")
    print(others.text())
    was = [state for state, before in zip(_stages(seen.beside), [None, *_stages(seen.beside)], strict=False)
           if state != before]  # fmt: skip
    good = share >= WITHIN and steps > 0 and {1, 2} <= set(seen.replicas) and was[:3] == ["beside", "away", "beside"]
    print("as promised" if good else f"MISSED ({', '.join(was)})")
    return int(not good)


def _stages(beside: list[int]) -> list[str]:
    return ["beside" if count else "away" for count in beside]


def _train(name: str) -> dict[str, object]:
    run = f"{ON_ITS_CORE} {sys.executable} {EXAMPLES / 'numpy_train.py'} --steps 100000000"
    return {"run": run, "name": name, "checkpoint": {"interval": 5}}


def _alone(service: CoreService, seconds: float = 8.0) -> float:
    """Steps per second of training that has a GPU for itself."""
    ((job,),) = service.desk.submit(ME, [parse_job(_train("alone"))])
    _wait(service, lambda: (service.desk.job(ME, job).step or 0) > 0)
    first, began_s = service.desk.job(ME, job).step or 0, time.monotonic()
    time.sleep(seconds)
    made, took_s = (service.desk.job(ME, job).step or 0) - first, time.monotonic() - began_s
    service.desk.cancel(ME, job)
    _wait(service, lambda: not service.store.book.active)
    return made / took_s


def _serve(service: CoreService, seconds: float) -> tuple[Client, Seen, int]:
    run = f"{ON_ITS_CORE} {sys.executable} {EXAMPLES / 'serve_http.py'} --work {WORK}"
    said = {"target_ms": TARGET_S * 1000, "service_ms": SERVICE_MS, "replicas": [1, 2], "beside": 0.5}
    said |= {"rate": CURVE[0][1], "calm_s": CALM_S, "start_s": 5}
    ((*chat,),) = service.desk.submit(ME, [parse_job({"run": run, "name": "chat", "service": said})])
    client, seen = Client(), Seen()
    _wait(service, lambda: bool(_ports(service, chat)))
    ids = [job for (job,) in service.desk.submit(ME, [parse_job(_train("one")), parse_job(_train("two"))])]
    _wait(service, lambda: all(str(service.desk.job(ME, job).state) == "running" for job in ids))
    client.ports = _ports(service, chat)
    over = threading.Event()
    watch = threading.Thread(target=_watch, args=(service, chat, ids, client, seen, over))
    watch.start()
    client.send(seconds)
    over.set()
    watch.join()
    print(f"service: {service.desk.job(ME, chat[0]).service}", flush=True)
    steps = sum(service.desk.job(ME, job).step or 0 for job in ids)
    for job in (*ids, *chat):
        service.desk.cancel(ME, job)
    _wait(service, lambda: not service.store.book.active)
    return client, seen, steps


def _watch(
    service: CoreService, chat: list[str], ids: list[str], client: Client, seen: Seen, over: threading.Event
) -> None:
    """Tell the client where replicas answer, and note what is where."""
    while not over.wait(LOOK_S):
        client.ports = _ports(service, chat) or client.ports
        seen.replicas.append(len(client.ports))
        view = service.store.view()
        beside = {one.id for job in chat for one in view.company.get(job, ())}
        seen.beside.append(len(beside & set(ids)))


def _ports(service: CoreService, chat: list[str]) -> list[int]:
    jobs = [service.desk.job(ME, job) for job in chat]
    return [int(job.metrics["port"]) for job in jobs if job.state == "running" and "port" in job.metrics]


def _wait(service: CoreService, done: object, patience_s: float = 60.0) -> None:
    until = time.monotonic() + patience_s
    while not done():  # type: ignore[operator]
        if time.monotonic() > until:
            raise SystemExit("the service did not answer in time")
        service.desk.wait_events(service.store.book.seq, 0.1)
