"""`python -m bench.gpu_antman --state DIR [--share mps|time] [--guest mlp_rl]`: AntMan's promise on one real GPU.

A guaranteed training job (GPT-2 whose input is too slow for the GPU) and an opportunistic guest beside it, under
`cotenant serve --policy antman` with all options as they come. By the command line alone:

1 the host by itself; then, both opportunistic, so that nobody is held back, the two side by side: the pair
2 `cotenant set HOST priority=0` makes the host a guaranteed job; from here on feedback holds the guest back
3 blocks of 20 s without the guest at work and with it, in turn: what the host loses, with the 95 % interval over
  blocks, and what the guest gets of its speed alone
4 the host is cancelled: the guest by itself
5 the simulator plays the same under the same policy, from speeds alone and in the pair, and from busy shares

Shown: the host within 1 %; the guest's share beside the paper's; what was simulated within 10 % of both. Exit code 1
where one is missed. All that was measured is kept in DIR/antman-SHARE-GUEST.json; `--phase table` only prints again.
Clocks of the GPU are locked meanwhile, where that is allowed: they wander by some per cent, and 1 % is to be seen.
Without a GPU, `--stand-in` plays it with timed waits.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from bench.gpu_mix_live import Shell, serving
from cotenant.testing.sharing import shared_run, sharing
from cotenant.workload.profiles import measured
from cotenant.workload.profiles.roofline import GPUS
from cotenant.workload.profiles.together import busy_share

ROOT = Path(__file__).resolve().parent.parent
HOST, WAIT_S = "gpt2", 0.035
STAND_IN = {"host": "0.060:0.997", "guest": "0.010:0.7"}
GPU_GIB = {"gpt2": 30, "mlp_rl": 4, "resnet18_cifar": 6, "bert": 16}
ALONE_S, PAIR_S, SETTLE_S = 5.0, 10.0, 6.0  # blocks begin without the guest: its share goes on rising
STANDSTILL_S = 0.8
PAUSES_S = (0.0, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.04)
WINDOW_STEPS = 100
CLOCK_MHZ = "1605,1605"
PAPER = "the paper: ESPnet +3.5 %, ResNet-50 beside it keeps 57 %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--share", default="mps", choices=("mps", "time"))
    parser.add_argument("--guest", default="mlp_rl", choices=[model for model in GPU_GIB if model != HOST])
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--block-s", type=float, default=20.0)
    parser.add_argument("--settle-s", type=float, default=SETTLE_S)
    parser.add_argument("--phase", default="live,table")
    parser.add_argument("--stand-in", action="store_true")
    options = parser.parse_args()
    options.state = options.state.absolute()
    options.state.mkdir(parents=True, exist_ok=True)
    options.share = "time" if options.stand_in else options.share
    kept = options.state / f"antman-{options.share}-{options.guest}.json"
    if "live" in options.phase:
        kept.write_text(json.dumps(live(options)) + "\n")
    if "table" in options.phase:
        sys.exit(0 if table(json.loads(kept.read_text())) else 1)


# -- live ------------------------------------------------------------------------------------------------------------


class Stage:
    """Two jobs of one service, and their steps."""

    def __init__(self, shell: Shell, folder: Path, options: argparse.Namespace) -> None:
        self.shell, self.folder, self._options = shell, folder, options
        self.off = folder / "off"
        self.ids: dict[str, str] = {}
        self.busy: dict[str, list[float]] = {"host": [], "guest": []}

    def submit(self, role: str, model: str) -> None:
        """Submit it as an opportunistic job, and wait for its first steps."""
        words = [sys.executable, str(ROOT / "bench" / "antman_job.py"), model, "--marks", str(self.marks(role))]
        words += ["--wait", str(WAIT_S)] if role == "host" else ["--off", str(self.off)]
        words += ["--stand-in", STAND_IN[role]] if self._options.stand_in else []
        env = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
        job = {
            "run": " ".join(words), "name": role, "model": model, "gpus": 1, "gpu_mem": GPU_GIB[model],
            "workdir": str(self.folder), "priority": -1, "env": env,
        }  # fmt: skip
        file = self.folder / f"{role}.yaml"
        file.write_text(yaml.safe_dump(job))
        self.ids[role] = self.shell.run("submit", str(file)).split()[-1]
        self.until(lambda: len(self.steps(role)) > 30, role)

    def marks(self, role: str) -> Path:
        """Where a job writes down its steps."""
        return self.folder / f"{role}.marks"

    def steps(self, role: str) -> np.ndarray:
        """(end, pause after it as told, seconds) of every step so far."""
        data = self.marks(role).read_bytes() if self.marks(role).exists() else b""
        return np.frombuffer(data[: len(data) // 24 * 24], np.float64).reshape(-1, 3)

    def until(self, done: Any, role: str, patience_s: float = 90.0) -> None:
        """Wait; show what the job says where that is in vain."""
        began = time.monotonic()
        while not done():
            if time.monotonic() - began > patience_s:
                why = self.shell.run("why", self.ids[role], check=False)
                said = self.shell.run("logs", self.ids[role], "--stderr", check=False)
                raise SystemExit(f"{role}: not reached\n{why}\n{said[-3000:]}")
            time.sleep(0.2)

    def watch(self, seconds: float, role: str = "") -> tuple[float, float]:
        """Let them work; from when until when. While one is alone, `role`, what the driver says is noted."""
        began = time.time()
        while time.time() < began + seconds:
            busy = nvml_busy() if role else None
            if busy is not None:
                self.busy[role].append(busy)
            time.sleep(min(0.5, max(began + seconds - time.time(), 0.0)))
        return began, began + seconds


def nvml_busy() -> float | None:
    """Share of the last moment in which the GPU was busy, as the driver says."""
    if shutil.which("nvidia-smi") is None:
        return None
    query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    return float(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]) / 100


@contextmanager
def locked_clocks() -> Iterator[bool]:
    """Have the GPU keep one clock; whether it does."""
    found = shutil.which("nvidia-smi") is not None
    done = found and subprocess.run(["nvidia-smi", "-lgc", CLOCK_MHZ], capture_output=True, check=False).returncode == 0
    try:
        yield done
    finally:
        if done:
            subprocess.run(["nvidia-smi", "-rgc"], capture_output=True, check=False)


def serve_words(options: argparse.Namespace) -> list[str]:
    """How the service is started: with the policy's own options."""
    profile = f"h200:sharing={'mps' if options.share == 'mps' else 'time-sliced'}"
    words = ["--policy", "antman", "--share", options.share, "--profile", profile]
    return [*words, *(["--gpus", "1"] if options.stand_in else [])]


def live(options: argparse.Namespace) -> dict[str, Any]:
    """Everything that is measured, as plain data."""
    folder = options.state / f"{options.share}-{options.guest}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    windows: dict[str, list[tuple[float, float]]] = {"host alone": [], "pair": [], "guest alone": []}
    began = time.time()
    with locked_clocks() as locked, serving(folder / "home", serve_words(options)) as shell:
        stage = Stage(shell, folder, options)
        stage.submit("host", HOST)
        stage.watch(ALONE_S, "host")
        stage.submit("guest", options.guest)
        for number in range(2):
            windows["pair"].append(stage.watch(PAIR_S))
            if number == 0:
                stage.off.touch()
                windows["host alone"].append(stage.watch(ALONE_S))
                stage.off.unlink()
        seen = {role: shell.ask("show", stage.ids[role]).get("gpu_busy") for role in stage.ids}
        shell.run("set", stage.ids["host"], "priority=0")
        guaranteed_s = time.time()
        stage.watch(options.settle_s)
        blocks = []
        for number in range(options.blocks):
            if number % 2:
                stage.off.unlink(missing_ok=True)
            else:
                stage.off.touch()
            blocks.append((number % 2 == 1, *stage.watch(options.block_s)))
        windows["host alone"] += [(begin, end) for at_work, begin, end in blocks if not at_work]
        stage.off.unlink(missing_ok=True)
        shell.run("cancel", stage.ids["host"])
        stage.watch(2.0)
        windows["guest alone"].append(stage.watch(ALONE_S, "guest"))
        events = shell.ask("events", "--limit", "1000", check=False)
        return {
            "share": options.share, "host": HOST, "guest": options.guest, "wait_s": WAIT_S, "blocks": blocks,
            "windows": windows, "clocks_locked": locked, "guaranteed_s": guaranteed_s, "took_s": time.time() - began,
            "busy": stage.busy, "busy_in_company": seen, "stand_in": options.stand_in,
            "events": [{k: one.get(k) for k in ("time_s", "kind", "job")} for one in events or ()][-200:],
            "steps": {role: stage.steps(role).round(5).tolist() for role in ("host", "guest")},
        }  # fmt: skip


# -- what came of it -------------------------------------------------------------------------------------------------


def speed(steps: np.ndarray, windows: Sequence[Sequence[float]]) -> float:
    """Steps per second within windows, from the first to the last that ended there.

    Standstills do not count: a service that does not know a pair has one of the two wait for a moment, once.
    """
    done, took_s = 0, 0.0
    for begin, end in windows:
        took = np.diff(steps[(steps[:, 0] >= begin) & (steps[:, 0] <= end), 0])
        took = took[took < STANDSTILL_S]
        done, took_s = done + len(took), took_s + float(took.sum())
    return done / took_s if took_s else 0.0


def progress(steps: np.ndarray, window: Sequence[float]) -> float:
    """Steps per second of the whole window, whatever it did."""
    return float(((steps[:, 0] >= window[0]) & (steps[:, 0] <= window[1])).sum() / (window[1] - window[0]))


def duty(steps: np.ndarray, window: Sequence[float]) -> float:
    """Part of the time within that a job was at work."""
    inside = steps[(steps[:, 0] >= window[0]) & (steps[:, 0] <= window[1])]
    if len(inside) < 2:
        return 0.0
    return float(inside[1:, 2].sum() / np.diff(inside[:, 0]).sum())


def table(kept: dict[str, Any]) -> bool:
    """Print, compare; whether everything was shown."""
    steps = {role: np.array(kept["steps"][role]).reshape(-1, 3) for role in ("host", "guest")}
    windows = kept["windows"]
    alone = {role: speed(steps[role], windows[f"{role} alone"]) for role in steps}
    pair = {role: speed(steps[role], windows["pair"]) for role in steps}
    busy = {role: float(np.mean(seen)) if (seen := kept["busy"][role]) else None for role in steps}
    print(f"{kept['host']} (guaranteed) and {kept['guest']} (opportunistic), share {kept['share']}, "
          f"clocks {'locked' if kept.get('clocks_locked') else 'free'}, {kept['took_s']:.0f} s in all")  # fmt: skip
    for role in steps:
        said = "not known" if busy[role] is None else f"{busy[role]:.0%}"
        print(f"  {role:5} alone {alone[role]:8.2f} steps/s, GPU busy {said:>9};"
              f" side by side without limits {pair[role] / alone[role]:.3f} of that")  # fmt: skip
    print("  block        host steps/s   guest, of its speed alone   its share of the time")
    rows = []
    for at_work, *window in kept["blocks"]:
        rows.append((at_work, speed(steps["host"], [window]), progress(steps["guest"], window) / alone["guest"]))
        name = "with guest" if at_work else "without"
        shown = f"{rows[-1][2]:20.3f} {duty(steps['guest'], window):25.2f}" if at_work else ""
        print(f"  {name:12} {rows[-1][1]:12.3f} {shown}")
    with_, without = (np.array([row[1] for row in rows if row[0] is flag]) for flag in (True, False))
    show_shares(steps["guest"], windows)
    lost, half = slower(with_, without)
    got = float(np.mean([row[2] for row in rows if row[0]]))
    told = simulated(kept, alone, pair, busy)
    print(f"host slower by {100 * lost:.2f} % (95 % interval {100 * (lost - half):.2f} to {100 * (lost + half):.2f});"
          f" guest at {got:.1%} of its speed alone; {PAPER}")  # fmt: skip
    off = told[0] / (1 - lost) - 1, told[1] / max(got, 1e-9) - 1
    fine = [
        verdict("host within 1 %, 95 % interval", f"{100 * (lost + half):.2f} %", lost + half <= 0.01),
        verdict("guest at work", f"{got:.1%}", got > 0.0),
        verdict("host's speed, simulated", f"{told[0]:.4f} against {1 - lost:.4f}", abs(off[0]) <= 0.1),
        verdict("guest's speed, simulated", f"{told[1]:.3f} against {got:.3f}", abs(off[1]) <= 0.1),
    ]
    return all(fine)


def show_shares(guest: np.ndarray, windows: dict[str, Any]) -> None:
    """By how long the guest paused after its steps: what it had of its speed alone, and what its share would give.

    The simulator says share times speed in the pair; a job that has paused may need longer for its next step.
    """
    took_s, pause_s, step_s = np.diff(guest[:, 0]), guest[:-1, 1], guest[1:, 2]
    alone_s, pair_s = (_step_s(guest, windows[name]) for name in ("guest alone", "pair"))
    print(f"  guest's step: {1e3 * alone_s:.1f} ms alone, {1e3 * pair_s:.1f} ms in the pair; after pauses:")
    for low_s, high_s in pairwise(PAUSES_S):
        rows = (pause_s > low_s) & (pause_s <= high_s) & (took_s < pause_s + STANDSTILL_S)
        if rows.sum() < WINDOW_STEPS:
            continue
        paused_s, typical_s = float(pause_s[rows].mean()), float(np.median(step_s[rows]))
        share = typical_s / (typical_s + paused_s)
        had, told = alone_s / float(took_s[rows].mean()), share * alone_s / pair_s
        print(f"    {1e3 * paused_s:6.1f} ms, share {share:.2f}: step {1e3 * float(step_s[rows].mean()):.1f} ms,"
              f" speed {had:.3f} of alone, simulated {told:.3f}")  # fmt: skip


def _step_s(steps: np.ndarray, windows: Sequence[Sequence[float]]) -> float:
    found = speed(steps, windows)
    return 1 / found if found else float("nan")


def verdict(what: str, found: str, fine: bool) -> bool:
    """One line."""
    print(f"  {what:36} {found:24} {'ok' if fine else 'MISSED'}")
    return fine


def slower(with_: np.ndarray, without: np.ndarray) -> tuple[float, float]:
    """What is lost of the speed, and half of its 95 % interval (Welch over blocks)."""
    stats: Any = import_module("scipy.stats")
    lost = 1 - with_.mean() / without.mean()
    if min(len(with_), len(without)) < 2:
        return float(lost), float("nan")
    parts = [np.var(one, ddof=1) / len(one) for one in (with_, without)]
    freedom = sum(parts) ** 2 / sum(p**2 / (len(one) - 1) for p, one in zip(parts, (with_, without), strict=True))
    return float(lost), float(stats.t.ppf(0.975, freedom) * np.sqrt(sum(parts)) / without.mean())


def simulated(
    kept: dict[str, Any], alone: dict[str, float], pair: dict[str, float], busy: dict[str, float | None]
) -> tuple[float, float]:
    """Speeds of host and guest against alone over the blocks with the guest, from what was measured before them.

    The host runs as long before the guest comes to it as it did. What the policy believes of busy shares is what it
    could know then: of the host what the driver said while it was alone (else how much of a step it does not wait), of
    the guest, which never was, what the driver said of its processes, or else what the profile says.
    """
    ratios = {role: min(pair[role] / alone[role], 1.0) for role in alone}
    timed = 1 - kept["wait_s"] * alone["host"]
    host = busy["host"] if busy["host"] is not None else timed
    guest = kept["busy_in_company"]["guest"]
    believed = [host, guest if guest is not None else in_profile(kept["guest"])]
    truth = sharing([[1, ratios["host"]], [ratios["guest"], 1]], busy=believed)
    start_s = kept["guaranteed_s"] - kept["steps"]["host"][0][0]
    run = shared_run([(0.0, 1, 1e6), (start_s, 1, 1e6)], truth, "1x1", "antman", priority=[0, -1])
    speeds = []
    for at_work, begin, end in kept["blocks"]:
        if at_work:
            done = []
            for moment in (begin, end):
                at_s = start_s + moment - kept["guaranteed_s"]
                run.advance(at_s)
                done.append(run.engine.view(at_s).progress_s.copy())
            speeds.append((done[1] - done[0]) / (end - begin))
    found = np.mean(speeds, axis=0)
    return float(found[0]), float(found[1])


def in_profile(model: str) -> float:
    """How busy the profile says that a model keeps a GPU."""
    gpu = GPUS[measured.REFERENCE]
    return busy_share(measured.steps()[model, measured.default_batch(model)], gpu, gpu)


if __name__ == "__main__":
    main()
