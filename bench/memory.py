"""GPU memory that gives, on GPUs of 24 GB with the models measured on an H200: what is gained, and at what price.

`python -m bench.memory [--jobs 120] [--seeds 1] [--load 1.25] [--oversubscribe 1.5] [--policies ...]`. 4x4:a10 (22.5 GiB
each), philly-like jobs with models of the H200 at all measured batch sizes; at full memory jobs take on these GPUs what
the log says. What jobs can do with is the profile's (no optimizer state, half of the activations), their speed with less
is computed from the bus. Three runs by policy: `hard` (peaks must fit), `soft` with the same jobs, `soft, all` with
those too that need more than a GPU has.

jobs: that run at all. JCT: mean, hours. shared: starts beside somebody. squeezed: GPU time of jobs with less than their
peak, in per cent of all. slow: by how much longer these take for lack of memory (mean over that time). p95: of the
time on GPUs against the time alone with all memory.

Exit status 1 if grants pass a GPU or peaks the cap at any decision, if a job does not end, if a job that ran does not
run any more, or if anything changes where nobody gives memory (`gpu_mem_min` = peak).
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field, replace

import numpy as np

from bench.bsbf import hashed_models
from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.spec import Spec
from cotenant.core.state import Rule, State
from cotenant.core.together import Together
from cotenant.core.workload import Floats, Workload
from cotenant.engine.rates import RateModel
from cotenant.sim.driver import Experiment, Simulation
from cotenant.workload.generators import generate
from cotenant.workload.profiles import load_profile

CLUSTER, PROFILE = "4x4:a10", "h200"
POLICIES = ("fifo", "sjf-bsbf", "sjf-ffs", "antman", "gandiva", "horus", "muri-l")


@dataclass(slots=True)
class Watch:
    """A rate model that is watched: who is squeezed for how long, and whether all limits are kept."""

    rates: RateModel | None
    together: Together | None
    cap: float
    turn: float = 0.0
    squeezed_s: float = 0.0
    busy_s: float = 0.0
    lost: float = 0.0  # time that squeezed jobs lose to it
    broken: list[str] = field(default_factory=list)
    _since_s: float = np.nan
    _now: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def update(self, state: State, rule: Rule, now_s: float) -> None:
        """Count what was, let the model work, look at what is."""
        if np.isfinite(self._since_s):
            past_s = now_s - self._since_s
            self.busy_s, self.squeezed_s, self.lost = (
                before + past_s * rate
                for before, rate in zip((self.busy_s, self.squeezed_s, self.lost), self._now, strict=True)
            )
        self._since_s = now_s
        if self.rates is not None:
            self.rates.update(state, rule, now_s)
        self._now = self._look(state)

    def _look(self, state: State) -> tuple[float, float, float]:
        rows = np.unique(state.gpu[state.gpu >= 0]) if len(state.gpu) else np.zeros(0, np.int64)
        gpus = state.i[rows, col.GPUS]
        if self.together is None or self.together.soft is None:
            return float(gpus.sum()), 0.0, 0.0
        parts, kinds = state.f[rows, col.CAP], state.i[rows, col.SPEED_ROW]
        self._check(state)
        less = parts < 1 - 1e-9
        speeds = [self.together.speed_at(kind, part) for kind, part in zip(kinds[less], parts[less], strict=True)]
        lost = float((gpus[less] * (1 / np.maximum(speeds, 1e-9) - 1)).sum()) if less.any() else 0.0
        return float(gpus.sum()), float(gpus[less].sum()), lost

    def _check(self, state: State) -> None:
        together = self.together
        assert together is not None
        room = float(together.gpu_gib.max())
        for gpu, users in enumerate(state.gpu.tolist()):
            here = np.array([job for job in users if job >= 0], np.int64)
            turns = state.i[here, col.TURN]
            for turn in set(turns.tolist()):
                some = here[(turns == 0) | (turns == turn)]
                peaks = together.memory_gib[state.i[some, col.SPEED_ROW], state.i[some, col.LEVEL]]
                if (peaks * state.f[some, col.CAP]).sum() > room + 1e-6:
                    self.broken.append(f"grants on GPU {gpu} pass its memory")
                if peaks.sum() > self.cap * room + 1e-6:
                    self.broken.append(f"peaks on GPU {gpu} pass the cap")


@dataclass(frozen=True, slots=True)
class Figures:
    """What is printed of one run."""

    jobs: int
    jct_h: float
    shared: int
    squeezed: float
    slow: float
    p95: float
    finish_s: Floats
    ids: frozenset[str]
    broken: tuple[str, ...]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--jobs", type=int, default=120)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--load", default="1.25")
    parser.add_argument("--oversubscribe", default="1.5")
    parser.add_argument("--policies", nargs="*", default=list(POLICIES))
    options = parser.parse_args()
    wrong = []
    print(f"{CLUSTER}, {options.jobs} jobs, load {options.load}, --oversubscribe {options.oversubscribe}")
    print(f"{'':12}{'':11} jobs  JCT h  against hard  shared  squeezed %  slow %  p95 of slowdowns")
    for seed in range(options.seeds):
        work = workload(options.jobs, options.load, seed)
        for policy in options.policies:
            wrong += compared(work, policy, options.oversubscribe)
    for line in dict.fromkeys(wrong):
        print(f"MISSED: {line}")
    sys.exit(1 if wrong else 0)


def workload(jobs: int, load: str, seed: int) -> Workload:
    """Jobs that take on these GPUs, with all their memory, what the log says."""
    cluster = Cluster.parse(CLUSTER)
    spec = Spec.parse(f"philly-like:jobs={jobs},load={load},seed={seed}")
    work = hashed_models(generate(spec, cluster.gpus, None), seed, "h200-batches")
    work = work.take(work.gpus <= cluster.gpus)
    speed = load_profile(PROFILE, work, ("a10",), soft=True).speed[:, 0, 0]
    kinds = load_profile(PROFILE, work, ("a10",), soft=True).row
    return replace(work, duration_s=work.duration_s * speed[kinds], attempts={})


def compared(work: Workload, policy: str, oversubscribe: str) -> list[str]:
    """Print the three runs of one policy; which invariants were missed."""
    hard = played(work, policy, "")
    same = work.take(np.isin(work.job_id, list(hard.ids)))
    nobody = np.full(len(same), np.nan)
    stiff = replace(same, extra={**same.extra, "gpu_mem_min": nobody, "gpu_mem_stiff": nobody})
    soft, everybody = played(same, policy, oversubscribe), played(work, policy, oversubscribe)
    for name, one in (("hard", hard), ("soft", soft), ("soft, all", everybody)):
        against = f"{100 * (one.jct_h / hard.jct_h - 1):+.1f} %"
        print(
            f"{policy:12}{name:11}{one.jobs:5}{one.jct_h:7.2f}{against:>14}{one.shared:8}{100 * one.squeezed:12.1f}"
            f"{100 * one.slow:8.1f}{one.p95:18.2f}",
            flush=True,
        )
    wrong = [f"{policy}: {line}" for one in (soft, everybody) for line in one.broken[:1]]
    wrong += [f"{policy}: a job did not end" for one in (hard, soft, everybody) if np.isnan(one.finish_s).any()]
    wrong += [f"{policy}: jobs do not run any more"] if not hard.ids <= everybody.ids else []
    unmoved = played(without_give(stiff), policy, oversubscribe)
    if not np.array_equal(unmoved.finish_s, hard.finish_s):
        wrong.append(f"{policy}: it is not the same where nobody gives memory")
    return wrong


def without_give(work: Workload) -> Workload:
    """The same jobs, each of which needs all of its peak."""
    profile = load_profile(PROFILE, work, ("a10",), soft=True)
    assert profile.together is not None
    extra = {name: values for name, values in work.extra.items() if name != "gpu_mem_stiff"}
    return replace(work, extra={**extra, "gpu_mem_min": profile.together.memory_gib[profile.row, 0]})


def played(work: Workload, policy: str, oversubscribe: str) -> Figures:
    """One run, watched."""
    run = Simulation(
        Experiment(
            work, Cluster.parse(CLUSTER), policy, profile=PROFILE, oversubscribe=oversubscribe, skip_infeasible=True,
            compiled=False,
        )
    )  # fmt: skip
    cap = float(oversubscribe.split("@")[0]) if oversubscribe else 1.0
    watch = Watch(run.engine.rates, run.profile.together, cap)
    shares = run.traits.shares
    if shares:
        run.engine.rates = watch
    run.advance(np.inf)
    result = run.outcome()
    ran_s = result.jct_s - result.queue_s
    alone_s = run.work.duration_s / run.state.speed[run.state.i[:, col.SPEED_ROW], 0, 0]
    return Figures(
        len(run.work), float(np.nanmean(result.jct_s)) / 3600, 0, watch.squeezed_s / max(watch.busy_s, 1e-9),
        watch.lost / max(watch.squeezed_s, 1e-9), float(np.nanpercentile(ran_s / alone_s, 95)), result.finish_s,
        frozenset(run.work.job_id.tolist()), tuple(watch.broken),
    )  # fmt: skip


if __name__ == "__main__":
    main()
