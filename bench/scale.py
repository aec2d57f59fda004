"""Where one service bends: `python -m bench.scale [--sizes 100,1000,10000] [--policy srtf] [--anew]`.

The real service, its API over HTTP and its journal on disk, against the fake world in virtual time. A size is a number
of nodes of 8 GPUs; 20 jobs per node are submitted, so that 10,000 nodes have 80,000 GPUs and 200,000 jobs. Every size
runs in a process of its own, whose memory is told, and leaves a file in the folder: what is there is not run again.

Told are CPU seconds of one thread, which other load on the machine changes little. A tick is one look of the scheduler,
with a minute of virtual time between two: a few percent of the jobs have ended, and others start. Its parts: what the
fake world itself takes, what is seen (`observe`), who may start where, the decision, and carrying it out. Between two
looks the collector is kept away from what lives long, as `cotenant serve` does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.quiet import Others
from bench.service import percentiles_ms
from cotenant.api.front import Doors, Front
from cotenant.backends.base import LaunchSpec, NodeInfo
from cotenant.backends.fake import FakeBackend, Script
from cotenant.client import Client
from cotenant.core.jit_later import LATER
from cotenant.journal import open_journal
from cotenant.service.core import CoreService
from cotenant.service.garbage_collection import LongLived
from cotenant.service.run import first_token

SIZES = (100, 1000, 10_000)
GPUS, JOBS_PER_NODE = 8, 20
ARRAY = 100  # jobs of one submission
STEP_S = 60.0
PARTS = ("world", "observe", "openings", "press", "decide", "carry out", "rest")
MIB = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="numbers of nodes")
    parser.add_argument("--policy", default="srtf")
    parser.add_argument("--ticks", type=int, default=30, help="looks that are measured once all GPUs are busy")
    parser.add_argument("--folder", type=Path, default=Path("out/scale"))
    parser.add_argument("--anew", action="store_true", help="run sizes again that were run before")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    found = []
    for nodes in map(int, options.sizes.split(",")):
        path = options.folder / f"{options.policy}-{nodes}.json"
        if options.anew or not path.exists():
            others = Others()
            with multiprocessing.get_context("spawn").Pool(1) as alone:
                row = alone.apply(one_size, (nodes, options.policy, options.ticks))
            path.write_text(json.dumps({**row, "load": others.text()}, indent=1) + "\n", encoding="utf-8")
        found.append(json.loads(path.read_text(encoding="utf-8")))
    show(found)


def show(rows: list[dict[str, Any]]) -> None:
    """One column for each size."""
    lines: dict[str, Callable[[dict[str, Any]], str]] = {
        "nodes": lambda row: f"{row['nodes']:,}",
        "GPUs": lambda row: f"{row['nodes'] * GPUS:,}",
        "jobs": lambda row: f"{row['jobs']:,}",
        "jobs that run at once": lambda row: f"{row['running']:,}",
        "start, empty (s)": lambda row: f"{row['open_s']:.2f}",
        "submit over HTTP (jobs/CPU s)": lambda row: f"{row['jobs'] / row['submit_s']:,.0f}",
        "fill all GPUs: ticks": lambda row: f"{row['fill_ticks']}",
        "fill all GPUs: longest tick (s)": lambda row: f"{row['fill_longest_s']:.1f}",
        "tick p50 (ms)": lambda row: f"{row['tick_ms'][0]:,.0f}",
        "tick p99 (ms)": lambda row: f"{row['tick_ms'][1]:,.0f}",
        **{f"  of it {part} (ms)": lambda row, part=part: f"{row['parts_ms'][part]:,.0f}" for part in PARTS},  # type: ignore[misc]
        "starts and ends per tick": lambda row: f"{row['changes']:,.0f}",
        "tick without news (ms)": lambda row: f"{row['idle_ms']:,.0f}",
        **{f"API: {name} (ms)": lambda row, name=name: f"{row['api_ms'][name]:,.0f}" for name in rows[0]["api_ms"]},  # type: ignore[misc]
        "journal, bytes per job submitted": lambda row: f"{row['submit_bytes'] / row['jobs']:,.0f}",
        "journal, bytes per start and end": lambda row: f"{row['change_bytes']:,.0f}",
        "snapshot (MiB)": lambda row: f"{row['snapshot_bytes'] / MIB:,.1f}",
        "snapshot (s)": lambda row: f"{row['snapshot_s']:.1f}",
        "start after a crash (s)": lambda row: f"{row['again_s']:.1f}",
        "memory at most (MiB)": lambda row: f"{row['memory_mib']:,.0f}",
        "  of it the fake world, about (MiB)": lambda row: f"{row['world_mib']:,.0f}",
    }
    for name, text in lines.items():
        print(f"{name:38}" + "".join(f"{text(row):>14}" for row in rows))
    for row in rows:
        print(f"{row['nodes']:,} nodes: {row['load']}")


# -- one size ----------------------------------------------------------------------------------------------------------


def one_size(nodes: int, policy: str, ticks: int) -> dict[str, Any]:
    """All figures of one size."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        compile_kernels()
        before_mib = memory_mib()
        backend = FakeBackend([NodeInfo(f"n{k:05}", "gpu", GPUS, 64, 512.0) for k in range(nodes)], behave=lasts)
        backend.world.now_s = 1e9
        world_mib, began_s = memory_mib() - before_mib, time.process_time()
        service = opened(home, backend, policy)
        found: dict[str, Any] = {"nodes": nodes, "jobs": nodes * JOBS_PER_NODE, "world_mib": world_mib}
        found["open_s"] = time.process_time() - began_s
        clock = PartTimes(service)
        with served(service, home) as client:
            found |= submitted(client, service, home, nodes * JOBS_PER_NODE)
            found |= filled(service, backend)
            found |= churned(service, backend, clock, ticks, home)
            found["api_ms"] = asked(client, service)
        found |= crashed(service, backend, home, policy)
        return {**found, "memory_mib": memory_mib()}


def compile_kernels() -> None:
    """As a service has them after a while."""
    LATER.want()
    deadline = time.monotonic() + 600.0
    while not LATER.ready:
        assert time.monotonic() < deadline, "the kernels are not compiled"
        time.sleep(0.2)
        LATER.switch()


def opened(home: Path, backend: FakeBackend, policy: str) -> CoreService:
    journal = open_journal(str(home / "journal.db"), lambda: backend.now_s)
    service = CoreService(journal, backend, home=home, policy=policy, clock=lambda: backend.now_s, inline=True)
    service.reconcile()
    return service


def lasts(spec: LaunchSpec) -> Script:
    """One minute to two hours, the same for the same job."""
    return Script(random.Random(spec.job).uniform(60.0, 7200.0))


@contextmanager
def served(service: CoreService, home: Path) -> Iterator[Client]:
    """Its API on loopback, by a thread of its own."""
    token, ready, url = first_token(service, home), threading.Event(), [""]
    front = Front(service, Doors(home, port=0, socket="none"))

    async def serve() -> None:
        url[0] = await front.start()
        ready.set()
        await front.ended()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    ready.wait(30)
    with Client(url[0], token, timeout_s=600.0) as client:
        yield client
    front.stop()
    thread.join(30)


class PartTimes:
    """CPU seconds of the parts of ticks, since they were asked for last."""

    def __init__(self, service: CoreService) -> None:
        self._spent = dict.fromkeys(PARTS, 0.0)
        self._inside = [0.0]  # what parts within the present ones have taken
        for owner, name, part in (
            (service.backend, "observe", "world"), (service.backend, "nodes", "world"),
            (service.backend, "launch", "world"), (service.backend, "forget", "world"),
            (service.observer, "look", "observe"), (service.openings, "look", "openings"),
            (service.executor, "press", "press"), (service.planner, "step", "decide"),
            (service.executor, "carry_out", "carry out"), (service.executor, "perform", "carry out"),
            (service, "tick", "rest"),
        ):  # fmt: skip
            setattr(owner, name, self._timed(getattr(owner, name), part))

    def _timed(self, call: Callable[..., Any], part: str) -> Callable[..., Any]:
        def measured(*given: Any, **more: Any) -> Any:
            began_s = time.thread_time()
            self._inside.append(0.0)
            try:
                return call(*given, **more)
            finally:
                whole_s = time.thread_time() - began_s
                self._spent[part] += whole_s - self._inside.pop()
                self._inside[-1] += whole_s

        return measured

    def read(self) -> dict[str, float]:
        """By part; from now on it is counted anew."""
        found, self._spent = self._spent, dict.fromkeys(PARTS, 0.0)
        self._inside = [0.0]
        return found


def submitted(client: Client, service: CoreService, home: Path, jobs: int) -> dict[str, Any]:
    """Arrays of jobs of several sizes and tenants, over HTTP."""
    chance, began_s, before = random.Random(1), time.process_time(), journal_bytes(home)
    for _ in range(jobs // ARRAY):
        client.submit([{
            "run": "python train.py --seed $COTENANT_ARRAY_INDEX", "array": f"0-{ARRAY - 1}",
            "gpus": chance.choice((1, 1, 1, 2, 4, 8)), "tenant": f"team-{chance.randrange(8)}",
            "expected": f"{chance.uniform(60, 7200):.0f}s",
        }])  # fmt: skip
    assert len(service.store.book.jobs) == jobs
    return {"submit_s": time.process_time() - began_s, "submit_bytes": journal_bytes(home) - before}


def filled(service: CoreService, backend: FakeBackend) -> dict[str, Any]:
    """Until no GPU is free that anybody could use."""
    times: list[float] = []
    held = -1
    lives = LongLived()
    while True:
        lives.settle(len(service.store.book.jobs))
        began_s = time.thread_time()
        service.tick()
        times.append(time.thread_time() - began_s)
        backend.advance(1.0)
        now = sum(job.size for job in service.store.book.on_gpus.values())
        if now == held:
            return {"fill_ticks": len(times), "fill_longest_s": max(times)}
        held = now


def churned(
    service: CoreService, backend: FakeBackend, clock: PartTimes, ticks: int, home: Path
) -> dict[str, Any]:  # fmt: skip
    """Looks with news, and then one after the other without."""
    whole, changes, before = [], 0, journal_bytes(home)
    service.tick()
    LongLived().settle(len(service.store.book.jobs))
    clock.read()
    running = len(service.store.book.on_gpus)
    for _ in range(ticks):
        seq = service.store.book.seq
        backend.advance(STEP_S)
        began_s = time.thread_time()
        service.tick()
        whole.append(time.thread_time() - began_s)
        changes += service.store.book.seq - seq
    parts = {name: 1e3 * spent_s / ticks for name, spent_s in clock.read().items()}
    service.tick()
    began_s = time.thread_time()
    for _ in range(5):
        service.tick()
    return {
        "running": running, "tick_ms": percentiles_ms(whole), "parts_ms": parts, "changes": changes / ticks,
        "idle_ms": 1e3 * (time.thread_time() - began_s) / 5,
        "change_bytes": (journal_bytes(home) - before) / max(changes, 1),
    }  # fmt: skip


def asked(client: Client, service: CoreService) -> dict[str, float]:
    """CPU milliseconds of this process for some questions, the client's own part included; the better of two."""
    waits = next(job.id for job in reversed(service.store.book.active.values()) if not job.attempts)
    found = {}
    for name, ask in (
        ("nodes", client.nodes), ("ps", client.jobs), ("why", lambda: client.why(waits)), ("metrics", client.metrics),
    ):  # fmt: skip
        times = []
        for _ in range(2):
            began_s = time.process_time()
            ask()
            times.append(time.process_time() - began_s)
        found[name] = 1e3 * min(times)
    return found


def crashed(service: CoreService, backend: FakeBackend, home: Path, policy: str) -> dict[str, Any]:
    """A snapshot, and a new service over what is there."""
    began_s = time.process_time()
    size = len(service.store.book.freeze())
    service.store.snapshot()
    took_s = time.process_time() - began_s
    jobs = len(service.store.book.jobs)
    service.store.journal.close()
    began_s = time.process_time()
    again = opened(home, backend.reopen(), policy)
    again.tick()
    assert len(again.store.book.jobs) == jobs
    again.store.journal.close()
    return {"snapshot_bytes": size, "snapshot_s": took_s, "again_s": time.process_time() - began_s}


def journal_bytes(home: Path) -> int:
    return sum(path.stat().st_size for path in home.glob("journal.db*"))


def memory_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
