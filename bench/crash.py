"""`kill -9` of the live service at many points, and what is left afterwards: `python -m bench.crash --points 500`.

Tiny real jobs run on a real journal (SQLite) and real processes. The service is forked from this process, which
has everything imported, and killed: at the n-th of its steps (it says so before and after every journal write
and every act), at the next step of a chosen kind, or at a random instant. Then it is started again on the same
home. A round ends when all its jobs have ended; an undisturbed round comes first and says what must come out.

Jobs hold a lock of their own name and one per GPU for as long as any process of theirs lives, so that two at
once see each other, whatever the service believes. Of two on one GPU at most one may run: the others
stand still, or are being killed. Under a policy that shares GPUs (with a `--profile` that knows pairs) as many
may run there as it allows, but jobs that take turns never at once. One job is elastic and is resized on the way.
What users were told and what was measured (promises, what policies remember, costs, levels and terms) counts like jobs:
a restarted service that does not know it, or takes a promise back without giving its GPUs to others, has forgotten it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from bench.crash_jobs import AHEAD_KINDS, KINDS, End, plan, quick
from bench.crash_round import FAULTS, Round, Tally
from bench.crash_service import GRACE_S, ME, isolation
from cotenant.backends.local import LocalBackend
from cotenant.core.errors import CotenantError
from cotenant.core.jobspec import JobSpec
from cotenant.service.options import Options
from cotenant.service.run import Site, open_service
from cotenant.service.store import store


def main() -> int:
    options = _options()
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    store.SNAPSHOT_EVERY = 12
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(options.home or tempfile.mkdtemp(prefix="cotenant-crash-"))
    if options.isolation != "none":
        folder.chmod(0o711)  # tenants pass through; the homes in it are closed
    tally, began = Tally(), time.monotonic()
    expected: dict[str, End] | None = None
    kills = plan(random.Random(options.seed), [*KINDS, *AHEAD_KINDS * 2] if options.prefetch else KINDS)
    try:
        _warm(folder)
        while tally.rounds <= 1 or tally.points < options.points:
            number = tally.rounds
            now = Round(folder / f"round-{number}", options, number, tally)
            try:
                now.play(kills, options.points if number else 0)
            finally:
                now.end()
            try:
                ends = now.check(expected)
            except CotenantError as error:
                tally.fault("lost", f"round {number}: the journal cannot be read: {error}")
                break
            expected = expected or ends
            if tally.notes:
                break
            shutil.rmtree(folder / f"round-{number}", ignore_errors=True)
            if not options.json:
                print(f"round {number}: {tally.points} points, {time.monotonic() - began:.0f} s", flush=True)
    finally:
        _clear(folder, options)
    _print(tally, time.monotonic() - began, options)
    return 1 if tally.faults else 0


def _warm(folder: Path) -> None:
    """Load in this process, once, what every service would load: policies, SQL, tables."""
    service = open_service(Options(folder / "warm", GRACE_S, policy="srtf"), Site(gpus=1))
    service.desk.submit(ME, [JobSpec(run="exit 0")])
    while service.store.book.active:
        service.tick()
        service.backend.wait_change(0.2)
    service.close()


def _clear(folder: Path, options: argparse.Namespace) -> None:
    """After a fault or Ctrl-C: leave no process behind."""
    for home in folder.glob("round-*/home"):
        backend = LocalBackend(home / "jobs", home=home, gpus=options.gpus, isolation=isolation(home, options))
        for item in backend.observe():
            backend.kill(item.key)
        backend.close()
    if not options.keep:
        shutil.rmtree(folder, ignore_errors=True)


def _print(tally: Tally, seconds: float, options: argparse.Namespace) -> None:
    facts = {
        "points": tally.points, "seed": options.seed, "rounds": tally.rounds, "jobs": tally.jobs,
        "attempts": tally.attempts, "restarts": tally.restarts, "preemptions": tally.preemptions,
        "suspensions": tally.suspensions, "turns": tally.turns, "resizes": tally.resizes, "company": tally.shared,
        "promises": tally.promises, "memories": tally.memories, "ahead": tally.ahead, "in vain": tally.in_vain,
        **{name: tally.faults[name] for name in FAULTS}, "seconds": round(seconds, 1),
    }  # fmt: skip
    if options.json:
        print(json.dumps({**facts, "kills": tally.kills, "notes": tally.notes}))
        return
    print("\nkills by kind of point")
    for point, count in sorted(tally.kills.items(), key=lambda item: (-item[1], item[0])):
        print(f"  {point:<20} {count:>5}")
    print()
    for name, value in facts.items():
        print(f"{name:<20} {value:>7}")
    for note in tally.notes:
        print(note)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.crash", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--points", type=int, default=500, help="how often to kill")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gpus", type=int, default=4, help="virtual GPUs")
    parser.add_argument("--jobs", type=int, default=32, help="jobs per round, about")
    parser.add_argument("--policy", type=quick, default="srtf", help="gandiva: with turns of a tenth of a second")
    parser.add_argument("--profile", default="none", help="speeds of models and pairs: h200 lets jobs share GPUs")
    parser.add_argument(
        "--prefetch", action="store_true", help="start jobs ahead of their GPUs, and have some that can"
    )
    parser.add_argument("--isolation", default="none", help="none; or user or sandbox, as root")
    parser.add_argument("--home", help="an empty folder to work in")
    parser.add_argument("--keep", action="store_true", help="keep that folder")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
