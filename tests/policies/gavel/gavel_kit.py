"""Random problems, small workloads and profiles for the tests of Gavel."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from cotenant.core.cluster import Cluster
from cotenant.core.workload import Codes, Workload, make_workload
from cotenant.policies.rounds.problem import Problem, Targets
from cotenant.sim.driver import Experiment

seeds = st.integers(0, 2**31)
TYPES = ("v100", "p100", "k80")


def problem(
    rates: Sequence[Sequence[float]] | np.ndarray, capacity: Sequence[float], gangs: Sequence[int] = (),
    weights: Sequence[float] = (), left_s: Sequence[float] = (), age_s: Sequence[float] = (),
) -> Problem:  # fmt: skip
    """A problem with as little said as possible."""
    table = np.array(rates, np.float64)
    n, pools = table.shape
    ones = np.ones(n)
    return Problem(
        now_s=1000.0,
        rates=table,
        gangs=np.array(gangs, np.int64) if len(gangs) else np.ones(n, np.int64),
        weights=np.array(weights, np.float64) if len(weights) else ones,
        capacity=np.array(capacity, np.float64),
        left_s=np.array(left_s, np.float64) if len(left_s) else 100 * ones,
        age_s=np.array(age_s, np.float64) if len(age_s) else ones,
        isolated_s=np.zeros(n),
        steps_per_s=ones,
        deadline_s=np.full(n, np.nan),
        tenant=np.zeros(n, np.int64),
        prices=np.arange(pools, 0, -1).astype(np.float64),
        kind=np.arange(n),
        pool_types=TYPES[:pools],
    )


def random_problem(seed: int, jobs: int = 9, zeros: float = 0.2) -> Problem:
    """Up to nine jobs on two or three pools; some cannot run everywhere, but all somewhere."""
    draw = np.random.default_rng(seed)
    n, pools = int(draw.integers(1, jobs + 1)), int(draw.integers(2, 4))
    capacity = draw.integers(1, 5, pools).astype(np.float64)
    gangs = np.minimum(draw.choice([1, 1, 1, 2, 4], n), int(capacity.max()))
    rates = draw.lognormal(0, 1, (n, pools)) * (draw.random((n, pools)) >= zeros)
    rates[gangs[:, None] > capacity[None, :]] = 0.0  # as the engine tells policies
    rates[np.arange(n), np.argmax(capacity)] = np.maximum(rates[:, np.argmax(capacity)], 0.1)
    made = problem(rates, capacity.tolist(), gangs.tolist(), draw.choice([1.0, 5.0], n).tolist())
    return replace(
        made,
        left_s=draw.lognormal(5, 1, n),
        age_s=draw.uniform(0, 500, n),
        isolated_s=draw.uniform(0, 300, n),
        steps_per_s=draw.lognormal(0, 1, n),
        deadline_s=np.where(draw.random(n) < 0.5, 1000.0 + draw.uniform(50, 2000, n), np.nan),
        tenant=draw.integers(0, 3, n),
    )


def with_pairs(made: Problem, seed: int) -> Problem:
    """The same jobs, able to share."""
    draw = np.random.default_rng([seed, 1])
    n, pools = made.rates.shape
    share = draw.uniform(0.4, 1.0, (n, n, pools)) * (draw.random((n, n, 1)) < 0.8)
    able = (made.rates > 0)[:, None, :] & (made.rates > 0)[None, :, :]
    same = made.gangs[:, None] == made.gangs[None, :]
    return replace(made, pair=made.rates[:, None, :] * share * able * same[:, :, None])


def assert_feasible(made: Problem, targets: Targets) -> None:
    """Fractions of time, no pool over its GPUs, nobody where it cannot run, pairs of equal size only."""
    x, pairs, pair_x = targets.x, targets.pairs, targets.pair_x
    assert np.isfinite(x).all()
    assert (x >= 0).all()
    assert (x[made.rates <= 0] == 0).all()
    time, used = x.sum(axis=1), made.gangs @ x
    if len(pairs):
        assert (pair_x >= 0).all()
        assert (made.gangs[pairs[:, 0]] == made.gangs[pairs[:, 1]]).all()
        for side in (0, 1):
            assert (pair_x[made.rates[pairs[:, side]] <= 0] == 0).all()
        time = time + np.bincount(pairs.ravel(), np.repeat(pair_x.sum(axis=1), 2), len(time))
        used = used + made.gangs[pairs[:, 0]] @ pair_x
    assert time.max(initial=0.0) <= 1 + 1e-7
    assert (used <= made.capacity * (1 + 1e-7)).all()


def jobs(
    rows: Sequence[tuple[float, int, float]], models: Sequence[str] = (), tenants: Sequence[str] = (),
    deadline_s: Sequence[float] = (), weight: Sequence[float] = (),
) -> Workload:  # fmt: skip
    """(submit, GPUs, seconds of work) in order of submission; models and tenants go round."""
    submit, gpus, duration = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    return make_workload(
        "rows",
        submit,
        gpus.astype(np.int64),
        duration,
        model=_codes(models, len(rows)),
        tenant=_codes(tenants, len(rows)),
        deadline_s=np.array(deadline_s) if len(deadline_s) else None,
        extra={"weight": np.array(weight, np.float64)} if len(weight) else None,
    )


def _codes(names: Sequence[str], rows: int) -> Codes | None:
    if not names:
        return None
    each = [names[row % len(names)] for row in range(rows)]
    distinct = tuple(dict.fromkeys(each))
    return Codes(np.array([distinct.index(name) for name in each], np.int64), distinct)


def speeds(folder: Path, table: dict[str, dict[str, float]]) -> str:
    """A profile file: model -> GPU type -> speed, consolidated or spread alike."""
    lines = [
        {"model": model, "gpu_type": kind, "consolidated": speed, "spread": speed}
        for model, row in table.items()
        for kind, speed in row.items()
    ]
    path = folder / "speeds.json"
    path.write_text(json.dumps(lines), encoding="utf-8")
    return str(path)


def throughputs(folder: Path, alone: dict[str, Sequence[float]], together: float) -> str:
    """A throughput file: steps/s of single-GPU models on v100, p100, k80, and each pair at a share of that."""
    table = {
        kind: {
            f"('{model}', 1)": {
                "null": rates[at],
                **{f"('{other}', 1)": [together * rates[at], together * alone[other][at]] for other in alone},
            }
            for model, rates in alone.items()
        }
        for at, kind in enumerate(TYPES)
    }
    path = folder / "throughputs.json"
    path.write_text(json.dumps(table), encoding="utf-8")
    return str(path)


def experiment(work: Workload, policy: str, cluster: str | Cluster = "2x1:v100+2x1:p100+2x1:k80", **more) -> Experiment:
    """A run with every invariant checked after every decision."""
    spec = Cluster.parse(cluster) if isinstance(cluster, str) else cluster
    settings = {"costs": "none", "check_invariants": True, "compiled": False, **more}
    return Experiment(work, spec, policy, **settings)
