"""The experiments of Gandiva's paper (OSDI'18, section 6), its figures beside ours. See `bench.gandiva`.

What is taken from the paper are its settings and what it measured of single models: utilisation, mini-batches per
second alone and packed, what a switch or a move takes, what being spread costs. What different models do to each other
on one GPU follows from their utilisation by the formula of the H200 profile, its factors fitted to the packing table
(six models, taken to be packed in pairs). None of it is fitted to the results of clusters or of AutoML.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cotenant.core import columns as col
from cotenant.core.spec import Spec
from cotenant.core.together import Together
from cotenant.engine.keys import work_done
from cotenant.engine.tables import StopCosts
from cotenant.policies.gandiva.policy import Gandiva
from cotenant.sim.driver import Simulation
from cotenant.testing.sharing import shared_run, sharing
from cotenant.workload.generators import generate
from cotenant.workload.profiles.together import fit_formula, formula


@dataclass(frozen=True, slots=True)
class Model:
    """A model of the packing table (P40): utilisation, mini-batches per second in turns, and best when packed."""

    name: str
    busy: float
    turns_per_s: float
    packed_per_s: float


MODELS = (
    Model("VAE", 0.087, 81.8, 419.3), Model("SuperResolution", 0.141, 40.3, 145.2), Model("RHN", 0.616, 10.1, 14.8),
    Model("SCRNN", 0.668, 16.7, 23.3), Model("MI-LSTM", 0.762, 22.2, 25.9), Model("LSTM", 0.872, 63.8, 53.0),
    Model("ResNet-50", 0.940, 10.3, 9.0), Model("ResNext-50", 0.989, 83.6, 74.4),
)  # fmt: skip
LOW, MIDDLE, HIGH = (0, 1), (2, 3, 4), (5, 6, 7)
ONLY_TURNS = "migration=false,colocation=false,parting=false,defragmentation=false"
SWITCH = StopCosts(save_s=0.1, resume_s=0.4, suspends=True, most_suspended=10**6, patience_s=1e9)
SPREAD = (565 / 775, 0.95, 0.95)  # vision: ResNet-50 on 2x2 GPUs; the others as DeepSpeech where it shares links
MIGRATION_S = "2"
LONGEST_S = 86_400.0  # of the jobs of cluster B


def p40_factors() -> tuple[float, float]:
    """The factors of the formula on a P40: a pair of a model whose throughput is so much higher has this slowdown."""
    table = [model for model in MODELS if model.busy > 0.5]
    busy = np.array([model.busy for model in table])
    return fit_formula(busy, busy, np.array([2 * model.turns_per_s / model.packed_per_s for model in table]))


def by_formula(busy: Sequence[float]) -> Together:
    """What jobs of these utilisations do to each other on one GPU."""
    use = np.asarray(busy)
    return sharing(1 / formula(use[:, None], use[None, :], p40_factors()), busy=use.tolist())


def say(*cells: object) -> None:
    """One line of a table."""
    print(f"{cells[0]!s:<44}" + "".join(f"{cell!s:>15}" for cell in cells[1:]), flush=True)


def slicing() -> bool:
    """Six jobs of one GPU on four: what turns cost of the total throughput; whether that is below 2 %."""
    losses = []
    say("six jobs on four GPUs, turns of 60 s", "loss %", "paper")
    for switch_s in (0.1, 0.5, 1.0):
        policy = f"gandiva:packing=false,{ONLY_TURNS},switch_s={switch_s}"
        run = shared_run([(0.0, 1, 9000.0)] * 6, by_formula([0.9] * 6), "1x4", policy)
        run.advance(3000.0)
        done = sum(work_done(run.state.f, run.state.i, row, 3000.0) for row in range(6))
        losses.append(100 * (1 - done / 12_000))
        say(f"a switch takes {switch_s} s", f"{losses[-1]:.2f}", "< 2")
    return max(losses) < 2


def packing() -> bool:
    """Jobs of one model on one GPU, two with the paper's rates and four by the formula: who stays together.

    Whether those pairs do that gained in the paper.
    """
    held = True
    say("jobs of one model on one GPU", "paper: gain %", "pair kept", "four: gain %", "of them packed")
    for model in MODELS:
        gain = model.packed_per_s / model.turns_per_s
        pair = sharing(np.full((2, 2), min(gain / 2, 1.0)), busy=[model.busy] * 2)
        found = []
        for jobs, table in ((2, pair), (4, by_formula([model.busy] * 4))):
            run = shared_run([(0.0, 1, 20_000.0)] * jobs, table, "1x1", "gandiva:switch_s=0")
            run.advance(3000.0)
            assert isinstance(run.policy, Gandiva)
            speed = float((run.state.f[:, col.SPEED]).sum())
            found.append((100 * (speed - 1), len(run.policy.packing.paired)))
        (_, kept), (more, packed) = found
        say(model.name, f"{100 * (gain - 1):.0f}", "yes" if kept else "no", f"{more:.0f}", packed)
        held &= bool(kept) == (gain > 1)
    return held


def cluster_a(scale: float, seeds: int) -> None:
    """Turns and packing: 1,000 jobs of one GPU in two hours on 180 GPUs, 30 to 45 minutes each; no migration."""
    servers, jobs = round(45 * scale), round(1000 * scale)
    say(
        f"cluster A: {jobs} jobs, {4 * servers} GPUs, {seeds} seeds",
        "util. 2 h %",
        "util. all %",
        "100 batches s",
        "JCT s",
    )
    rows = {
        "bin packing (backfill)": "backfill",
        "turns": f"gandiva:packing=false,{ONLY_TURNS}",
        "turns and pairs": f"gandiva:group=2,{ONLY_TURNS}",
        "turns and packing (gandiva)": f"gandiva:{ONLY_TURNS}",
    }
    means = {}
    for name, policy in rows.items():
        means[name] = np.mean([_play_a(policy, servers, jobs, seed) for seed in range(seeds)], axis=0)
        say(name, *(f"{value:,.1f}" for value in means[name]))
    first, last = means["bin packing (backfill)"], means["turns and packing (gandiva)"]
    changes = [f"{100 * (after / before - 1):+.0f} %" for before, after in zip(first, last, strict=True)]
    say("gandiva against bin packing", *changes)
    say("paper: 50.1 % and 2,203 s become 62.8 % and 498 s", "+26 %", "+26 %", "-77 %", "-")


def _play_a(policy: str, servers: int, jobs: int, seed: int) -> tuple[float, ...]:
    draw = np.random.default_rng([seed, 45])
    share = np.array([0.3 / 2] * 2 + [0.25 / 3] * 3 + [0.45 / 3] * 3)
    kinds = draw.choice(len(MODELS), jobs, p=share)
    rows = [(float(at), 1, float(draw.uniform(1800, 2700))) for at in np.sort(draw.uniform(0, 7200, jobs))]
    table = by_formula([model.busy for model in MODELS])
    turns = {"stop_costs": SWITCH} if policy.startswith("gandiva") else {}
    run = shared_run(rows, table, f"{servers}x4", policy, kinds=kinds.tolist(), check_invariants=False, **turns)
    busy = np.array([model.busy for model in MODELS])[kinds]
    run.advance(7200.0)
    early = float((busy * _done(run, 7200.0)).sum()) / (4 * servers * 7200.0)
    run.advance(np.inf)
    result = run.outcome()
    span_s = float(result.finish_s.max() - result.workload.submit_s[0])
    whole = float((busy * result.workload.duration_s).sum()) / (4 * servers * span_s)
    first_s = result.first_start_s - result.workload.submit_s
    first_s = first_s + 100 / np.array([model.turns_per_s for model in MODELS])[kinds]
    return 100 * early, 100 * whole, float(first_s.mean()), float(result.jct_s.mean())


def _done(run: Simulation, now_s: float) -> np.ndarray:
    """Seconds of work of each job by now."""
    f, i = run.state.f, run.state.i
    ended = i[:, col.STATE] == col.FINISHED
    return np.array([f[row, col.WORK] if ended[row] else work_done(f, i, row, now_s) for row in range(len(f))])


def cluster_b(jobs: int, seeds: int, load: float) -> None:
    """Turns and migration, no packing: a log like Philly's without jobs of days, on 100 GPUs.

    Vision 10, language 60, speech 30 % of the jobs.
    """
    say(f"cluster B: {jobs} jobs, load {load:g}, {seeds} seeds", "avg JCT min", "makespan min", "moves", "undone")
    rows = {
        "yarn-cs, in strict order (fifo)": "fifo",
        "yarn-cs, whoever fits (backfill)": "backfill",
        "turns": f"gandiva:packing=false,{ONLY_TURNS}",
        "turns and migration (gandiva)": "gandiva:packing=false",
    }
    means = {}
    for name, policy in rows.items():
        means[name] = np.mean([_play_b(policy, jobs, seed, load) for seed in range(seeds)], axis=0)
        say(name, *(f"{value:,.1f}" for value in means[name]))
    for name in list(rows)[:2]:
        jct, span = means[name][:2] / means["turns and migration (gandiva)"][:2]
        say(f"{rows[name]} against gandiva", f"{jct:.3f}", f"{span:.3f}")
    say("paper: 832 / 656 and 13,371 / 11,349 min", "1.268", "1.178", "470", "-")


def _play_b(policy: str, jobs: int, seed: int, load: float) -> tuple[float, ...]:
    work = generate(Spec.parse(f"philly-like:jobs={jobs},load=1,seed={seed},max_gpus=16"), 100)
    seconds = np.minimum(work.duration_s, LONGEST_S)  # in nine days there were no jobs of weeks
    submit_s = work.submit_s * float(np.dot(work.gpus, seconds)) / (load * 100 * work.span_s)
    kinds = np.random.default_rng([seed, 50]).choice(3, jobs, p=[0.1, 0.6, 0.3])
    rows = list(zip(submit_s.tolist(), work.gpus.tolist(), seconds.tolist(), strict=True))
    run = shared_run(
        rows, by_formula([0.95] * 3), "25x4", policy, kinds=kinds.tolist(), costs=MIGRATION_S, check_invariants=False
    )
    run.state.speed[:, :, 1] = np.array(SPREAD)[:, None]
    run.advance(np.inf)
    result, figures = run.outcome(), run.policy.figures()
    moves = (float(str(figures.get(key, 0))) for key in ("migrations", "migrations_undone"))
    return float(result.jct_s.mean()) / 60, float(result.summary["makespan_s"] or 0) / 60, *moves  # type: ignore[arg-type]


def automl() -> None:
    """374 configurations of a small model, 30 minutes each, all there at once; the best is any of them."""
    for servers, paper in ((1, "2,726 / 387 = 7.04"), (4, "970 / 163 = 5.96")):
        say(f"AutoML: 374 configurations, {4 * servers} GPUs", "to the best min", "all min", "tried in 1 h", "factor")
        first = 0.0
        for policy in ("fifo", f"gandiva:packing=false,{ONLY_TURNS}", "gandiva:group=2", "gandiva:group=3", "gandiva"):
            run = shared_run(
                [(0.0, 1, 1800.0)] * 374, by_formula([0.114]), f"{servers}x4", policy, kinds=[0] * 374,
                check_invariants=False,
            )  # fmt: skip
            run.advance(np.inf)
            result = run.outcome()
            best, last = (float(value) / 60 for value in (result.finish_s.mean(), result.finish_s.max()))
            first = first or best
            early = int((result.first_start_s <= 3600).sum())
            say(policy.replace(f",{ONLY_TURNS}", ""), f"{best:,.0f}", f"{last:,.0f}", early, f"{first / best:.2f}")
        say("paper, to 84 %", "", "", "10 times fifo", paper)
