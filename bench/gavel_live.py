"""Gavel on real processes: `python -m bench.gavel_live [--round 5] [--rounds 40] [--policy gavel:walk=global]`.

A service with three virtual GPU types, two GPUs each, and eight endless scripts of four models whose speeds on the
types differ (`bench/typed_job.py`; the same ratios are the profile that the policy believes). After so many rounds:
target fraction of time per job and type, fraction received (life of the job's processes on that type over the time
since the targets were found), and the largest absolute difference of any of the 24, which is to be below 0.1. Time
of GPUs that no process held, and time of processes without a step, is what switching cost.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.demo import ME, live_service
from bench.typed_job import worked
from cotenant.core.jobspec import parse_job
from cotenant.policies.rounds.rounds import RoundPolicy
from cotenant.policies.rounds.standing import Standing
from cotenant.service.core import CoreService

TYPES = ("v100", "p100", "k80")
EACH = 2
SPEEDS = {"steep": (1.0, 0.3, 0.1), "mild": (1.0, 0.7, 0.5), "odd": (0.5, 1.0, 0.25), "even": (1.0, 0.9, 0.8)}
STEP_S = 0.02  # at speed 1
SCRIPT = Path(__file__).with_name("typed_job.py")
TARGET = 0.1


@dataclass(frozen=True, slots=True)
class Lived:
    """Jobs x types: fractions of time promised, held by processes and spent in steps; and how it came about."""

    names: tuple[str, ...]
    target: np.ndarray
    received: np.ndarray
    stepped: np.ndarray
    starts: int
    solved_once: bool
    timeouts: int

    @property
    def off(self) -> float:
        """The largest absolute difference between a fraction received and its target."""
        return float(abs(self.received - self.target).max())

    @property
    def variation(self) -> float:
        """Half the sum of all differences, over the GPUs: the share of GPU time that went elsewhere than promised."""
        return float(abs(self.received - self.target).sum() / 2 / (EACH * len(TYPES)))

    @property
    def unheld(self) -> float:
        """Share of GPU time in which no process was there: between the end of one and the start of the next."""
        return float(1 - self.received.sum() / (EACH * len(TYPES)))

    @property
    def lost(self) -> float:
        """Share of GPU time in which no step was made."""
        return float(1 - self.stepped.sum() / (EACH * len(TYPES)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.gavel_live", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--policy", default="gavel:objective=las,walk=global")
    parser.add_argument("--round", type=float, default=5.0, help="seconds per round")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cotenant-gavel-") as home:
        lived = live(Path(home), options.policy, options.round, options.rounds)
    print(f"{options.policy}, {options.rounds} rounds of {options.round:g} s, {EACH} each of {', '.join(TYPES)}")
    print(f"{'job':8} " + "   ".join(f"{kind + ' target':>12} {'received':>8}" for kind in TYPES))
    for name, wanted, got in zip(lived.names, lived.target, lived.received, strict=True):
        print(f"{name:8} " + "   ".join(f"{a:12.3f} {b:8.3f}" for a, b in zip(wanted, got, strict=True)))
    print(f"starts {lived.starts}, decisions out of time {lived.timeouts}, one solve: {lived.solved_once}")
    print(
        f"GPU time that no process held {lived.unheld:6.1%}; without steps, starts and saves included {lived.lost:6.1%}"
    )
    print(f"share of GPU time that went elsewhere than promised (total variation) {lived.variation:6.1%}")
    missed = lived.off > TARGET
    print(f"largest difference of a fraction {lived.off:.3f}   < {TARGET}{'   MISSED' if missed else ''}")
    sys.exit(int(missed))


def live(home: Path, policy: str, round_s: float, rounds: int, patience_s: float = 60.0) -> Lived:
    """Run the eight jobs for so many rounds after the first targets."""
    profile = home / "speeds.csv"
    lines = [f"{model},{kind},{speed}" for model, own in SPEEDS.items() for kind, speed in zip(TYPES, own, strict=True)]
    profile.write_text("model,gpu_type,consolidated\n" + "\n".join(lines) + "\n", encoding="utf-8")
    gpus = [kind for kind in TYPES for _ in range(EACH)]
    with live_service(
        home, policy, gpus=gpus, round_s=round_s, profile=str(profile), max_suspended=0
    ) as service:  # fmt: skip
        models = tuple(model for _ in range(2) for model in SPEEDS)
        jobs = [ids[0] for ids in service.desk.submit(ME, [_job(model) for model in models])]
        first = _standing(service, time.monotonic() + patience_s)
        since_s, target = first.solved_s, first.target
        _wait_until(service, since_s + rounds * round_s)
        now_s = time.time()
        received = _received(service, jobs, since_s, now_s)
        solved_once = _standing(service).solved_s == since_s
        for job in jobs:
            service.desk.hold(ME, job)
        until = time.monotonic() + patience_s
        while service.store.book.on_gpus and time.monotonic() < until:
            service.desk.wait_events(service.store.book.seq, 0.1)
        starts = sum(len(service.desk.job(ME, job).attempts) for job in jobs)
        timeouts = int(service.admin.metrics()["cotenant_decision_timeouts_total"])
    done = [worked(home / "checkpoints" / job) for job in jobs]
    stepped = np.array([[one.get(kind, 0.0) for kind in TYPES] for one in done]) / (now_s - since_s)
    return Lived(models, target, received, stepped, starts, solved_once, timeouts)


def _job(model: str) -> object:
    paces = ",".join(f"{kind}={STEP_S / speed:g}" for kind, speed in zip(TYPES, SPEEDS[model], strict=True))
    return parse_job({"run": f"{sys.executable} {SCRIPT} {paces}", "name": model, "model": model})


def _standing(service: CoreService, until: float = 0.0) -> Standing:
    """Where jobs stood when the last round began; waits for the first."""
    while True:
        policy = getattr(service.planner.live, "policy", None)
        if isinstance(policy, RoundPolicy) and policy.standing is not None:
            return policy.standing
        assert time.monotonic() < until, "no decision in time"
        service.desk.wait_events(service.store.book.seq, 0.05)


def _wait_until(service: CoreService, moment_s: float) -> None:
    while (left_s := moment_s - time.time()) > 0:
        service.desk.wait_events(service.store.book.seq, min(left_s, 1.0))


def _received(service: CoreService, jobs: list[str], since_s: float, now_s: float) -> np.ndarray:
    kinds = {node.name: TYPES.index(node.gpu_type) for node in service.admin.nodes(ME)}
    held = np.zeros((len(jobs), len(TYPES)))
    for at, job in enumerate(jobs):
        for attempt in service.desk.job(ME, job).attempts:
            if attempt.started_s is not None:
                end_s = now_s if attempt.ended_s is None else min(attempt.ended_s, now_s)
                held[at, kinds[attempt.nodes[0][0]]] += max(end_s - max(attempt.started_s, since_s), 0.0)
    return held / (now_s - since_s)


if __name__ == "__main__":
    main()
