"""Gavel's released simulator (OSDI'20): rounds of whole steps that end with their latest piece of work.

Quirks of the mechanism and of objectives (`reset_interval_s`, `late_arrivals`, ...) the policies know.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cotenant.compat.base import Speeds, System
from cotenant.core import columns as col
from cotenant.core.columns import N_RUN
from cotenant.core.jit import entry
from cotenant.core.stages import Stages
from cotenant.core.state import Rule, State
from cotenant.core.traits import Traits
from cotenant.core.workload import Floats, Ints
from cotenant.engine.keys import position_of
from cotenant.engine.observe import running_rows
from cotenant.engine.rates import RateModel
from cotenant.engine.whole_steps import pace, pace_alone, piece_of


class GavelQuirks(System):
    """What the authors' published runs need."""

    bundle: ClassVar[dict[str, str]] = {
        "reset_interval_s": "1920",
        "late_arrivals": "drop_at_placement",
        "round_end": "latest_finish",
        "progress": "whole_steps",
        "agnostic_rate": "v100_copy",
        "solver": "interior_point",
        "fifo.queue": "slots",
        "draws": "python",
        "makespan.method": "bisect_1.05",
        "gandiva.threshold": "all_types",
        "costs": "none",
    }
    single: ClassVar[dict[str, str]] = {**bundle, "fifo.type_choice": "stale"}
    paces_rounds = True

    def rates(self, stages: Stages | None, traits: Traits, round_s: float, shared: Speeds | None) -> RateModel | None:
        """Whole steps, where asked for, under policies that name pools."""
        staged = stages is not None and traits.interleaves
        if self.quirks.get("progress") != "whole_steps" or not traits.names_pools or staged:
            return None
        return WholeSteps(round_s, shared)


class WholeSteps:
    """Whole steps only, and a round ends with its latest piece of work.

    Each job makes floor(rate x round) steps, or what is left; nobody gets more before everybody is done.
    """

    def __init__(self, round_s: float, inner: Speeds | None) -> None:
        self.round_s, self.inner = round_s, inner

    def update(self, state: State, rule: Rule, now_s: float) -> None:
        """Speeds that bring each job exactly to the end of its piece by the end of the round."""
        if state.x[col.N_RUNNING] and not state.x[col.SHARING]:
            state.t[col.PACE_S] = self.round_s
            state.t[col.NEXT_CALL] = pace_alone(state, rule, self.round_s, now_s)
            return
        rows = running_rows(state)
        if not len(rows):
            return
        speeds = state.f[rows, col.ALONE] if self.inner is None else self.inner.speeds(state, rows)
        mates, pieces = mates_of(state, rows), np.empty(len(rows))
        state.t[col.NEXT_CALL] = pace_whole_steps(state, rule, rows, mates, speeds, pieces, self.round_s, now_s)


def mates_of(state: State, rows: Ints) -> Ints:
    """By place in `rows`, the place of the job with which each shares its GPUs; -1 for none."""
    mates = np.full(len(rows), -1, np.int64)
    place = {row: at for at, row in enumerate(rows.tolist())}
    for at, host in enumerate(state.i[rows, col.HOST].tolist()):
        if host in place:
            mates[at], mates[place[host]] = place[host], at
    return mates


@entry
def pace_whole_steps(
    s: State, rule: Rule, jobs: Ints, mates: Ints, speeds: Floats, pieces: Floats, round_s: float, now: float
) -> float:  # fmt: skip
    """Give each running job floor(rate x round) steps, or what is left; when the last of these pieces ends.

    A job that does not end in the round is paced so that it has made exactly its steps by then; one that does ends with
    the piece of its mate, if that takes longer. `speeds` are seconds of work per second; `pieces` is scratch.
    """
    length = 0.0
    for k in range(len(jobs)):
        pieces[k] = piece_of(s, jobs[k], speeds[k], round_s, now)
        length = max(length, pieces[k])
    end = now + length
    for k in range(len(jobs)):
        slower, at = 1.0, position_of(s.run, s.x[N_RUN], jobs[k])
        if mates[k] >= 0 and pieces[mates[k]] > pieces[k]:
            slower = pieces[k] / pieces[mates[k]]
        end = max(end, pace(s, rule, jobs[k], speeds[k], slower, round_s, length, now, at))
    return float(end)
