"""What a hostile job of one tenant can do to another, by level of isolation: `python -m bench.isolation`, as root.

A real service runs a job of tenant B and then one of tenant A that tries everything (`bench.hostile_job`). A level that
promises to refuse an attempt and does not makes the exit code 1. The table stands in docs/threat-model.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotenant.backends.local import LocalBackend, procs
from cotenant.core.jobspec import JobSpec
from cotenant.core.lifecycle import FINAL, JobState
from cotenant.service.core import CoreService
from cotenant.service.facade import Caller, Role
from cotenant.service.options import Options
from cotenant.service.run import Site, first_token, open_service
from cotenant.testing.apart import open_folder, reachable_python

COLUMNS = ("none", "user", "sandbox", "sandbox, own network")
EVERYWHERE, APART, SANDBOX, OWN_NETWORK = COLUMNS, COLUMNS[1:], COLUMNS[2:], COLUMNS[3:]
PROMISED: dict[str, tuple[str, ...]] = {
    "read its log": APART, "read the log of an ended job": APART, "read its checkpoint": APART,
    "replace its checkpoint": APART, "read its home": APART, "read its environment": APART,
    "see its processes": SANDBOX, "read its memory": APART, "kill its processes": APART,
    "connect to its socket": APART, "connect to its port on loopback": OWN_NETWORK,
    "use its way to the service": APART, "use its GPU's device file": APART, "list the service's home": APART,
    "read the journal": APART, "read the admin's token": APART, "read the key of runtimes": APART,
    "change the system's files": APART, "signal another job of its own tenant": SANDBOX, "fork bomb": APART,
    "fill /tmp": SANDBOX, "keep running after its end": EVERYWHERE,
}  # fmt: skip
ADMIN = Caller("bench", Role.ADMIN)
SECRET, PIDS, TMP_MIB, PATIENCE_S = "what-only-b-may-know", 64, 16, 60.0
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one attempt."""

    refused: bool
    how: str


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.isolation", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--levels", default=";".join(COLUMNS), help="some of them, divided by ';'")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    columns = [name.strip() for name in options.levels.split(";")]
    found = {column: attack(column) for column in columns}
    broken = [(name, column) for column in columns for name in broken_promises(column, found[column])]
    if options.json:
        rows = {c: {n: {"refused": o.refused, "how": o.how} for n, o in found[c].items()} for c in columns}
        print(json.dumps({"found": rows, "broken": broken}, indent=1))
    else:
        print("\n".join(table(found)))
        for name, column in broken:
            print(f"NOT KEPT: {column}: {name}: {found[column][name].how}")
    return 1 if broken else 0


def broken_promises(column: str, found: dict[str, Outcome]) -> list[str]:
    """Attempts that should have been refused."""
    return [name for name, levels in PROMISED.items() if column in levels and not found[name].refused]


def table(found: dict[str, dict[str, Outcome]]) -> Iterator[str]:
    """In Markdown."""
    yield f"| A's job tries to | {' | '.join(found)} |"
    yield f"|---|{'---|' * len(found)}"
    for name in PROMISED:
        cells = ["refused" if outcomes[name].refused else "**open**" for outcomes in found.values()]
        yield f"| {name} | {' | '.join(cells)} |"


def attack(column: str) -> dict[str, Outcome]:
    """Let A loose on B in a service of this level."""
    with open_folder() as folder, _service(column, _with_programs(folder)) as service:
        targets = _victim(service, folder, column)
        env = {"TARGETS": json.dumps(targets)}
        job = _submit(service, "a", f"exec {reachable_python()} {folder}/hostile_job.py", env)
        _until(service, lambda: service.store.book.jobs[job].state in FINAL)
        complaint = service.backend.open_log(f"{job}-1", "stderr").read(0, 4096).data.decode()
        assert not complaint, complaint
        told = [json.loads(line) for line in _output(service, f"{job}-1").splitlines()]
        found = {one["attempt"]: Outcome(one["refused"], one["how"]) for one in told}
        stays = [pid for pid in _everybody() if targets["stay"].encode() in _cmdline(pid)]
        found["keep running after its end"] = Outcome(not stays, f"processes {stays}" if stays else "ended with it")
        killed = service.store.book.jobs[targets["job"]].state != JobState.RUNNING
        assert killed != found["kill its processes"].refused, "B's end is not what A says"
        assert found.keys() == PROMISED.keys(), found.keys() ^ PROMISED.keys()
        return found


def _with_programs(folder: Path) -> Path:
    """Where tenants can read them."""
    for name in ("hostile_job.py", "hostile_victim.py"):
        shutil.copy(HERE / name, folder)
        os.chmod(folder / name, 0o644)
    return folder


@contextmanager
def _service(column: str, folder: Path) -> Iterator[CoreService]:
    level, _, own_network = column.partition(",")
    apart = f",tenant_files={folder / 'tenants'},pids={PIDS},tmp_gib={TMP_MIB / 1024},expose={folder}/hostile_job.py"
    site = Site(
        backend="local" + f":{apart[1:]}:{folder}/hostile_victim.py" * (level != "none"), gpus=4, isolation=level,
        network="loopback" if own_network else "host",
    )  # fmt: skip
    home = folder / "home"
    home.mkdir(mode=0o700)
    service = open_service(Options(home, 1.0, policy="fifo"), site)
    first_token(service, home)
    events = asyncio.new_event_loop()
    thread = threading.Thread(target=events.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(service.reports.start(), events).result(10)
    try:
        yield service
    finally:
        for job in list(service.store.book.active):
            service.desk.cancel(ADMIN, job)
        _until(service, lambda: not service.store.book.active)
        asyncio.run_coroutine_threadsafe(service.reports.stop(), events).result(10)
        events.call_soon_threadsafe(events.stop)
        thread.join()
        events.close()
        service.close()


def _victim(service: CoreService, folder: Path, column: str) -> dict[str, Any]:
    """Start B's jobs and A's other one; returns where everything of B is."""
    home, apart = service.options.home, column != "none"
    ended = _submit(service, "b", f"echo {SECRET}", {})
    _until(service, lambda: service.store.book.jobs[ended].state in FINAL)
    (folder / "b").mkdir(mode=0o700)
    env = {"SECRET": SECRET, "VICTIM_HOME": "" if apart else str(folder / "b")}
    mark = f"victim-{os.getpid()}"
    job = _submit(service, "b", f"exec {reachable_python()} {folder}/hostile_victim.py {mark}", env)
    sibling = _submit(service, "a", "exec sleep 600", {})
    _until(service, lambda: _output(service, f"{job}-1").endswith("\n") and _program(service, sibling, b"sleep") != 0)
    *_, door, port = _output(service, f"{job}-1").split()
    pid = _program(service, job, mark.encode())
    used = service.store.book.jobs[job].last.gpus[0][1][0]
    state = home / "jobs" / "jobs" / f"{job}-1"
    sockets = [path for path in (folder / "tenants" / "run").glob("[!.]*/*") if path.stat().st_mode] if apart else []
    theirs = [path for path in sockets if path.parent.stat().st_gid == Path(door).stat().st_gid]
    return {
        "job": job, "pid": pid, "sibling": _program(service, sibling, b"sleep"), "mark": mark, "secret": SECRET,
        "log": str(state / "stdout-0.log"), "kept_log": str(home / "logs" / f"{ended}-1" / "stdout-0.log"),
        "checkpoint": f"{service.backend.checkpoint_dir(job)}/kept", "home_file": str(Path(door).parent / "kept"),
        "socket": door, "port": int(port), "runtime_socket": str(theirs[0] if apart else home / "runtime.sock"),
        "gpu_file": str(folder / "tenants" / "gpus" / f"gpu{used}") if apart else "", "service": str(home),
        "journal": str(home / "journal.db"), "token": str(home / "token"), "key": str(home / "runtime.key"),
        "forks": PIDS + 36, "fill_mib": TMP_MIB + 8, "stay": f"{600 + os.getpid()}.{time.monotonic_ns()}",
    }  # fmt: skip


def _submit(service: CoreService, tenant: str, run: str, env: dict[str, str]) -> str:
    return service.desk.submit(ADMIN, [JobSpec(run=run, tenant=tenant, env=env)])[0][0]


def _until(service: CoreService, done: Any) -> None:
    """Let the service work until something is so."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        service.tick()
        if done():
            return
        assert time.monotonic() < deadline, [
            (job.id, job.state, job.why, _output(service, job.key)) for job in service.store.book.jobs.values()
        ]
        service.backend.wait_change(0.05)


def _output(service: CoreService, key: str) -> str:
    return service.backend.open_log(key, "stdout").read(0, 1 << 20).data.decode()


def _program(service: CoreService, job: str, word: bytes) -> int:
    """The process of a job that runs its program: in a sandbox not the one that the service started. 0: not yet."""
    assert isinstance(service.backend, LocalBackend)
    mark = f"COTENANT_MARK={service.backend.label}/{job}-1".encode()
    for pid in _everybody():
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark in environ and word in _cmdline(pid):
            return pid
    return 0


def _everybody() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and procs.state_of(int(name)) not in "ZX"]


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


if __name__ == "__main__":
    sys.exit(main())
