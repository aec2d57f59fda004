"""Gavel beside its authors' simulator and paper: `python -m bench.gavel`.

COTENANT_DATA (default ../shared/data) names the folder above gavel/ with the authors' traces and throughputs. Tables:

* A, B, C: the authors' own traces under `--compat gavel`, beside what their simulator gives on the same input (window
  of jobs 100-199; whole trace for the static ones, C). `ratio` is ours over theirs, 3 % are allowed; random draws of
  FIFO are theirs, those of Gandiva are not: mean and range over seeds, and only their order counts. CPU seconds are
  those of the simulation, start-up and compilation apart; where theirs takes over 50 s, ours may take a hundredth.
* causes: space sharing and makespan on the trace of A, with and without the point at which the authors' solver stops.
* paper: workloads by the authors' generator, jobs 4000-4999 measured while others go on arriving, as theirs do (12,000
  jobs in all), mean of three seeds, beside the published hours. Four ways (`--way` for one): `--compat gavel`; the same
  without the wait between solves, which an earlier public version did not have (`no-wait`); the defaults without costs
  (`free`: GPUs that fall idle are used, arrivals need not wait); and the defaults (a preemption costs what the model's
  checkpoint costs). The factor of agnostic over aware may differ by 10 %.
  Runs of finish-time fairness take minutes each; with `--ecos` the authors' solver does it (`bench/gavel_ecos.py`).
* makespan: 700 jobs at once, mean of the authors' three traces.
* priorities: a fifth of the jobs with weight 5. rounds: longer rounds.
* philly: the whole Philly log on 3,072 GPUs of three types; `--only philly` runs it, nothing else does.

Exit status 1 where a row of A, B or C differs, a factor of the first two ways is outside, or Philly takes too long.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import gavel_ecos
from bench.gavel_runs import Run, data_folder, play_all, profile, warm_up
from cotenant.compat.gavel import GavelQuirks

LAS, FTF, MAKESPAN, FIFO = (f"gavel:objective={name}" for name in ("las", "ftf", "makespan", "fifo"))
BLIND = ",aware=false"
GANDIVA, ALLOX = "gandiva-packing", "allox"
COMPAT = ("gavel",)
STALE = ("gavel", "gavel:fifo.type_choice=stale")
SINGLE, MULTI = "cont_single_lam900_s0_n2000.trace.gz", "cont_multi_lam1800_s0_n2000.trace.gz"
WINDOW = (100, 199)
ALLOWED, ALLOWED_FACTOR = 0.03, 0.10
HEAVY_S, SHARE = 50.0, 0.01
PHILLY_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the reference results: JCT of a window, or makespan of a whole static trace; seconds."""

    name: str
    policy: str
    theirs: float
    cpu_s: float | None = None
    compat: tuple[str, ...] = COMPAT
    trace: str = SINGLE
    random: bool = False  # draws at random: seeds, and no verdict
    seed: int = 0
    static: bool = False


def _static(count: int, kind: str, seed: int = 0) -> str:
    return f"static_{kind}_s{seed}_n{count}.trace.gz"


BUT_SOLVER = tuple(f"gavel:{name}={value}" for name, value in GavelQuirks.bundle.items() if name != "solver")
"""All that `--compat gavel` switches on, but for where the solver stops."""

A = (
    Row("fifo, stock defect", FIFO + BLIND, 58_209.757, 11.3, STALE),
    Row("fifo, fixed", FIFO + BLIND, 148_291.150, 55.6),
    Row("fifo aware", FIFO, 48_841.146, 9.3),
    Row("las agnostic", LAS + BLIND, 75_137.340, 22.3),
    Row("las aware", LAS, 50_563.894, 12.2),
    Row("ftf aware", FTF, 52_934.775, 55.4),
    Row("gandiva", GANDIVA, 56_026.983, 182.6, random=True),
)
B = (
    Row("las agnostic", LAS + BLIND, 55_679.277, trace=MULTI),
    Row("las aware", LAS, 39_831.989, trace=MULTI),
)
_M, _S = _static(100, "multi"), _static(100, "single")
C = (
    Row("multi: fifo, stock", FIFO + BLIND, 2_378_946, compat=STALE, trace=_M, static=True),
    Row("multi: fifo, fixed", FIFO + BLIND, 5_937_317, trace=_M, static=True),
    Row("multi: makespan agnostic", MAKESPAN + BLIND, 1_033_575, trace=_M, static=True),
    Row("multi: makespan aware", MAKESPAN, 596_970, trace=_M, static=True),
    Row("multi: gandiva", GANDIVA, 608_055, trace=_M, static=True, random=True),
    Row("single: fifo, stock", FIFO + BLIND, 2_530_769, compat=STALE, trace=_S, static=True),
    Row("single: las agnostic", LAS + BLIND, 745_150, trace=_S, static=True),
    Row("single: las aware", LAS, 483_365, trace=_S, static=True),
    Row("single: makespan aware", MAKESPAN, 503_871, trace=_S, static=True),
    *(
        Row(f"700 jobs, seed {seed}: makespan aware", MAKESPAN, theirs, trace=_static(700, "multi", seed), seed=seed,
            static=True)
        for seed, theirs in enumerate((855_749, 818_674, 951_193))
    ),
)  # fmt: skip

# what is played, and what a preemption costs
WAYS = {
    "compat": (COMPAT, "none"),
    "no-wait": ((*COMPAT, "gavel:reset_interval_s=0"), "none"),
    "free": ((), "none"),
    "defaults": ((), "default"),
}
# (workload, its rate, objective, published hours agnostic and aware)
PAPER = (
    ("single", 5.6, LAS, 91.3, 26.4),
    ("multi", 2.6, LAS, 72.4, 32.5),
    ("single", 5.6, FTF, 83.2, 27.9),
    ("multi", 2.6, FTF, 62.1, 28.6),
)
# (workload, rate, name, policy, published hours)
OTHERS = (
    ("single", 5.6, "las aware, sharing", LAS + ",sharing=true", 19.1),
    ("single", 5.6, "gandiva", GANDIVA, 39.5),
    ("single", 5.6, "allox", ALLOX, 23.5),
    ("multi", 2.6, "las aware, sharing", LAS + ",sharing=true", 25.5),
    ("multi", 2.6, "gandiva", GANDIVA, 58.0),
)
# (name, policy, compat, published hours)
STATIC_700 = (
    ("fifo, fixed", FIFO + BLIND, COMPAT, None),
    ("fifo, stock defect", FIFO + BLIND, STALE, 619.5),
    ("gandiva", GANDIVA, COMPAT, 347.3),
    ("makespan aware", MAKESPAN, COMPAT, 244.2),
    ("makespan aware, sharing", MAKESPAN + ",sharing=true", COMPAT, 226.2),
)
PRIORITIES = ((LAS, 18.6, 20.2), (LAS + BLIND, 28.5, 54.4))
ROUNDS = ((360, 37.6), (720, 38.2), (1440, 43.2), (2880, 89.9))


def main() -> None:
    tables: dict[str, Callable[[argparse.Namespace], bool]] = {
        "A": lambda options: _references("A: " + SINGLE, A, options),
        "B": lambda options: _references("B: " + MULTI, B, options),
        "C": lambda options: _references("C: static traces, makespan", C, options),
        "causes": _causes,
        "paper": _paper,
        "others": _others,
        "makespan": _makespan,
        "priorities": _priorities,
        "rounds": _rounds,
        "philly": _philly,
    }
    parser = argparse.ArgumentParser(prog="python -m bench.gavel", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", choices=tables, help="one table")
    parser.add_argument("--seeds", type=int, default=10, help="seeds of rows that draw at random")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--way", choices=WAYS, help="of the paper's table: one of its ways")
    parser.add_argument("--objective", choices=("las", "ftf"), help="of the paper's table: one of its two objectives")
    parser.add_argument("--ecos", action="store_true", help="finish-time fairness by the authors' solver")
    parser.add_argument("--state", type=Path, help="file of finished runs, which are not played again")
    parser.add_argument("--quick", action="store_true", help="one seed everywhere, and 3,000 jobs instead of 12,000")
    options = parser.parse_args()
    data_folder()
    if options.ecos:
        gavel_ecos.use()
    if options.only == "philly":
        sys.exit(0 if _philly(options) else 1)
    began = time.perf_counter()
    warm_up((LAS, LAS + BLIND, FTF, MAKESPAN, FIFO, GANDIVA, LAS + ",sharing=true"))
    print(f"start-up and compilation: {time.perf_counter() - began:.1f} s, not counted below")
    wanted = [options.only] if options.only else [name for name in tables if name != "philly"]
    held = [tables[name](options) for name in wanted]
    sys.exit(0 if all(held) else 1)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _references(title: str, rows: Sequence[Row], options: argparse.Namespace) -> bool:
    """Ours, theirs, ratio, CPU seconds of both; whether no row differs."""
    seeds = 1 if options.quick else options.seeds
    runs = {row: [_run(row, seed) for seed in (range(seeds) if row.random else [row.seed])] for row in rows}
    found = play_all([run for each in runs.values() for run in each], options.workers, options.state)
    print(f"\n{title}, --compat gavel")
    heads = ("ours s", "theirs s", "ratio", "range", "CPU s", "theirs", "verdict")
    print(f"{'policy':<36}" + "".join(f"{head:>{width}}" for head, width in zip(heads, _WIDTHS, strict=True)))
    held = True
    for row in rows:
        results = [found[run] for run in runs[row]]
        each = [result.makespan_s if row.static else result.jct_s for result in results]
        ours, cpu_s = _mean(each), _mean([result.cpu_s for result in results])
        spread = f"{min(each) / row.theirs:.2f}-{max(each) / row.theirs:.2f}" if len(each) > 1 else ""
        cells = (
            f"{ours:,.0f}", f"{row.theirs:,.0f}", f"{ours / row.theirs:.4f}", spread, f"{cpu_s:.2f}",
            "-" if row.cpu_s is None else f"{row.cpu_s:.1f}", _verdict(row, ours / row.theirs, cpu_s),
        )  # fmt: skip
        print(f"{row.name:<36}" + "".join(f"{c:>{w}}" for c, w in zip(cells, _WIDTHS, strict=True)), flush=True)
        held &= not cells[-1].startswith("DIFFERS")
    return held


_WIDTHS = (12, 12, 9, 13, 8, 8, 24)


def _run(row: Row, seed: int) -> Run:
    return Run(row.trace, row.policy, row.compat, seed, None if row.static else WINDOW)


def _verdict(row: Row, ratio: float, cpu_s: float) -> str:
    said = "random" if row.random else "agrees" if abs(ratio - 1) <= ALLOWED else "DIFFERS"
    if row.cpu_s is not None and row.cpu_s > HEAVY_S:
        said += ", a hundredth" if cpu_s <= SHARE * row.cpu_s else f", 1/{row.cpu_s / cpu_s:.0f} of CPU"
    return said


def _causes(options: argparse.Namespace) -> bool:
    """Space sharing and makespan on the continuous trace beside plain fairness, with and without the solver's point."""
    names = (("las aware", LAS), ("las aware, sharing", LAS + ",sharing=true"), ("makespan aware", MAKESPAN))
    ways = (("all of --compat gavel", COMPAT), ("but the solver's point", BUT_SOLVER))
    runs = {(name, way): Run(SINGLE, policy, compat, 0, WINDOW) for name, policy in names for way, compat in ways}
    found = play_all(list(runs.values()), options.workers, options.state)
    print(f"\ncauses: {SINGLE}, mean JCT s, and over las aware (their sharing costs 3 %)")
    print(f"{'policy':<24}" + "".join(f"{way:>32}" for way, _ in ways))
    for name, _ in names:
        cells = []
        for way, _ in ways:
            jct_s, plain_s = found[runs[name, way]].jct_s, found[runs["las aware", way]].jct_s
            cells.append(f"{jct_s:,.0f} ({jct_s / plain_s:.3f})")
        print(f"{name:<24}" + "".join(f"{cell:>32}" for cell in cells), flush=True)
    return True


def _generated(kind: str, rate: float, seed: int, options: argparse.Namespace, more: str = "") -> str:
    jobs = 3000 if options.quick else 12_000
    return f"gavel-like:jobs={jobs},jobs_per_hour={rate},multi={str(kind == 'multi').lower()},seed={seed}{more}"


def _hours(
    policy: str, kind: str, rate: float, options: argparse.Namespace, *, compat: tuple[str, ...] = COMPAT,
    costs: str = "none", more: str = "", round_s: float = 360.0,
) -> list[Run]:  # fmt: skip
    window = (800, 1099) if options.quick else (4000, 4999)
    return [
        Run(_generated(kind, rate, seed, options, more), policy, compat, seed, window, costs, round_s)
        for seed in range(1 if options.quick else 3)
    ]


def _paper(options: argparse.Namespace) -> bool:
    """Factors of agnostic over aware; whether those of the released simulator are within what is allowed."""
    held = True
    print("\npaper: mean JCT in hours, agnostic and aware, 36 + 36 + 36 GPUs (published in brackets)")
    print(f"{'workload':<19}{'objective':<11}{'way':<10}{'agnostic':>16}{'aware':>16}{'factor':>15}{'CPU s':>8}{'':>9}")
    plan = {
        (way, row): [
            _hours(name, row[0], row[1], options, compat=compat, costs=costs) for name in (row[2] + BLIND, row[2])
        ]
        for way, (compat, costs) in WAYS.items()
        if way == (options.way or way)
        for row in PAPER
        if not options.objective or row[2].endswith(options.objective)
    }
    found = play_all([run for both in plan.values() for each in both for run in each], options.workers, options.state)
    for (way, (kind, rate, policy, blind_h, aware_h)), both in plan.items():
        blind, aware = (_mean([found[run].jct_s / 3600 for run in each]) for each in both)
        published = blind_h / aware_h
        verdict = "within" if abs(blind / aware / published - 1) <= ALLOWED_FACTOR else "OUTSIDE"
        cpu_s = sum(found[run].cpu_s for each in both for run in each)
        print(
            f"{kind + f', {rate:g} jobs/h':<19}{policy.split('=')[1]:<11}{way:<10}"
            f"{f'{blind:.1f} ({blind_h:.1f})':>16}{f'{aware:.1f} ({aware_h:.1f})':>16}"
            f"{f'{blind / aware:.2f} ({published:.2f})':>15}{cpu_s:>8.1f}{verdict:>9}",
            flush=True,
        )
        held &= verdict == "within" or COMPAT[0] not in WAYS[way][0]
    return held


def _others(options: argparse.Namespace) -> bool:
    """Policies of which only one form was published."""
    plan = {row: _hours(row[3], row[0], row[1], options) for row in OTHERS}
    found = play_all([run for runs in plan.values() for run in runs], options.workers, options.state)
    print("\nothers: mean JCT in hours, --compat gavel")
    print(f"{'workload':<19}{'policy':<24}{'ours':>8}{'published':>11}{'ratio':>8}{'CPU s':>8}")
    for (kind, rate, name, _, published), runs in plan.items():
        ours, cpu_s = _mean([found[run].jct_s / 3600 for run in runs]), sum(found[run].cpu_s for run in runs)
        print(
            f"{kind + f', {rate:g} jobs/h':<19}{name:<24}{ours:>8.1f}{published:>11.1f}{ours / published:>8.2f}"
            f"{cpu_s:>8.1f}",
            flush=True,
        )
    return True


def _makespan(options: argparse.Namespace) -> bool:
    """700 jobs at once."""
    seeds = range(1 if options.quick else 3)
    plan = {
        name: [Run(_static(700, "multi", seed), policy, compat, seed) for seed in seeds]
        for name, policy, compat, _ in STATIC_700
    }
    found = play_all([run for runs in plan.values() for run in runs], options.workers, options.state)
    ours = {name: _mean([found[run].makespan_s / 3600 for run in runs]) for name, runs in plan.items()}
    best, best_published = ours["makespan aware"], 244.2
    print("\nmakespan: 700 multi-GPU jobs at once, hours, --compat gavel; factor: over makespan aware")
    print(f"{'policy':<26}{'ours':>9}{'published':>11}{'factor':>9}{'published':>11}{'CPU s':>8}")
    for name, _, _, published in STATIC_700:
        cpu_s = sum(found[run].cpu_s for run in plan[name])
        theirs, factor = ("-", "-") if published is None else (f"{published:.1f}", f"{published / best_published:.2f}")
        print(f"{name:<26}{ours[name]:>9.1f}{theirs:>11}{ours[name] / best:>9.2f}{factor:>11}{cpu_s:>8.1f}", flush=True)
    return True


def _priorities(options: argparse.Namespace) -> bool:
    """A fifth of the jobs count five times."""
    plan = {policy: _hours(policy, "multi", 2.4, options, more=",weights=true") for policy, *_ in PRIORITIES}
    found = play_all([run for runs in plan.values() for run in runs], options.workers, options.state)
    print("\npriorities: multi-GPU, 2.4 jobs/h, a fifth of weight 5; mean JCT in hours, --compat gavel")
    print(f"{'policy':<36}{'high':>8}{'published':>11}{'low':>8}{'published':>11}")
    for policy, high_h, low_h in PRIORITIES:
        each = [found[run].jct_of_weight for run in plan[policy]]
        high, low = (_mean([jct[weight] / 3600 for jct in each]) for weight in (5.0, 1.0))
        print(f"{policy:<36}{high:>8.1f}{high_h:>11.1f}{low:>8.1f}{low_h:>11.1f}", flush=True)
    return True


def _rounds(options: argparse.Namespace) -> bool:
    """How long a round may be."""
    plan = {round_s: _hours(LAS, "single", 6.0, options, round_s=float(round_s)) for round_s, _ in ROUNDS}
    found = play_all([run for runs in plan.values() for run in runs], options.workers, options.state)
    print("\nrounds: las aware, single-GPU, 6.0 jobs/h; mean JCT in hours, --compat gavel")
    print(f"{'round s':<10}{'ours':>8}{'published':>11}")
    for round_s, published in ROUNDS:
        print(f"{round_s:<10}{_mean([found[run].jct_s / 3600 for run in plan[round_s]]):>8.1f}{published:>11.1f}")
    return True


def _philly(_: argparse.Namespace) -> bool:
    """The whole Philly log, as a user would call it; whether in time."""
    command = [
        str(Path(sys.executable).with_name("cotenant")), "simulate",
        str(data_folder() / "traces" / "philly_109k.csv.gz"), "--models", "gavel", "--profile", profile(),
        "--cluster", "128x8:v100+128x8:p100+128x8:k80", "--policy", LAS, "--skip-infeasible",
    ]  # fmt: skip
    print("\nphilly: " + " ".join(Path(word).name if "/" in word else word for word in command), flush=True)
    began = time.perf_counter()
    ran = subprocess.run(command, check=False)
    wall_s = time.perf_counter() - began
    verdict = "within" if wall_s <= PHILLY_LIMIT_S and not ran.returncode else "OVER"
    print(f"wall {wall_s:.0f} s, start-up and reading included; limit {PHILLY_LIMIT_S:.0f} s: {verdict}")
    return verdict == "within"


if __name__ == "__main__":
    main()
