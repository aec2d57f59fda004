"""What plan policies, rounds and a few slow commands take as whole commands: `python -m bench.policies`.

Every row is one command of a fresh process, start-up, reading and printing included, beside the limit that the project
has set itself. Wall seconds count; CPU seconds are shown because other work on the machine makes wall times longer.
COTENANT_DATA (default ../shared/data) names the folder above traces/, gavel/, muri/ and chronus/; rows whose data are
not there are left out and say so. `--only TEXT` runs the rows with this text in their names. Exit status 1 for a miss.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.quiet import Others

DATA = Path(os.environ.get("COTENANT_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
PHILLY = DATA / "traces" / "philly_109k.csv.gz"
MUCH = "philly-like:jobs=100000,load=0.9,models=h200"
FEW = "philly-like:jobs=2000,load=0.9,models=h200"
SHARING = "sjf-bsbf,sjf-bsbf-paper,sjf-ffs,antman,gandiva,horus,horus+,muri-s,muri-l"


@dataclass(frozen=True, slots=True)
class Row:
    """A command of `cotenant`, the seconds that it may take, and the files without which it is left out."""

    name: str
    limit_s: float
    words: tuple[str, ...]
    needs: tuple[Path, ...] = ()


def _simulate(name: str, limit_s: float, words: str, *needs: Path) -> Row:
    return Row(name, limit_s, ("simulate", *words.split()), needs)


def _on_philly(name: str, limit_s: float, words: str, *needs: Path) -> Row:
    return _simulate(name, limit_s, f"{PHILLY} {words} --policy gavel:objective=las --skip-infeasible", PHILLY, *needs)


RATES = DATA / "gavel" / "simulation_throughputs.json.gz"
TRACE2, WEEK = DATA / "muri" / "trace2.csv", DATA / "chronus" / "mix1_sample_10pc_week1.csv.gz"
ROWS = (
    _on_philly("Gavel LAS, Philly, 1,024 GPUs", 15, "--cluster 128x8"),
    _on_philly("Gavel LAS, Philly, 3,072 GPUs of three types", 20,
               f"--models gavel --profile {RATES} --cluster 128x8:v100+128x8:p100+128x8:k80", RATES),
    _simulate("muri-s, trace2", 8, f"{TRACE2} --cluster 8x8 --policy muri-s --costs startup", TRACE2),
    _simulate("chronus, a week", 5, f"{WEEK} --cluster 12x8 --policy chronus", WEEK),
    *(_simulate(f"{name}, 100,000 jobs, 1,024 GPUs", 60, f"{MUCH} --profile h200 --cluster 128x8 --policy {name}")
      for name in ("sjf-bsbf", "antman", "gandiva", "horus")),
    *(_simulate(f"{name}, 2,000 jobs, 128 GPUs", 1.5, f"{FEW} --profile h200 --cluster 16x8 --policy {name}")
      for name in ("muri-s", "sjf-bsbf")),
    _simulate("--power ces, 1,000 jobs", 3.7, "philly-like:jobs=1000,seed=1,load=0.9 --cluster 16x8 --power ces"),
    Row("estimator evaluate, 50,000 jobs", 5.7, ("estimator", "evaluate", "philly-like:jobs=50000,seed=1")),
    Row("nine sharing policies, 500 jobs", 4.0,
        ("compare", "philly-like:jobs=500,seed=1,load=0.9,models=h200", "--profile", "h200", "--cluster", "8x8",
         "--policies", SHARING)),
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rows and print them; 1 where one took too long or failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.policies", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="", help="rows with this text in their names")
    only = parser.parse_args(arguments).only
    others, missed = Others(), 0
    print(f"{'':<46}{'wall s':>9}{'CPU s':>9}{'limit s':>9}  verdict", flush=True)
    for row in ROWS:
        if only not in row.name:
            continue
        if not all(file.is_file() for file in row.needs):
            print(f"{row.name:<46}{'-':>9}{'-':>9}{row.limit_s:>9g}  its data are not in COTENANT_DATA", flush=True)
            continue
        wall_s, cpu_s, good = _time(row.words)
        verdict = ("within" if wall_s <= row.limit_s else "MISSED") if good else "FAILED"
        missed += verdict != "within"
        print(f"{row.name:<46}{wall_s:>9.1f}{cpu_s:>9.1f}{row.limit_s:>9g}  {verdict}", flush=True)
    print(others.text())
    return int(missed > 0)


def _time(words: Sequence[str]) -> tuple[float, float, bool]:
    """Wall and CPU seconds of a command, and whether it succeeded."""
    before, began = os.times(), time.perf_counter()
    command = [str(Path(sys.executable).with_name("cotenant")), *words]
    ran = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    wall_s, after = time.perf_counter() - began, os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return wall_s, cpu_s, ran.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
