"""How fast the cores of a machine are from moment to moment, and whether that is what varies the starts of jobs.

    python -m bench.gpu_host --file cores.json --seconds 1500 &      # while `bench.gpu_mix` runs
    python -m bench.gpu_host --file cores.json --state DIR           # afterwards: play by play, beside its starts

Every few seconds a fixed loop of Python runs on each core in turn, for two to four milliseconds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from pathlib import Path
from statistics import correlation, fmean, median
from typing import Any

from bench.gpu_mix import Kept, profile_for
from bench.gpu_mix_jobs import Setting
from bench.gpu_mix_renew import starts_off

EVERY_S = 5.0
ROUNDS = 40_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, required=True, help="what the looks at the cores gave")
    parser.add_argument("--seconds", type=float, default=0.0, help="look for so long")
    parser.add_argument("--state", type=Path, help="compare with the plays of `bench.gpu_mix` that are kept there")
    options = parser.parse_args()
    if not options.seconds and options.state is None:
        parser.error("say --seconds to look at the cores, or --state to compare what was seen with plays")
    if options.seconds:
        watch(options.file, options.seconds)
    if options.state is not None:
        compare(json.loads(options.file.read_text()), options.state)


def watch(file: Path, seconds: float) -> None:
    """Look until the time is over; what was seen so far is always in the file."""
    looks, until, cores = [], time.monotonic() + seconds, sorted(os.sched_getaffinity(0))
    while time.monotonic() < until:
        looks.append({"at_s": round(time.time(), 1), "ms": [round(on_core(core), 2) for core in cores]})
        file.write_text(json.dumps(looks, separators=(",", ":")) + "\n")
        time.sleep(EVERY_S)


def on_core(core: int) -> float:
    """Milliseconds of the loop there."""
    os.sched_setaffinity(0, {core})
    began, total = time.perf_counter(), 0
    for number in range(ROUNDS):
        total += number * number
    return 1e3 * (time.perf_counter() - began)


def compare(looks: list[dict[str, Any]], state: Path) -> None:
    """A line per play: the loop against its mean over all looks, and starts against the profile as measured."""
    setting = Setting(state.absolute())
    kept = Kept(state, setting.all_steps())
    file = profile_for(setting, kept, (), by_machine=False)
    every = [ms for look in looks for ms in look["ms"]]
    quick = median(ms for ms in every if ms < median(every))
    slow = fmean(ms > 1.3 * quick for ms in every)
    print(f"{len(looks)} looks at {len(looks[0]['ms'])} cores: {quick:.2f} ms, or longer by 30 % and more: {slow:.0%}")
    print(f"{'play':12} {'loop':>6} {'starts':>7}")
    rows = []
    for name, run in kept.data["runs"].items():
        first_s, last_s = run["jobs"][0]["submitted_s"], max(job["ended_s"] for job in run["jobs"])
        seen = [ms for look in looks if first_s <= look["at_s"] <= last_s for ms in look["ms"]]
        starts = starts_off(file, run)
        if seen and starts:
            rows.append((fmean(seen) / fmean(every), math.exp(fmean(starts))))
            print(f"{name:12} {rows[-1][0]:6.2f} {rows[-1][1]:7.2f}")
    if len(rows) > 2:
        print(f"correlation {correlation(*zip(*rows, strict=True)):+.2f}")


if __name__ == "__main__":
    main()
