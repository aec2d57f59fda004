"""Try a policy on numbers of one's own: a few jobs, and what they do to each other on one GPU.

table = sharing([[1.0, 0.9], [0.8, 1.0]], memory_gib=[10, 20], gpu_gib=32)
run = shared_run([(0.0, 1, 600.0), (60.0, 1, 300.0)], table, "1x1", "sjf-bsbf")
run.advance(math.inf)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cotenant.beliefs.company import SharedSpeeds
from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.together import CURVE, LEVELS, Together
from cotenant.core.workload import Codes, make_workload
from cotenant.sim.driver import Experiment, Simulation


def sharing(
    ratio: ArrayLike,
    *,
    memory_gib: Sequence[float] | None = None,
    gpu_gib: float = np.inf,
    busy: Sequence[float] | None = None,
    pace: Sequence[float] = (1.0,),
    curve: ArrayLike | None = None,
    nearby: ArrayLike | None = None,
) -> Together:
    """What kinds of jobs do to each other: `ratio[a][b]` is the speed of a beside b against alone.

    `pace` is the speed with 1, 2, 4, ... sub-batches; each takes half the memory of the one before. `nearby[a][b]` is
    the speed of a with b on another GPU of its server.
    """
    table = np.asarray(ratio, np.float64)
    kinds = len(table)
    paces, memory = np.zeros((kinds, LEVELS)), np.zeros((kinds, LEVELS))
    for level, speed in enumerate(pace):
        paces[:, level] = speed
        memory[:, level] = np.zeros(kinds) if memory_gib is None else np.asarray(memory_gib) / 2**level
    return Together(
        ratio=table[:, :, None],
        pace=paces,
        memory_gib=memory,
        busy=np.ones(kinds) if busy is None else np.asarray(busy, np.float64),
        gpu_gib=np.array([gpu_gib]),
        curve=np.ones((kinds, len(CURVE))) if curve is None else np.asarray(curve, np.float64),
        nearby=None if nearby is None else np.asarray(nearby, np.float64),
    )


def shared_run(
    rows: Sequence[tuple[float, int, float]],
    together: Together,
    cluster: str | Cluster,
    policy: str,
    *,
    kinds: Sequence[int] | None = None,
    priority: Sequence[int] | None = None,
    tenants: Sequence[str] | None = None,
    **more: Any,
) -> Simulation:
    """A simulation of (submit, GPUs, duration) rows, in order of submission, whose truth is `together`.

    `kinds[row]` is the kind of a job, the row itself if not given; `more` are fields of the `Experiment`. Unless they
    say otherwise nothing costs anything, and invariants are checked after every decision.
    """
    submit, gpus, duration = (np.array(column) for column in zip(*rows, strict=True))
    code = np.arange(len(rows)) if kinds is None else np.asarray(kinds, np.int64)
    work = make_workload(
        "rows",
        submit.astype(np.float64),
        gpus.astype(np.int64),
        duration.astype(np.float64),
        model=Codes(code, tuple(f"kind {k}" for k in range(int(code.max()) + 1))),
        tenant=Codes.of(tenants) if tenants else None,
        priority=np.zeros(len(rows), np.int64) if priority is None else np.asarray(priority, np.int64),
    )
    spec = Cluster.parse(cluster) if isinstance(cluster, str) else cluster
    usual: dict[str, Any] = {"costs": "none", "compiled": False, "check_invariants": True}
    run = Simulation(Experiment(work, spec, policy, **usual | more))
    state = run.state
    state.i[:, col.SPEED_ROW] = code
    state.speed.resize((len(together.ratio), *state.speed.shape[1:]), refcheck=False)
    state.speed[:] = 1.0
    state.f[:, col.GPU_GIB] = together.claimed_gib()[code, 0]
    state.gpu_gib[:] = together.gpu_gib
    run.engine.facts = replace(run.engine.facts, together=together)
    run.engine.rates = SharedSpeeds(together, grants=not run.traits.overcommits)
    return run
