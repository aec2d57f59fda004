"""The mix that `bench.gpu_mix` plays: eight training jobs, and under which policies."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cotenant.beliefs.host_pace import OWN_SPREAD
from cotenant.beliefs.host_pace import SPREAD as HOST_SPREAD

ROOT = Path(__file__).resolve().parent.parent
GAP_S = 4.0  # between two submissions
ORDERS_WITHIN = 0.05  # how far the simulator may be off where nobody shares


@dataclass(frozen=True, slots=True)
class Member:
    """A job of the mix. `batch` is 0 where it must not be cut; `spare`: opportunistic under AntMan.

    As a stand-in it starts for `start_s` and then takes `host_s` and `gpu_s` per step.
    """

    model: str
    script: str
    steps: int
    batch: int = 0
    size: str = "small"
    gpu_gib: float = 16.0
    spare: bool = False
    start_s: float = 1.5
    host_s: float = 0.01
    gpu_s: float = 0.04


MIX = (
    Member("gpt2", "gpt2.py", 230, 64, gpu_gib=24.0),
    Member("resnet18", "resnet.py", 295, gpu_gib=4.0, spare=True, host_s=0.02, gpu_s=0.02),
    Member("resnet50", "resnet.py", 1140, size="large", gpu_gib=24.0),
    Member("bert", "bert.py", 200, 192, gpu_gib=24.0),
    Member("rl", "rl.py", 28, 256, gpu_gib=3.0, spare=True, host_s=0.04, gpu_s=0.002),
    Member("vit", "vit.py", 40, 768, gpu_gib=30.0),
    Member("lstm", "lstm.py", 180, 32, gpu_gib=4.0, spare=True, host_s=0.02, gpu_s=0.015),
    Member("recommender", "recommender.py", 1410, 4096, gpu_gib=4.0, spare=True, host_s=0.02, gpu_s=0.01),
)
STAND_IN_STEPS = {
    "gpt2": 180, "resnet18": 70, "resnet50": 300, "bert": 160, "rl": 70, "vit": 70, "lstm": 80, "recommender": 90,
}  # fmt: skip
STEP_SPREAD, GPU_SPREAD = 0.05, 0.02  # of luck, as logarithms: steps that wait for the host, and those that do not
ENDLESS = 10**6  # steps of a job that is profiled


@dataclass(frozen=True, slots=True)
class Play:
    """One run of the mix. Without `saves` jobs cannot save, and are suspended where they have to make room.

    `{between}` in the policy is a time at which some jobs are worth stopping and others not, by far. `within` is
    how far the simulator may be off, `foretells` how far a forecast may.
    """

    name: str
    policy: str
    share: str = "time"
    saves: bool = True
    within: float = 0.10
    foretells: float = 0.15

    @property
    def shares(self) -> bool:
        """Whether jobs may share the GPU."""
        return self.within > ORDERS_WITHIN

    def policy_for(self, worth_s: Iterable[float]) -> str:
        """The policy with what depends on the jobs: for each until when stopping it is worth what that costs.

        A threshold near one of these is a toss-up, so it lies in the widest gap between them.
        """
        ordered = sorted(worth_s)[1:]
        gap, low_s = max((high - low, low) for low, high in pairwise(ordered))
        return self.policy.format(between=round(low_s + gap / 2, 1))


PLAYS = {
    play.name: play
    for play in (
        Play("fifo", "fifo", within=ORDERS_WITHIN, foretells=0.10),
        Play("sjf-bsbf", "sjf-bsbf"),
        Play("sjf-ffs", "sjf-ffs", share="mps"),
        Play("gandiva", "gandiva:quantum=30,watch_s=8,trial_s=8"),
        Play("antman", "antman:control_s=2"),
        Play("muri-s", "muri-s"),
        Play("srtf", "srtf", within=ORDERS_WITHIN, foretells=0.10),
        Play("tiresias-l", "tiresias-l:threshold={between}", saves=False, within=ORDERS_WITHIN, foretells=0.10),
    )
}


@dataclass(frozen=True, slots=True)
class Setting:
    """Where the mix is played: on the GPU, or with stand-ins that leave marks in `busy_dir`.

    With `luck`, a seed, stand-ins take in a play what hosts and jobs on an H200 were seen to be off from a profile:
    the host's pace differs from play to play, and each start and speed by itself.
    """

    state: Path
    busy_dir: Path | None = None
    luck: int = 0

    @property
    def stand_in(self) -> bool:
        """Whether there is no GPU."""
        return self.busy_dir is not None

    @property
    def profile(self) -> Path:
        """The file of what `cotenant profile` has measured."""
        return self.state / "profile.json"

    @property
    def known(self) -> Path:
        """The same as the plays so far have renewed it: what the next one is given."""
        return self.state / "known.json"

    def steps(self, member: Member) -> int:
        """How many steps it makes."""
        return STAND_IN_STEPS[member.model] if self.stand_in else member.steps

    def all_steps(self) -> dict[str, int]:
        """The same of every model."""
        return {member.model: self.steps(member) for member in MIX}

    def _luck(self, play: str, model: str) -> tuple[float, float, float]:
        """Factors of a job's start, and of the host's and the GPU's part of its steps."""
        pace = HOST_SPREAD * np.random.default_rng([self.luck, *play.encode()]).standard_normal()
        own = np.random.default_rng([self.luck, *f"{play} {model}".encode()]).standard_normal(3)
        off = pace + OWN_SPREAD * own[0], pace + STEP_SPREAD * own[1], GPU_SPREAD * own[2]
        start, host, gpu = np.exp(off).tolist()
        return start, host, gpu

    @staticmethod
    def script(name: str) -> Path:
        """An example's file."""
        return ROOT / "examples" / "train" / name

    def environment(self) -> dict[str, str]:
        """Variables of a job: bytecode is kept, as usual."""
        path = os.pathsep.join(dict.fromkeys([str(ROOT / "src"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]))
        kept = f"{self.state}/bytecode"
        return {"PYTHONPATH": path, "PYTHONPYCACHEPREFIX": kept, "PYTHONDONTWRITEBYTECODE": ""}

    def command(self, member: Member, steps: int, play: Play | None = None) -> str:
        """What a job of the mix runs, in a play or when it is profiled."""
        keeps = ["--times"] if play is None or play.saves else ["--times", "--no-save"]
        if self.busy_dir is None:
            words = [sys.executable, str(self.script(member.script)), "--size", member.size, "--steps", str(steps)]
            words += ["--batch", str(member.batch)] if member.batch else []
            return shlex.join([*words, *keeps])
        script = ROOT / "bench" / "stand_in_job.py"
        start, host, gpu = self._luck(play.name, member.model) if play is not None and self.luck else (1.0, 1.0, 1.0)
        seconds = {"start": member.start_s * start, "host": member.host_s * host, "gpu": member.gpu_s * gpu}
        times = [word for name, each_s in seconds.items() for word in (f"--{name}", f"{each_s:.4f}")]
        more = ["--steps", str(steps), "--batch", str(member.batch), "--busy-dir", str(self.busy_dir)]
        return shlex.join([sys.executable, str(script), *times, *more, *keeps])

    def job(self, member: Member, play: Play | None = None, expected_s: float = 0.0) -> dict[str, Any]:
        """A job file's content; without a play it is one that is profiled."""
        run = self.command(member, ENDLESS) if play is None else self.command(member, self.steps(member), play)
        job: dict[str, Any] = {
            "run": run, "name": member.model, "model": member.model, "gpus": 1, "gpu_mem": member.gpu_gib,
            "workdir": str(self.state), "env": self.environment(),
        }  # fmt: skip
        if member.batch:
            job["batch"] = {"size": member.batch}
        if expected_s:
            job["expected"] = round(expected_s)
        if play is not None and play.name == "antman" and member.spare:
            job["priority"] = -1
        return job
