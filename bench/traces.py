"""Real logs: does the simulator agree with published references, and how long does it take?

`python -m bench.traces`; COTENANT_DATA (default ../shared/data) names the folder above traces/ with the logs. Every
run is the command in a fresh process, so that times include start-up and reading. Two tables:

* agreement: average JCT under the authors' conditions (GPUs counted, no costs) beside the value that the
  released simulator of Tiresias gives on its own trace. `difference` is ours over the reference, minus 1.
* speed: wall seconds per policy under those conditions and under the defaults (consolidated placement, a cost
  per preemption), and the limit that the project has set itself. `of limit` is wall seconds over the limit:
  below 1 is within it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

COUNT = ("--placement", "count", "--costs", "none")
POLICIES = "fifo,backfill,easy,sjf,random,srtf,srsf,las,tiresias-l,tiresias-g"
OWN = f"{Path(__file__).resolve().parents[1] / 'examples' / 'policies' / 'numpy_srsf.py'}:NumpySrsf"

# (log, cluster, policy, average JCT of the reference in seconds, allowed difference in seconds)
REFERENCES = (
    ("tiresias_60_job.csv", "2x4", "fifo", 1556.5, 0.1),
    ("tiresias_60_job.csv", "2x4", "backfill", 715.3, 0.1),
    ("tiresias_60_job.csv", "2x4", "srsf", 563.4, 0.1),
    ("tiresias_480_synthetic_job.csv", "15x4", "fifo", 8840.4, 0.1),
    ("tiresias_480_synthetic_job.csv", "15x4", "backfill", 4699.4, 0.1),
    ("tiresias_480_synthetic_job.csv", "15x4", "srsf", 1715.0, 0.1),
    ("tiresias_480_synthetic_job.csv", "15x4", "tiresias-l", 2882.8, 0.1),
)

# (log, cluster, limit in seconds, limit of tiresias-g)
LOGS = (("philly_109k.csv.gz", "128x8", 8.0, 20.0), ("helios_venus_125k.csv.gz", "80x8", 4.0, 4.0))
LIMIT_OF_NUMPY_S = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.traces", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--policies", default=POLICIES, help="policies of the speed table")
    parser.add_argument("--only", choices=("agreement", "philly", "helios"), help="one table")
    options = parser.parse_args()
    folder = _folder()
    if options.only in (None, "agreement"):
        _agreement(folder)
    for log, cluster, limit_s, limit_g_s in LOGS:
        if options.only is None or log.startswith(options.only):
            _speed(folder / log, cluster, options.policies.split(","), limit_s, limit_g_s)


def _folder() -> Path:
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("COTENANT_DATA") or default) / "traces"
    if not folder.is_dir():
        sys.exit(f"bench.traces: {folder} is not a folder; COTENANT_DATA must name the folder above traces/")
    return folder


def _run(log: Path, cluster: str, policy: str, *options: str) -> dict[str, Any]:
    """Summary of one run, with its wall seconds from start to end as `total_s`."""
    cotenant = (sys.executable, "-m", "cotenant.cli.main")
    command = [*cotenant, "simulate", str(log), "--cluster", cluster, "--policy", policy, *options]
    began = time.perf_counter()
    ran = subprocess.run([*command, "--json", "-"], capture_output=True, text=True, check=False)
    total_s = time.perf_counter() - began
    if ran.returncode:
        sys.exit(f"bench.traces: {' '.join(command)} failed:\n{ran.stderr}")
    return {**json.loads(ran.stdout), "total_s": total_s}


def _agreement(folder: Path) -> None:
    print("average JCT against the simulator released with Tiresias (GPUs counted, no costs)")
    print(f"{'log':<32}{'cluster':<9}{'policy':<26}{'ours s':>10}{'reference s':>13}{'difference':>12}{'':>9}")
    for log, cluster, policy, reference, allowed in REFERENCES:
        compat = ("--compat", "tiresias") if policy == "tiresias-l" else ()
        ours = _run(folder / log, cluster, policy, *COUNT, *compat)["avg_jct_s"]
        name = policy + (" --compat tiresias" if compat else "")
        verdict = "agrees" if abs(ours - reference) <= allowed else "DIFFERS"
        print(
            f"{log:<32}{cluster:<9}{name:<26}{ours:>10.1f}{reference:>13.1f}"
            f"{100 * (ours / reference - 1):>+10.3f} %{verdict:>9}",
            flush=True,
        )


def _speed(log: Path, cluster: str, policies: list[str], limit_s: float, limit_g_s: float) -> None:
    print(f"\nwall seconds, start-up and reading included: {log.name} on {cluster}")
    heads = ("limit s", "count s", "of limit", "defaults s", "avg JCT s", "defaults", "peak MiB")
    print(f"{'policy':<20}" + "".join(f"{head:>12}" for head in heads))
    rows = [(policy, policy, limit_g_s if policy.startswith("tiresias-g") else limit_s) for policy in policies]
    if log.name.startswith("philly"):
        rows.append(("srsf in NumPy", OWN, LIMIT_OF_NUMPY_S))
    for name, policy, limit in rows:
        count, usual = _run(log, cluster, policy, *COUNT), _run(log, cluster, policy)
        peak = max(count["peak_rss_mib"], usual["peak_rss_mib"])
        print(
            f"{name:<20}{limit:>12.0f}{count['total_s']:>12.2f}{count['total_s'] / limit:>12.2f}"
            f"{usual['total_s']:>12.2f}{count['avg_jct_s']:>12,.0f}{usual['avg_jct_s']:>12,.0f}{peak:>12,.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
