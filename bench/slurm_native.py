"""Many short jobs through Slurm's native mode, with Slurm's own limits: `python -m bench.slurm_native [--jobs 10000]`.

Starts a real Slurm on this machine (MaxJobCount and MinJobAge as Slurm sets them by itself), launches jobs of a second
each through the backend, as fast as it takes them, and forgets each that has ended, as the service does. Exit code 1 if
a job is lost, doubled or ends otherwise than it should, if the controller refused one, if a poll took longer than a
second, or if all took longer than `--within` minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path

from cotenant.backends import LaunchSpec
from cotenant.backends.slurm.native import NativeBackend
from cotenant.testing.slurm_cluster import missing, slurm_cluster

AHEAD = 64  # launches that are under way at a time: the GPUs of the cluster, and as many again


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench.slurm_native")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--within", type=float, default=30.0, help="minutes")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each job sleeps")
    asked = parser.parse_args(argv)
    if why := missing():
        print(f"cannot run: {why}")
        return 2
    with tempfile.TemporaryDirectory() as name, slurm_cluster(Path(name) / "slurm", asked.nodes) as cluster:
        home = Path(name) / "home"
        home.mkdir()
        with contextlib.closing(NativeBackend(home, listen="tcp:127.0.0.1:0")) as backend:
            config = backend.slurm.config()
            print(
                f"MaxJobCount {config['MaxJobCount']}, MinJobAge {config['MinJobAge']}, load {os.getloadavg()[0]:.1f}"
            )
            return judge(*play(backend, asked.jobs, asked.seconds, home), backend, cluster.names, asked.within)


def play(backend: NativeBackend, jobs: int, seconds: float, home: Path) -> tuple[int, list[str], float, int]:
    """Launch and forget until all have ended: how many ended well, what went wrong, seconds, runs that were counted."""
    names, ran = [node.name for node in backend.nodes()], home / "ran"
    ran.mkdir()
    began, launched, well = time.monotonic(), 0, 0
    alive: set[str] = set()
    wrong: list[str] = []
    told = began
    while launched < jobs or alive:
        while launched < jobs and len(alive) < AHEAD:
            key = f"short-{launched + 1}"
            gpus = ((names[launched % len(names)], (launched // len(names) % 4,)),)
            backend.launch(
                LaunchSpec(key, "short", str(ran), script=f"mktemp -p . {key}.XXXX; sleep {seconds}", gpus=gpus)
            )
            alive.add(key)
            launched += 1
        for one in backend.observe():
            if one.state in ("exited", "lost"):
                well += one.exit_code == 0
                wrong += [] if one.exit_code == 0 else [f"{one.key}: {one.state} {one.exit_code} {one.message}"]
                backend.forget(one.key)
                alive.discard(one.key)
        if time.monotonic() - told > 30:
            told = time.monotonic()
            print(
                f"{told - began:6.0f} s: {well} of {jobs} done, slowest poll {backend.slurm.slowest_s:.2f} s",
                flush=True,
            )
        backend.wait_change(1.0)
    return well, wrong, time.monotonic() - began, len(list(ran.iterdir()))


def judge(
    well: int, wrong: list[str], took_s: float, runs: int, backend: NativeBackend, names: list[str], within: float
) -> int:
    slurm = backend.slurm
    print(
        f"{well} jobs ended well in {took_s:.0f} s ({well / took_s:.1f} a second) on {len(names)} nodes; {runs} runs; "
        f"{slurm.refused} refusals; {slurm.polls} polls, the slowest {slurm.slowest_s:.2f} s"
    )
    for line in wrong[:10]:
        print(line)
    checks = {
        "every job ended well": not wrong,
        "nothing ran twice or never": runs == well + len(wrong),
        "no refusal": slurm.refused == 0,
        "no poll above 1 s": slurm.slowest_s <= 1.0,
        f"within {within:g} minutes": took_s <= within * 60,
    }
    for what, true in checks.items():
        print(f"{'yes' if true else 'NO '}  {what}")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
