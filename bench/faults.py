"""What breaks, in which phase of a job, on which backend: nothing acknowledged is lost, nothing runs twice.

    python -m bench.faults [--backend ray ...] [--fault WORD ...] [--phase WORD ...] [--sample 20 --seed 1]
                           [--state FILE] [--away 60] [--at-once]

Every cell starts a real service on a real world of two nodes (Ray, Slurm, the emulator of Kubernetes; or this machine)
with one job that runs, one that is brought into the phase and one that waits; then the fault, a further job meanwhile,
and all are let go. Each must succeed, end once, never run twice at a time; and begin once, unless the fault took its
process. `--state` keeps what is done, so that a run can go on where it ended (bad cells are tried again). `--away`: for
how long the control plane and the network are gone. The table is printed at the end; exit code 1 if a cell is bad.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bench.fault_acts import ACTS, Tools
from bench.fault_play import PHASES, Cell, Play, Verdict
from bench.fault_table import postgresql
from bench.fault_worlds import KINDS, OPENERS, Cable, World

ON_POSTGRES = ("leader killed", "PostgreSQL restarted")
DISK = "24m"


def cells() -> list[Cell]:
    """All of the table, those of one world together."""
    found = [Cell(fault, phase, where) for where, fault, phase in itertools.product(KINDS, ACTS, PHASES)]
    return sorted(found, key=lambda cell: (list(KINDS).index(cell.backend), cell.fault == "network cut"))


def senseless(cell: Cell) -> str:
    """Why this cell says nothing; empty if it does."""
    reasons = KINDS[cell.backend].senseless
    return str(reasons.get(cell.fault, reasons.get(cell.phase, "")))


class Lab:
    """Worlds, one at a time, and what else there is to be broken."""

    def __init__(self, away_s: float) -> None:
        self._away_s, self._numbers = away_s, itertools.count()
        self._stack, self._inside, self._open = ExitStack(), ExitStack(), ("", False)
        self._world: Any = None
        self._disk = Path()
        self._tools = Tools()

    def world(self, backend: str, apart: bool) -> World:
        """The one that is open, if it will do."""
        if self._open != (backend, apart):
            self.leave()
            folder = Path(tempfile.mkdtemp(prefix="cotenant-world-"))
            self._inside.callback(shutil.rmtree, folder, ignore_errors=True)
            self._disk = (
                folder / "disk"
            )  # before the world is there, or nodes with mounts of their own would not see it
            self._inside.enter_context(_small_disk(self._disk))
            more = {}
            if apart:
                cable = Cable()
                self._inside.callback(cable.close)
                self._tools, more = replace(self._tools, cable=cable), {"cable": cable}
            self._world = OPENERS[backend](folder, **more)
            self._inside.callback(self._world.close)
            self._open = backend, apart
        world: World = self._world
        return world

    def leave(self) -> None:
        """Close the world that is open."""
        self._inside.close()
        self._open, self._tools = ("", False), replace(self._tools, cable=None)

    def close(self) -> None:
        """Close everything."""
        self.leave()
        self._stack.close()

    def try_one(self, cell: Cell) -> Verdict:
        """One cell, in a folder of its own."""
        began_s = time.monotonic()
        try:
            found = self._play(cell)
        except Exception as error:
            at = [frame.name for frame in traceback.extract_tb(error.__traceback__) if "fault" in frame.filename]
            found = Verdict(note=f"{type(error).__name__} in {' > '.join(at)}: {str(error)[-600:]}")
        if not found.good:
            self.leave()  # whatever it left behind is not the next one's
        return replace(found, seconds=round(time.monotonic() - began_s, 1))

    def _play(self, cell: Cell) -> Verdict:
        world = self.world(cell.backend, cell.fault == "network cut")
        if cell.fault in ON_POSTGRES and self._tools.postgres is None:
            self._tools = replace(self._tools, postgres=self._stack.enter_context(postgresql()))
        with ExitStack() as stack:
            folder = Path(tempfile.mkdtemp(prefix="cotenant-fault-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            db = self._tools.postgres.new_schema() if cell.fault in ON_POSTGRES else ""
            home = folder / "home"
            if cell.fault == "disk full":
                home = self._disk / folder.name
                stack.callback(shutil.rmtree, home, ignore_errors=True)
            play = Play(cell, world, folder, home, db, self._tools.cable, self._away_s)
            stack.callback(play.close)
            play.begin()
            play.reach()
            ACTS[cell.fault](play, self._tools)
            found = play.end()
            play.close()
            if not world.clear(play.backend, play.service.home):
                self.leave()
            return found


@contextmanager
def _small_disk(path: Path) -> Iterator[None]:
    path.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "cotenant", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", path], check=False)


def chosen(asked: argparse.Namespace) -> list[Cell]:
    """The cells that are asked for, in order."""
    found = [
        cell for cell in cells()
        if (not asked.backend or cell.backend in asked.backend) and (not asked.phase or cell.phase in asked.phase)
        and (not asked.fault or any(word in cell.fault for word in asked.fault))
    ]  # fmt: skip
    if asked.sample:
        able = [cell for cell in found if not senseless(cell)]
        few = set(random.Random(asked.seed).sample(able, min(asked.sample, len(able))))
        found = [cell for cell in found if cell in few]
    return found


def read_state(path: Path | None) -> dict[Cell, Verdict]:
    """What was done before; of a cell that was tried several times the last."""
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    rows = [json.loads(line) for line in lines]
    return {Cell(**row["cell"]): Verdict(**row["verdict"]) for row in rows}


def table(found: dict[Cell, Verdict]) -> Iterator[str]:
    """In Markdown: of each fault and backend how many phases went well, of how many."""
    yield f"| fault | {' | '.join(KINDS)} |"
    yield f"|---|{'---|' * len(KINDS)}"
    for fault in ACTS:
        yield f"| {fault} | {' | '.join(_summary(found, fault, backend) for backend in KINDS)} |"


def _summary(found: dict[Cell, Verdict], fault: str, backend: str) -> str:
    able = [cell for phase in PHASES if not senseless(cell := Cell(fault, phase, backend))]
    done = [found[cell] for cell in able if cell in found]
    if not able:
        return "not tried" if senseless(Cell(fault, PHASES[0], backend)).startswith("not tried") else "no sense"
    if not done:
        return "not run"
    bad = [cell.phase for cell in able if cell in found and not found[cell].good]
    return f"{len(done) - len(bad)} of {len(able)}" + (f" (bad: {', '.join(bad)})" if bad else "")


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", nargs="+", default=[], choices=tuple(KINDS))
    parser.add_argument("--phase", nargs="+", default=[], choices=PHASES)
    parser.add_argument("--fault", nargs="+", default=[], help="faults whose name holds one of these words")
    parser.add_argument("--sample", type=int, default=0, help="so many cells, chosen by --seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--state", type=Path, help="what is done is kept here, and not done again")
    parser.add_argument("--away", type=float, default=60.0, help="seconds")
    parser.add_argument("--at-once", action="store_true", help="all backends at the same time")
    asked = parser.parse_args(argv)
    asked.ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.ending.set())  # after the present cells; worlds are closed
    found, todo = read_state(asked.state), []
    for cell in chosen(asked):
        if why := senseless(cell):
            print(f"no sense  {cell}: {why}")
        elif cell not in found or not found[cell].good:
            todo.append(cell)
    worlds = [[*group] for _, group in itertools.groupby(todo, lambda cell: cell.backend)]
    with ThreadPoolExecutor(len(worlds) or 1 if asked.at_once else 1) as pool:
        for tried in pool.map(lambda group: [*in_turn(group, asked)], worlds):
            found.update(tried)
    print("\n".join(table(found)))
    return 1 if any(cell not in found or not found[cell].good for cell in todo) else 0


def in_turn(cells: Sequence[Cell], asked: argparse.Namespace) -> Iterator[tuple[Cell, Verdict]]:
    """One after the other, each told and kept when it is done."""
    lab = Lab(asked.away)
    try:
        for cell in itertools.takewhile(lambda _: not asked.ending.is_set(), cells):
            verdict = lab.try_one(cell)
            print(_line(cell, verdict), flush=True)
            if asked.state is not None:
                with asked.state.open("a") as file:
                    file.write(json.dumps({"cell": asdict(cell), "verdict": asdict(verdict)}) + "\n")
            yield cell, verdict
    finally:
        lab.close()


def _line(cell: Cell, verdict: Verdict) -> str:
    counts = f"lost {verdict.lost}, doubled {verdict.doubled}, again {verdict.again}, left {verdict.left}"
    text = f"{'good' if verdict.good else 'BAD '}  {cell}: {counts}; {verdict.seconds:.0f} s"
    return text + (f"\n      {verdict.note}" if verdict.note else "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
