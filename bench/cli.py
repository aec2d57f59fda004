"""How long calls of the command line to a running service take: `python -m bench.cli [--calls 10]`.

A service of its own on loopback, with one virtual GPU. Each call is a process; what counts is the CPU time of that
process (user and system, the least of the calls), since wall time on a shared machine says little.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.quiet import Others
from bench.service import served

TARGET_S = 0.4
VERBS = (
    "ps", "submit -- true", "submit --cpus 1 --retries 1 -- true", "show 1", "why 1", "logs 1", "events --limit 5",
    "wait 1", "nodes", "policy", "token list", "whatif --policy srtf", "top --once", "--help",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cli", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--calls", type=int, default=10, help="calls per verb")
    options, others = parser.parse_args(), Others()
    print(f"{'verb':40} {'CPU s':>7} {'wall s':>7}   (least of {options.calls})", flush=True)
    with tempfile.TemporaryDirectory() as home, served(Path(home), drained=False):
        env = {**os.environ, "COTENANT_HOME": home, "PYTHONPYCACHEPREFIX": f"{home}/bytecode"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        for verb in VERBS:
            _call(verb.split(), env)  # leaves bytecode behind, as an installed package has it
            cpu_s, wall_s = zip(*(_call(verb.split(), env) for _ in range(options.calls)), strict=True)
            missed = "" if min(cpu_s) <= TARGET_S else f"   MISSED: {TARGET_S} s"
            print(f"{verb:40} {min(cpu_s):7.2f} {min(wall_s):7.2f}{missed}", flush=True)
    print(f"during all this {others.text()}")


def _call(words: list[str], env: dict[str, str]) -> tuple[float, float]:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-m", "cotenant.cli.main", *words], env=env, capture_output=True, check=True)
    wall_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall_s


if __name__ == "__main__":
    main()
