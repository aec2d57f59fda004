"""What a crash costs, part by part: FfDL's table of recoveries beside ours, live and simulated.

`python -m bench.ffdl [--times 5]` kills parts of a real service on this machine with SIGKILL, again and again: the
process of a job (a learner), the keeper that watches it (helper and monitor in one), and the service (API and LCM in
one), which is started again at once, as systemd would. A job makes steps of 50 ms and saves every second; its trail of
steps says how long it stood still and how many steps it did twice. Then `--crash ffdl` in the simulator: each part
alone and all together on a generated log. Theirs are the figures of the papers as recalled, from another cluster: a
learner there is a container with its volumes. Exits with 1 if the job is lost, if a crash of the service stopped it,
or if in the simulator a part never crashes or saving more often does not help. `--only simulated` is deterministic.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import cotenant
from bench.fault_kit import Case
from cotenant.core.cluster import Cluster
from cotenant.core.spec import Spec
from cotenant.sim.crashes import DAY_S, DEFAULTS, RECOVERY_S
from cotenant.sim.driver import Experiment, simulate
from cotenant.workload.generators import generate

PACE_S, SAVE_EVERY_S = 0.05, 1.0
FIRST_STEPS = 30  # before the first kill
THEIRS = {"learner": "10-20 s", "helper": "3-4 s", "monitor": "1-2 s", "API": "3-5 s", "LCM": "4-6 s"}


@dataclass(slots=True)
class Seen:
    """What crashes of one part did: seconds until it was back, seconds without a step, steps done twice."""

    back_s: list[float] = field(default_factory=list)
    still_s: list[float] = field(default_factory=list)
    again: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Step:
    """A line of the trail."""

    pid: int
    number: int
    at_s: float


class World:
    """A service with one job that makes steps."""

    def __init__(self, folder: Path) -> None:
        self.case, self.trail = Case(folder), folder / "trail"
        self.trail.touch()
        if said := self.case.start():
            raise SystemExit(f"bench.ffdl: the service does not start: {said}")
        script = Path(__file__).with_name("ffdl_job.py")
        spec = {
            "run": f"{sys.executable} {script} {self.trail} --pace {PACE_S}",
            "retries": 1000,
            "checkpoint": {"interval": SAVE_EVERY_S},
            "env": {"PYTHONPATH": str(Path(cotenant.__file__).parents[1])},
        }
        ((self.job,),) = self.case.client.submit([spec])

    def steps(self) -> list[Step]:
        """All steps so far."""
        rows = [line.split() for line in self.trail.read_text().splitlines()]
        return [Step(int(pid), int(number), float(at)) for pid, number, at in rows]

    def until_steps(self, count: int, after_s: float = 0.0) -> None:
        """Wait for so many steps after a moment."""
        self.case.until(lambda: sum(step.at_s > after_s for step in self.steps()) >= count)

    def child(self) -> dict[str, int]:
        """Process ids of the job that runs and of its keeper."""
        for record in (self.case.home / "jobs" / "jobs").glob("*/child.json"):
            child: dict[str, int] = json.loads(record.read_text())
            if child["pid"] == self.steps()[-1].pid or _parent(self.steps()[-1].pid) == child["pid"]:
                return child
        raise SystemExit("bench.ffdl: the job's process is not found")

    def kill(self, part: str, seen: Seen) -> None:
        """One crash, and what it did."""
        steps = self.steps()
        killed_s = time.monotonic()
        if part == "service":
            self.case.kill()
            if said := self.case.start():
                raise SystemExit(f"bench.ffdl: the service does not come back: {said}")
            self.case.until(lambda: self.case.ready().startswith("200"))
            seen.back_s.append(time.monotonic() - killed_s)
        else:
            child = self.child()
            os.kill(child["pid" if part == "learner" else "keeper"], signal.SIGKILL)
        self.until_steps(FIRST_STEPS, killed_s)
        after = [step for step in self.steps() if step.at_s > killed_s]
        fresh = [step for step in after if step.pid != steps[-1].pid] or after
        if part != "service":
            seen.back_s.append(fresh[0].at_s - killed_s)
        times = [steps[-1].at_s, *(step.at_s for step in after)]
        seen.still_s.append(max(late - early for early, late in itertools.pairwise(times)))
        done = max(step.number for step in self.steps() if step.at_s < fresh[0].at_s)
        seen.again.append(max(done + 1 - fresh[0].number, 0) if fresh[0].pid != steps[-1].pid else 0)

    def close(self) -> bool:
        """End everything; whether the job was still running as it should."""
        running = str(self.case.client.job(self.job).state) == "running"
        self.case.client.cancel(self.job)
        self.case.until(lambda: str(self.case.client.job(self.job).state) == "cancelled")
        self.case.close()
        return running


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def live(times: int) -> int:
    """Kill, print, judge."""
    found = {part: Seen() for part in ("learner", "keeper", "service")}
    with tempfile.TemporaryDirectory(prefix="cotenant-ffdl-") as folder:
        world = World(Path(folder))
        world.until_steps(FIRST_STEPS)
        for _ in range(times):
            for part, seen in found.items():
                world.kill(part, seen)
        runs = world.close()
    print(f"live, {times} kills each: median and most; steps of {PACE_S:g} s, a checkpoint every {SAVE_EVERY_S:g} s")
    heads = f"{'back after s':>16}{'no step for s':>16}{'steps twice':>14}"
    print(f"{'crash of':<10}{'theirs':<18}{'after':<18}{heads}")
    names = {"learner": ("learner",), "keeper": ("helper", "monitor"), "service": ("API", "LCM")}
    for part, seen in found.items():
        theirs = ", ".join(THEIRS[name] for name in names[part])
        cells = [f"{statistics.median(one):.2f} {max(one):.2f}" for one in (seen.back_s, seen.still_s)]
        again = f"{statistics.median(seen.again):.0f} {max(seen.again)}"
        print(f"{part:<10}{', '.join(names[part]):<18}{theirs:<18}{cells[0]:>16}{cells[1]:>16}{again:>14}")
    whole = not any(found["service"].again)
    print("the job is there" if runs else "THE JOB IS LOST", "and" if whole else "BUT", end=" ")
    print("no crash of the service made it begin anew" if whole else "A CRASH OF THE SERVICE MADE IT BEGIN ANEW")
    return 0 if runs and whole else 1


def simulated() -> bool:
    """Each part alone, then all, on the same jobs, means over three seeds; whether all crashed and saving helps."""
    print("\nsimulated: philly-like, 400 jobs at load 0.8 on 8x8 under fifo, means over three seeds")
    heads = ("a mean of", "back after s", "crashes", "lost GPU-h", "mean JCT h", "longer %")
    print(f"{'crashes of':<22}" + "".join(f"{head:>13}" for head in heads))
    parts = (*RECOVERY_S, "node")
    rows: dict[str, tuple[str, ...]] = {"nothing": (), **{part: (part,) for part in parts}, "all": parts}
    rows["all, checkpoint=300"] = parts
    base: list[float] = []
    found: dict[str, tuple[float, float]] = {}
    for name, some in rows.items():
        off = ",".join(f"{part}=inf" for part in parts if part not in some)
        text = ",".join(one for one in (off, "checkpoint=300" if "=" in name else "") if one)
        runs = [_play(seed, f"ffdl:{text}" if text else "ffdl") for seed in range(3)]
        crashed = sum(run["crashes"] for run in runs) / 3
        lost, jct = (sum(run[key] for run in runs) / 3 / 3600 for key in ("lost", "jct"))
        base, found[name] = base or [jct], (crashed, lost)
        every = f"{float(str(DEFAULTS[name])) / DAY_S:.0f} days" if name in DEFAULTS else "-"
        back = f"{RECOVERY_S[name][0]:g}-{RECOVERY_S[name][1]:g}" if name in RECOVERY_S else "-"
        change = 100 * (jct / base[0] - 1)
        cells = every, back, f"{crashed:.0f}", f"{lost:.1f}", f"{jct:.3f}", f"{change:.2f}"
        print(f"{name:<22}" + "".join(f"{cell:>13}" for cell in cells), flush=True)
    crash = all(found[name][0] > 0 for name, some in rows.items() if some)
    return crash and found["nothing"] == (0, 0) and found["all, checkpoint=300"][1] < found["all"][1]


def _play(seed: int, crash: str) -> dict[str, float]:
    work = generate(Spec.parse(f"philly-like:jobs=400,load=0.8,seed={seed},max_gpus=16"), 64, None)
    found = simulate(Experiment(work, Cluster.parse("8x8"), "fifo", crash=crash, seed=seed, compiled=False)).summary
    counts = [found[f"crashes_{part}"] for part in RECOVERY_S] + [found["node_failures"]]
    return {
        "crashes": sum(int(str(count)) for count in counts),
        "lost": float(str(found["lost_gpu_s"])),
        "jct": float(str(found["avg_jct_s"])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ffdl", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--times", type=int, default=5, help="kills of each part")
    parser.add_argument("--only", choices=("live", "simulated"))
    options = parser.parse_args()
    code = live(options.times) if options.only != "simulated" else 0
    if options.only != "live" and not simulated():
        code = 1
    sys.exit(code)


if __name__ == "__main__":
    main()
