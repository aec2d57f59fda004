"""What befalls a service from below, one fault after the other, and what its operator sees.

    python -m bench.fault_table [--only WORD ...] [--long]

Every row starts a real service on two virtual GPUs with two running jobs and one that waits, breaks something, looks,
mends it, and lets the jobs end; each job keeps a diary, by which lost, doubled and killed ones are counted. Loopback
only; the clock that is set is that of the service's process alone. Rows are printed as they are done, in Markdown.
`--long` has PostgreSQL stay away for 60 s of real time too. Ten minutes are shortened: the service is told that they
have passed. Rows that need root (a small tmpfs) or PostgreSQL are left out where those are missing, and say so.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.fault_kit import Case
from cotenant.core.errors import CotenantError

ROOT = Path(__file__).resolve().parents[1]
DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Row:
    """One fault: how many jobs were lost, begun twice, or ended by it, and what was said."""

    fault: str
    lost: int
    doubled: int
    killed: int
    seen: str
    seconds: float

    @property
    def good(self) -> bool:
        """Whether nobody came to harm."""
        return not (self.lost or self.doubled or self.killed)


class LeftOut(Exception):
    """This cannot be tried here."""


def swapped(case: Case) -> str:
    """Started with another journal by mistake, then with the right one."""
    case.begin()
    case.kill()
    said = case.start("--db", str(case.folder / "other.db"))
    _all_alive(case)
    _must_start(case)
    return said


def _damaged(case: Case, damage: Callable[[Path], None]) -> str:
    """The journal is damaged while the service is down; it refuses; a backup is restored, later jobs adopted."""
    case.begin()
    case.client.backup("copy.db")
    case.let_go("short")
    case.until(lambda: str(case.client.job(case.jobs["short"]).state) == "succeeded")
    case.end()
    damage(case.home / "journal.db")
    said = case.start()
    if not said:
        raise RuntimeError("nobody noticed")
    _restore(case)
    if text := case.start():
        raise RuntimeError(text)
    return said


def emptied(case: Case) -> str:
    """`> journal.db`"""
    return _damaged(case, lambda path: path.write_bytes(b""))


def truncated(case: Case) -> str:
    """Half of the file is gone."""
    return _damaged(case, lambda path: os.truncate(path, path.stat().st_size // 2))


def garbage_page(case: Case) -> str:
    """One page in the middle is noise."""

    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        middle = len(data) // 2 // 4096 * 4096
        data[middle : middle + 4096] = os.urandom(4096)
        path.write_bytes(data)

    return _damaged(case, damage)


def garbage_text(case: Case) -> str:
    """Some letters inside a record are others; the database finds nothing wrong with it."""

    def damage(path: Path) -> None:
        data = path.read_bytes()
        path.write_bytes(data.replace(b'"name":"waits"', b'"name":"wairs"'))

    return _damaged(case, damage)


def without_wal(case: Case) -> str:
    """Killed, and its -wal file deleted: the newest records are gone. Running jobs are adopted."""
    case.begin()
    case.client.backup("copy.db")
    case.kill()
    (case.home / "journal.db-wal").unlink()
    said = case.start()
    _restore(case)
    if text := case.start():
        raise RuntimeError(text)
    return said


def lost_and_adopted(case: Case) -> str:
    """The journal is gone and there is no backup: running jobs are adopted, what waited must be sent again."""
    case.begin()
    case.kill()
    for path in case.home.glob("journal.db*"):
        path.unlink()
    said = case.start()
    _all_alive(case)
    if text := case.start("--unknown-jobs", "adopt"):
        raise RuntimeError(text)
    del case.jobs["waits"]  # a journal that is gone for good takes with it what only it knew
    return said


def moved_away(case: Case) -> str:
    """The file is deleted while the service runs, and put back."""
    case.begin()
    path = case.home / "journal.db"
    path.rename(case.folder / "elsewhere.db")
    said = _refused(case)
    case.let_go("short")
    _all_alive(case, 1)
    (case.folder / "elsewhere.db").rename(path)
    case.until(lambda: case.ready().startswith("200"))
    return said


def read_only(case: Case) -> str:
    """The file system is read-only at a start."""
    disk = case.folder / "disk"
    with _tmpfs(case, disk, "16m"):
        case.db = str(disk / "journal.db")
        case.begin()
        case.kill()
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        said = case.start()
        _all_alive(case)
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        _must_start(case)
        return _finish_inside(case, said)


def disk_full(case: Case) -> str:
    """A job fills the disk with the journal on it. It is cancelled; submissions are refused; then there is space."""
    with _tmpfs(case, case.home, "16m"):
        case.begin()
        fill = f"until false; do cat /dev/zero >> {case.home}/fill 2>/dev/null; sleep 0.02; done"
        ((filler,),) = case.client.submit([{"run": fill, "name": "filler"}])
        case.let_go("short")  # makes room for it, once `waits` has run
        case.let_go("long", "waits")
        case.until(lambda: case.ready().startswith("503"))
        said = f"/readyz {case.ready()}"
        try:
            case.client.submit([{"run": "true"}])
        except CotenantError as error:
            said += f" · submit {error}"
        case.client.cancel(filler)
        case.until(lambda: not case.alive())
        (case.home / "fill").unlink()
        case.until(lambda: case.ready().startswith("200"))
        case.until(lambda: str(case.client.job(filler).state) == "cancelled")
        return _finish_inside(case, said)


def postgresql_away(case: Case, seconds: float, passed_s: float = 0.0) -> str:
    """The server is killed, a job ends meanwhile, submissions are refused; then the server is back."""
    with postgresql() as server:
        case.db = server.new_schema()
        case.begin()
        server.stop()
        began = time.monotonic()
        case.until(lambda: case.ready().startswith("503"))
        case.let_go("short")
        said = _refused(case)
        case.set_clock(passed_s=passed_s)
        time.sleep(max(0.0, seconds - (time.monotonic() - began)))
        _all_alive(case, 1)
        server.start()
        case.until(lambda: case.ready().startswith("200"))
        return _finish_inside(case, said)


def clock_set(case: Case, by_s: float, restarts: bool) -> str:
    """The clock is set by a day, while the service runs or while it is down; a job has a limit of an hour."""
    case.begin()
    if restarts:
        case.kill()
    case.set_clock(by_s)
    if restarts:
        _must_start(case)
    case.submit("later")
    case.until(lambda: "clock was set" in case.log.read_text())
    case.let_go("short")
    case.until(lambda: str(case.client.job(case.jobs["short"]).state) == "succeeded")
    return case.said("clock was set")


def stopped(case: Case) -> str:
    """The service is killed for ten minutes (told, not waited for); one job ends meanwhile."""
    case.begin()
    case.kill()
    case.let_go("short")
    case.until(lambda: "ended" in case.diary.read_text())
    case.set_clock(passed_s=600.0)
    _must_start(case)
    return "(nothing: it goes on)"


def shut_down(case: Case) -> str:
    """`cotenant shutdown --jobs keep`, then a start."""
    case.begin()
    case.client.shut_down("keep")
    case.until(case.ended)
    _all_alive(case)
    _must_start(case)
    return "the service has ended, jobs: keep"


ROWS: dict[str, Callable[[Case], str]] = {
    "journal swapped": swapped,
    "journal emptied": emptied,
    "journal truncated": truncated,
    "journal: a garbage page": garbage_page,
    "journal: garbage in a record": garbage_text,
    "journal: -wal deleted": without_wal,
    "journal lost, no backup": lost_and_adopted,
    "journal moved away in use": moved_away,
    "journal read-only": read_only,
    "disk full": disk_full,
    "PostgreSQL away 5 s": lambda case: postgresql_away(case, 5.0),
    "PostgreSQL away 60 s": lambda case: postgresql_away(case, 60.0),
    "PostgreSQL away 10 min (told)": lambda case: postgresql_away(case, 10.0, 590.0),
    "clock +1 day": lambda case: clock_set(case, DAY_S, restarts=False),
    "clock -1 day": lambda case: clock_set(case, -DAY_S, restarts=False),
    "clock +1 day while stopped": lambda case: clock_set(case, DAY_S, restarts=True),
    "clock -1 day while stopped": lambda case: clock_set(case, -DAY_S, restarts=True),
    "service stopped 10 min (told)": stopped,
    "service shut down, jobs kept": shut_down,
}
LONG = ("PostgreSQL away 60 s",)


def _refused(case: Case) -> str:
    try:
        case.client.submit([{"run": "true"}])
    except CotenantError as error:
        return f"/readyz {case.ready()} · submit {error}"
    raise RuntimeError("a submission was taken that could not be kept")


def _all_alive(case: Case, least: int = 2) -> None:
    if case.alive() < least:
        raise RuntimeError("a running job was killed")


def _must_start(case: Case) -> None:
    if text := case.start():
        raise RuntimeError(text)


def _restore(case: Case) -> None:
    command = [sys.executable, "-m", "cotenant.cli.main", "restore", case.home / "backups" / "copy.db"]
    subprocess.run([*command, "--to", case.home, "--force"], check=True, stdout=subprocess.DEVNULL)


def _finish_inside(case: Case, said: str) -> str:
    """Bring the case to its end before what it stands on is taken away."""
    case.result = case.finish()
    case.close()
    return said


@contextmanager
def _tmpfs(case: Case, disk: Path, size: str) -> Iterator[None]:
    disk.mkdir(mode=0o700)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "cotenant", disk], capture_output=True
    )
    if done.returncode:
        raise LeftOut("needs root, to mount a small tmpfs")
    try:
        yield
    finally:
        case.close()
        subprocess.run(["umount", "-l", disk], check=False)


@contextmanager
def postgresql() -> Iterator[Any]:
    sys.path.insert(0, str(ROOT / "tests" / "journal"))
    try:
        kit = importlib.import_module("journal_postgres")
        binaries = kit.find_binaries()
    except BaseException as error:  # pytest's own, where it is not installed
        raise LeftOut(f"needs PostgreSQL: {error}") from None
    finally:
        sys.path.pop(0)
    with kit.PostgresServer(binaries) as server:
        yield server


def try_one(fault: str) -> Row:
    """One row, in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="cotenant-fault-"))
    case, began = Case(folder), time.monotonic()
    try:
        seen = ROWS[fault](case)
        lost, doubled, killed = case.result if case.result is not None else case.finish()
        return Row(fault, lost, doubled, killed, _plain(seen, folder), time.monotonic() - began)
    finally:
        case.close()
        shutil.rmtree(folder, ignore_errors=True)


def _plain(text: str, folder: Path) -> str:
    """What was said, without names and times of this very run, nor what the driver had to say."""
    text = " ".join(text.replace(str(folder), "...").split()).removeprefix("cotenant: ")
    text = re.sub(r"postgresql://[^']*", "postgresql://...", text)
    text = re.sub(r" \(connection failed: [^)]*\)", "", text)
    return re.sub(r"^[-0-9]+ [:0-9]+ ", "", text)


def main() -> None:
    """Try them all, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], help="rows whose name holds one of these words")
    parser.add_argument("--long", action="store_true", help="those too that take more than half a minute")
    given = parser.parse_args()
    sys.stdout.write("| fault | lost | doubled | killed | what the operator saw |\n|---|---|---|---|---|\n")
    bad = 0
    for fault in ROWS:
        if (given.only and not any(word in fault for word in given.only)) or (fault in LONG and not given.long):
            continue
        try:
            row = try_one(fault)
            bad += not row.good
            sys.stdout.write(
                f"| {fault} | {row.lost} | {row.doubled} | {row.killed} | {row.seen.replace('|', '/')} |\n"
            )
            sys.stdout.flush()
        except LeftOut as why:
            sys.stderr.write(f"{fault}: left out: {why}\n")
        except (RuntimeError, TimeoutError, CotenantError) as error:
            bad += 1
            sys.stderr.write(f"{fault}: FAILED: {error}\n")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
