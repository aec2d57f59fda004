"""GPU memory that gives, on GPUs of 24 GB with the models measured on an H200: what is gained, and at what price.

`python -m bench.memory [--jobs 200] [--seeds 1] [--load 1.25] [--oversubscribe 1.5] [--policies ...]`. 4x4:a10 and
philly-like jobs with the models of the H200, at those measured batch sizes that need 1 GiB or more, and up to 1.5 times
what a GPU has (22.5 GiB). With all their memory jobs take on these GPUs what the log says. What they can do with is the
profile's (no optimizer state, half of the activations); how fast they are then is computed from the bus. First: which
pairs of these models may share a GPU at all. Then three runs by policy: `hard` (peaks must fit), `soft` with the same
jobs, and `soft, all` with those too that need more than a GPU has.

jobs: that run at all. JCT: mean of those that run in all three, hours. shared: GPU time beside somebody, in per cent of
all GPU time; squeezed: the same of jobs with less than their peak. slow: by how much longer steps take for lack of
memory, mean over that time. p95: of each job's time on GPUs against alone with all its memory.

Exit status 1 if grants pass a GPU or peaks the cap at any decision, if a job does not end, if a job that ran does not
run any more, or if anything changes where nobody gives memory (`gpu_mem_min` = peak).
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field, replace

import numpy as np

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.declared import Oversubscription
from cotenant.core.spec import Spec
from cotenant.core.state import Rule, State
from cotenant.core.together import Together
from cotenant.core.workload import Codes, Floats, Workload
from cotenant.engine.rates import RateModel
from cotenant.sim.driver import Experiment, Simulation
from cotenant.workload.generators import generate
from cotenant.workload.profiles import load_profile, measured
from cotenant.workload.profiles.roofline import CONTEXT_MIB, GPUS
from cotenant.workload.profiles.softening import soften

CLUSTER, PROFILE = "4x4:a10", "h200"
LEAST_MIB = 1024
POLICIES = ("fifo", "sjf-bsbf", "sjf-ffs", "antman:control_s=3600", "gandiva", "horus", "muri-l")


@dataclass(slots=True)
class Watch:
    """A rate model that is watched: who is squeezed for how long, and whether all limits are kept."""

    rates: RateModel | None
    together: Together | None
    cap: float
    spent: Floats = field(default_factory=lambda: np.zeros(4))  # GPU-seconds: all, shared, squeezed, lost to that
    broken: list[str] = field(default_factory=list)
    _since_s: float = np.nan
    _now: Floats = field(default_factory=lambda: np.zeros(4))

    def update(self, state: State, rule: Rule, now_s: float) -> None:
        """Count what was, let the model work, look at what is."""
        self.spent += (now_s - self._since_s) * self._now if np.isfinite(self._since_s) else 0.0
        self._since_s = now_s
        if self.rates is not None:
            self.rates.update(state, rule, now_s)
        self._now = self._look(state)

    def _look(self, state: State) -> Floats:
        users = (state.gpu >= 0).sum(axis=1)
        busy, shared = float(users.sum()), float(users[users > 1].sum())
        if self.together is None:
            return np.array([busy, shared, 0.0, 0.0])
        if self.together.soft is not None:
            self._check(state)
        rows = np.unique(state.gpu[state.gpu >= 0])
        rows = rows[state.f[rows, col.CAP] < 1 - 1e-9]
        gpus, parts = state.i[rows, col.GPUS], state.f[rows, col.CAP].tolist()
        kinds = state.i[rows, col.SPEED_ROW].tolist()
        speeds = np.array([self.together.speed_at(kind, part) for kind, part in zip(kinds, parts, strict=True)])
        return np.array([busy, shared, gpus.sum(), (gpus * (1 / np.maximum(speeds, 1e-9) - 1)).sum()])

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

    shared: float
    squeezed: float
    slow: float
    p95: float
    jct_s: Floats
    finish_s: Floats
    ids: tuple[str, ...]
    broken: tuple[str, ...]

    def jct_h(self, of: tuple[str, ...]) -> float:
        """Mean JCT of some jobs."""
        return float(self.jct_s[np.isin(self.ids, of)].mean()) / 3600


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--load", default="1.25")
    parser.add_argument("--oversubscribe", default="1.5")
    parser.add_argument("--policies", nargs="*", default=list(POLICIES))
    options = parser.parse_args()
    wrong: list[str] = []
    print(f"{CLUSTER}, {options.jobs} jobs, load {options.load}, --oversubscribe {options.oversubscribe}")
    for seed in range(options.seeds):
        work = workload(options.jobs, options.load, seed)
        wrong += pairs(work, options.oversubscribe)
        print(f"{'':12}{'':11} jobs  JCT h  against hard  shared %  squeezed %  slow %  p95 of slowdowns")
        for policy in options.policies:
            wrong += compared(work, policy, options.oversubscribe)
    for line in dict.fromkeys(wrong):
        print(f"MISSED: {line}")
    sys.exit(1 if wrong else 0)


def workload(jobs: int, load: str, seed: int) -> Workload:
    """Jobs that take on these GPUs, with all their memory, what the log says."""
    cluster = Cluster.parse(CLUSTER)
    work = generate(Spec.parse(f"philly-like:jobs={jobs},load={load},seed={seed}"), cluster.gpus, None)
    work = work.take(work.gpus <= cluster.gpus)
    room = GPUS["a10"].memory_mib
    large = [f"{model} (batch size {batch})" for (model, batch), step in measured.steps().items()
             if LEAST_MIB <= step.memory_mib + CONTEXT_MIB <= 1.5 * room]  # fmt: skip
    drawn = np.random.default_rng([seed, 24]).integers(0, len(large), len(work))
    work = replace(work, model=Codes.of([large[at] for at in drawn.tolist()]), attempts={})
    profile = load_profile(PROFILE, work, ("a10",), soft=True)
    return replace(work, duration_s=work.duration_s * profile.speed[profile.row, 0, 0])


def pairs(work: Workload, oversubscribe: str) -> list[str]:
    """Print how many pairs of models may share a GPU; whether soft memory ever refuses what hard memory allows."""
    rule = Oversubscription.parse(oversubscribe)
    assert rule is not None
    soft = soften(load_profile(PROFILE, work, ("a10",), soft=True), rule, placed=True).together
    hard = load_profile(PROFILE, work, ("a10",)).together
    assert soft is not None
    assert hard is not None
    kinds = range(len(soft.busy))
    seen = [(a, b) for a in kinds for b in kinds[a:] if soft.memory_gib[[a, b], 0].all()]
    fits = [hard.ratio[a, b, 0] > 0 for a, b in seen]
    why = [soft.refusal((a, b), (0, 0), 0) for a, b in seen]
    squeezed = sum(not text and not fit for text, fit in zip(why, fits, strict=True))
    refused = {word: sum(word in text for text in why) for word in ("at least", "times", "over a bus")}
    print(
        f"of {len(seen)} pairs of models {sum(fits)} may share a GPU hard, {squeezed} more soft; of the others"
        f" {refused['at least']} need too much, {refused['times']} pass the cap, {refused['over a bus']} the bus"
    )
    return ["soft memory refuses what hard allows"] if any(t and f for t, f in zip(why, fits, strict=True)) else []


def compared(work: Workload, policy: str, oversubscribe: str) -> list[str]:
    """Print the three runs of one policy; which invariants were missed. Under AntMan every second job is a guest."""
    if policy.startswith("antman"):
        work = replace(work, priority=-(np.arange(len(work)) % 2))
    hard = played(work, policy, "")
    same = work.take(np.isin(work.job_id, list(hard.ids)))
    soft, everybody = played(same, policy, oversubscribe), played(work, policy, oversubscribe)
    usual_h = hard.jct_h(hard.ids)
    for name, one in (("hard", hard), ("soft", soft), ("soft, all", everybody)):
        jct_h, shares = one.jct_h(hard.ids), (100 * one.shared, 100 * one.squeezed, 100 * one.slow)
        against = f"{100 * (jct_h / usual_h - 1):+.1f} %"
        print(f"{policy.split(':')[0]:12}{name:11}{len(one.ids):5}{jct_h:8.2f}{against:>14}", end="")
        print(f"{shares[0]:10.1f}{shares[1]:12.1f}{shares[2]:8.1f}{one.p95:18.2f}", flush=True)
    wrong = [f"{policy}: {line}" for one in (soft, everybody) for line in one.broken[:1]]
    wrong += [f"{policy}: a job did not end" for one in (hard, soft, everybody) if np.isnan(one.finish_s).any()]
    wrong += [f"{policy}: jobs do not run any more"] if not set(hard.ids) <= set(everybody.ids) else []
    if policy.startswith("antman"):  # it squeezes guests anyhow, by curves of its own and to a tenth
        return wrong
    unmoved = played(without_give(same), policy, oversubscribe)
    if not np.array_equal(unmoved.finish_s, hard.finish_s):
        wrong.append(f"{policy}: it is not the same where nobody gives memory")
    return wrong


def without_give(work: Workload) -> Workload:
    """The same jobs, each of which needs all of its peak."""
    profile = load_profile(PROFILE, work, ("a10",), soft=True)
    assert profile.together is not None
    return replace(work, extra={**work.extra, "gpu_mem_min": profile.together.memory_gib[profile.row, 0]})


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
    if run.traits.shares:
        run.engine.rates = watch
    run.advance(np.inf)
    result = run.outcome()
    ran_s = result.jct_s - result.queue_s
    profile = load_profile(PROFILE, run.work, ("a10",), soft=True)
    alone_s = run.work.duration_s / profile.speed[profile.row, 0, 0]
    busy, shared, squeezed, lost = watch.spent.tolist()
    return Figures(
        shared / max(busy, 1e-9), squeezed / max(busy, 1e-9), lost / max(squeezed, 1e-9),
        float(np.nanpercentile(ran_s / alone_s, 95)), result.jct_s, result.finish_s,
        tuple(run.work.job_id.tolist()), tuple(watch.broken),
    )  # fmt: skip


if __name__ == "__main__":
    main()
