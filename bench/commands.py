"""Whole commands against their limits, as a person waits for them: `python -m bench.commands [--only WORDS]`.

Each command is a process of its own; its wall time from start to end, the least of `--repeat`, and its peak memory. It
is run once before it is timed, which leaves bytecode and machine code behind as any first run does; only the first
large run begins with an empty cache of machine code. Exit code 1 where a limit is missed. The logs lie in
COTENANT_DATA (default ../shared/data).
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.quiet import Others

ORDERS = "fifo,backfill,easy,sjf,qssf,random,srtf,srsf,las,tiresias-l,tiresias-g,edf,ftf"
SWEPT = "fifo,easy,sjf,srtf,srsf,las,tiresias-l,tiresias-g"
SMALL = "philly-like:jobs=2000 --cluster 16x8"
LONG = "simulate philly-like:jobs=3000000,load=0.9,seed=1 --cluster 512x8 --policy srsf"


@dataclass(frozen=True, slots=True)
class Command:
    """What is run, and its limits: seconds from start to end, and MiB at its peak."""

    name: str
    words: str  # {logs}: the folder of the logs; {new}: an empty one
    limit_s: float | None = None
    limit_mib: float | None = None
    fresh: bool = False  # with an empty cache of machine code
    once: bool = False  # too long to repeat

    @property
    def needs_logs(self) -> bool:
        """Whether it reads one of the public logs."""
        return "{logs}" in self.words


COMMANDS = (
    Command("--help", "--help", 0.3),
    Command("Venus, srsf", "simulate {logs}/helios_venus_125k.csv.gz --cluster 80x8 --policy srsf", 1.2),
    Command("Philly, srsf", "simulate {logs}/philly_109k.csv.gz --cluster 128x8 --policy srsf", 1.8),
    *(Command(f"small, {name}", f"simulate {SMALL} --policy {name}", 0.6) for name in ORDERS.split(",")),
    *(Command(f"small, {name}", f"simulate {SMALL} --policy {name}", 1.5) for name in ("muri-s", "sjf-bsbf")),
    Command("first large run", "simulate philly-like:jobs=100000 --cluster 128x8 --policy srsf", 15.0, fresh=True),
    Command(
        "sweep",
        f"compare philly-like:jobs=20000 --cluster 128x8 --policies {SWEPT} --seeds 0-4 --loads 0.7,0.9",
        45.0,
        once=True,
    ),
    Command("long", LONG, limit_mib=2048.0, once=True),
    Command("long, --jobs-csv", f"{LONG} --jobs-csv {{new}}/jobs.csv", limit_mib=2048.0, once=True),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.commands", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="", help="commands whose name contains this")
    parser.add_argument("--repeat", type=int, default=3, help="times that each is run")
    options, others, missed = parser.parse_args(), Others(), 0
    logs = Path(os.environ.get("COTENANT_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data") / "traces"
    print(f"{'command':<30}{'wall s':>8}{'limit s':>9}{'peak MiB':>10}{'limit MiB':>11}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        for command in COMMANDS:
            if options.only not in command.name:
                continue
            if command.needs_logs and not logs.is_dir():
                print(f"{command.name:<30}  not run: COTENANT_DATA must name the folder above traces/")
                continue
            missed += not _measure(command, logs, Path(folder), env, options.repeat)
    print(others.text())
    sys.exit(1 if missed else 0)


def _measure(command: Command, logs: Path, folder: Path, env: Mapping[str, str], repeat: int) -> bool:
    """Print one line; whether the command kept its limits."""
    if not command.once:
        _run(command, logs, folder, env)
    runs = [_run(command, logs, folder, env) for _ in range(1 if command.once else repeat)]
    wall_s, peak_mib = min(wall_s for wall_s, _ in runs), max(mib for _, mib in runs)
    kept = wall_s <= (command.limit_s or wall_s) and peak_mib <= (command.limit_mib or peak_mib)
    limit_s = "" if command.limit_s is None else f"{command.limit_s:.1f}"
    limit_mib = "" if command.limit_mib is None else f"{command.limit_mib:,.0f}"
    line = f"{command.name:<30}{wall_s:>8.2f}{limit_s:>9}{peak_mib:>10,.0f}{limit_mib:>11}"
    print(line + ("" if kept else "   MISSED"), flush=True)
    return kept


def _run(command: Command, logs: Path, folder: Path, env: Mapping[str, str]) -> tuple[float, float]:
    """Wall seconds and peak MiB of the process that was started; those that it starts itself are not in the latter."""
    new = tempfile.mkdtemp(dir=folder)
    words = shlex.split(command.words.format(logs=logs, new=new))
    own = {**env, "COTENANT_CACHE": new} if command.fresh else env
    with open(f"{new}/said", "wb") as said:
        began = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, "-m", "cotenant.cli.main", *words], stdout=said, stderr=subprocess.STDOUT, env=own
        )
        _, status, used = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"bench.commands: cotenant {shlex.join(words)} failed:\n{Path(new, 'said').read_text()}")
    return wall_s, used.ru_maxrss / 1024


if __name__ == "__main__":
    main()
