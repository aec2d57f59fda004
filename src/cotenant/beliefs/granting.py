"""Who is granted how much of its memory, as jobs sit on GPUs whose memory gives (`core.memory`).

Worked out after every decision, from who sits beside whom: the part of a job's memory that may lie on its GPUs is
written into the tables (`CAP`), from where it enters its speed and what it is told. A gang has the least over its GPUs.
"""

from __future__ import annotations

import numpy as np

from cotenant.core import columns as col
from cotenant.core.state import State
from cotenant.core.together import Together
from cotenant.engine.observe import running_rows


def regrant(state: State, together: Together) -> None:
    """Write down what everybody on a GPU may keep there."""
    rows = running_rows(state)
    granted = dict.fromkeys(rows.tolist(), 1.0)
    kind, level, turn = (state.i[:, column] for column in (col.SPEED_ROW, col.LEVEL, col.TURN))
    peaks = together.memory_gib[kind[rows], level[rows]]
    gpu_type = np.repeat(state.pool[state.node[:, col.NODE_POOL], col.POOL_TYPE], np.diff(state.gpu_first))
    needs = np.append(np.zeros(len(kind)), 0.0)
    needs[rows] = peaks
    tight = np.flatnonzero(needs[state.gpu].sum(axis=1) > together.gpu_gib[gpu_type[: len(state.gpu)]] + 1e-9)
    for gpu in tight.tolist():
        here = [job for job in state.gpu[gpu].tolist() if job in granted]
        always = [job for job in here if turn[job] == 0]
        for one in {int(turn[job]) for job in here if turn[job]} or {0}:
            jobs = always + [job for job in here if one and turn[job] == one]
            parts = _parts(together, kind[jobs].tolist(), level[jobs].tolist(), int(gpu_type[gpu]))
            for job, part in zip(jobs, parts, strict=True):
                granted[job] = min(granted[job], part)
    state.f[list(granted), col.CAP] = list(granted.values())


def _parts(together: Together, kinds: list[int], levels: list[int], gpu_type: int) -> list[float]:
    """What each is granted; the least where they should not be there together, which is no reason to grant more."""
    parts = together.parts(kinds, levels, gpu_type)
    if parts is None and together.soft is not None:
        return [float(part) for part in together.soft.least[kinds]]
    return [] if parts is None else [float(part) for part in parts]
