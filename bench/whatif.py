"""How long a what-if takes: `python -m bench.whatif [--policies gavel,ones] [--jobs 2000]`.

Jobs of 1 to 4 GPUs and a minute to two hours wait for one node of 4 GPUs; each policy plays them forward to their end,
or until its time is up (`--budget`, seconds). Told are the CPU seconds, how many jobs have a finish, and how often and
how long after each other the scheduler decided meanwhile, in a thread of its own as in the service.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from pathlib import Path

from cotenant.backends.base import NodeInfo
from cotenant.backends.fake import FakeBackend, Script
from cotenant.core.jobspec import JobSpec
from cotenant.journal.memory import MemoryJournal
from cotenant.policies import known_policies
from cotenant.service.core import CoreService
from cotenant.service.facade import Caller, Role, WhatIfWatch

ME = Caller("bench", Role.ADMIN)
TARGET_S = 5.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.whatif", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--policies", default=",".join(known_policies()))
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--budget", type=float, default=WhatIfWatch().budget_s, help="seconds per policy")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        service, backend = _waiting(options.jobs, Path(home))
        print(f"{'policy':16} {'CPU s':>7} {'forecast':>14}   decisions meanwhile, longest pause", flush=True)
        for policy in options.policies.split(","):
            _ask(service, backend, policy, options.budget)


def _ask(service: CoreService, backend: FakeBackend, policy: str, budget_s: float) -> None:
    watch, over, pauses = WhatIfWatch(budget_s), threading.Event(), [0.0]
    chance = random.Random(2)

    def schedule() -> None:
        last = time.perf_counter()
        while not over.wait(0.05):
            [[job]] = service.desk.submit(ME, [_some_job(chance)])
            backend.advance(1.0)
            service.tick()
            service.desk.cancel(ME, job)
            now = time.perf_counter()
            pauses.append(now - last)
            last = now

    scheduler = threading.Thread(target=schedule)
    scheduler.start()
    began_s = time.thread_time()
    answer = service.desk.whatif(ME, [policy], watch)
    took_s = time.thread_time() - began_s
    over.set()
    scheduler.join()
    known = sum(row[policy] is not None for row in answer["jobs"])
    slow = "" if took_s <= TARGET_S else "   told how far it was" if policy not in watch.partial else "   time was up"
    forecast = f"{known:,} of {len(answer['jobs']):,}"
    print(f"{policy:16} {took_s:7.2f} {forecast:>14}   {len(pauses) - 1}, {max(pauses):.2f} s{slow}", flush=True)


def _waiting(jobs: int, home: Path) -> tuple[CoreService, FakeBackend]:
    nodes = [NodeInfo("n0", "h200", 4, 64, 512.0)]
    backend = FakeBackend(nodes, behave=lambda spec: Script(duration_s=float("inf")))
    service = CoreService(MemoryJournal(), backend, home=home, clock=lambda: backend.now_s, inline=True)
    service.reconcile()
    chance = random.Random(1)
    service.desk.submit(ME, [_some_job(chance) for _ in range(jobs)])
    service.tick()
    return service, backend


def _some_job(chance: random.Random) -> JobSpec:
    return JobSpec(
        run="true", gpus=chance.choice((1, 1, 1, 2, 4)), tenant=chance.choice("abcd"),
        expected_s=chance.uniform(60, 7200),
    )  # fmt: skip


if __name__ == "__main__":
    main()
