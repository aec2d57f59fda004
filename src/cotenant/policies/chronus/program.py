"""The integer program of a lease boundary: which job holds which slot, at which deadline step (Chronus, SoCC'21).

Binaries x(i, k): pair i holds slot k before its deadline, and s(i): pair i is chosen. A chosen pair holds exactly the
leases it needs, no slot gives more GPUs than it has, and every job is served at one of its steps. The objective is
the value of the chosen steps plus or minus the share of the present slot in use, which is never worth a step.
Where a promise can no longer be kept at all, leaving a job out costs more than any step, so that the program always
has an answer. The greedy packing is handed over as a start.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.core.state import IntMatrix
from cotenant.core.workload import Floats, Ints
from cotenant.policies.chronus.packing import LeasePacking, LeasePairs
from cotenant.solvers.errors import SolverBudget
from cotenant.solvers.program import Program

LEFT_OUT = 1000.0  # what it costs not to serve a job


@dataclass(frozen=True, slots=True)
class Timetable:
    """Pair chosen per job (-1: left out), slots held per job, the objective and whether it is proved best."""

    chosen: Ints
    held: dict[int, Ints]
    objective: float
    optimal: bool


def objective_of(
    pairs: LeasePairs, capacity: Ints | IntMatrix, chosen: Ints, held: dict[int, Ints], sign: float
) -> float:
    """Value of the chosen steps plus `sign` times the share of slot 0 in use; less for jobs left out."""
    served = chosen[chosen >= 0]
    now = sum(int(pairs.gpus[chosen[job]]) for job, slots in held.items() if len(slots) and slots[0] == 0)
    share = now / max(int(capacity.max(initial=1)), 1)
    return float(pairs.value[served].sum() + sign * share - LEFT_OUT * (chosen < 0).sum())


def solve(
    pairs: LeasePairs,
    capacity: Ints | IntMatrix,
    jobs: int,
    sign: float,
    *,
    budget_s: float = np.inf,
    start: LeasePacking | None = None,
    gap: float = 0.0,
) -> Timetable:
    """Best timetable within the time; at the end of it the best one found (the start at worst)."""
    fits = np.flatnonzero(pairs.slots >= pairs.need)
    owner = np.repeat(fits, pairs.slots[fits])
    first = np.concatenate([[0], np.cumsum(pairs.slots[fits])]).astype(np.int64)
    slot = np.arange(len(owner)) - np.repeat(first[:-1], pairs.slots[fits])
    program = Program(maximise=True)
    share = sign * pairs.gpus[owner] / max(int(capacity.max(initial=1)), 1)
    x = program.add_columns(len(owner), upper=1.0, cost=np.where(slot == 0, share, 0.0), integer=True)
    s = program.add_columns(len(fits), upper=1.0, cost=pairs.value[fits] + LEFT_OUT, integer=True)
    whole = program.add_rows(len(fits), lower=0.0, upper=0.0)
    place = np.repeat(np.arange(len(fits)), pairs.slots[fits])
    program.add_entries(whole[place], x, 1.0)
    program.add_entries(whole, s, -pairs.need[fits].astype(np.float64))
    used = int(slot.max(initial=-1)) + 1
    for line, limits in enumerate(np.atleast_2d(capacity)):
        room = program.add_rows(used, upper=limits[:used].astype(np.float64))
        mine = np.flatnonzero(pairs.level[owner] >= line) if pairs.level is not None else np.arange(len(owner))
        program.add_entries(room[slot[mine]], x[mine], pairs.gpus[owner[mine]].astype(np.float64))
    once = program.add_rows(jobs, upper=1.0)
    program.add_entries(once[pairs.job[fits]], s, 1.0)
    given = None if start is None else _as_point(start, fits, first, len(owner))
    found = program.solve_integer(SolverBudget(budget_s), start=given, gap=gap)
    if found is None:  # nothing within the time, and no start
        return Timetable(np.full(jobs, -1, np.int64), {}, -LEFT_OUT * jobs, False)
    return _read(pairs, capacity, jobs, sign, found.x, found.optimal, fits, first)


def _as_point(start: LeasePacking, fits: Ints, first: Ints, columns: int) -> Floats:
    """A packing as values of the columns."""
    point = np.zeros(columns + len(fits))
    at = {int(pair): k for k, pair in enumerate(fits.tolist())}
    for job, slots in start.held.items():
        k = at[int(start.chosen[job])]
        point[first[k] + slots] = 1.0
        point[columns + k] = 1.0
    return point


def _read(
    pairs: LeasePairs,
    capacity: Ints | IntMatrix,
    jobs: int,
    sign: float,
    x: Floats,
    optimal: bool,
    fits: Ints,
    first: Ints,
) -> Timetable:
    columns = int(first[-1])
    chosen, held = np.full(jobs, -1, np.int64), {}
    for k in np.flatnonzero(x[columns:] > 0.5).tolist():
        pair = int(fits[k])
        chosen[pairs.job[pair]] = pair
        held[int(pairs.job[pair])] = np.flatnonzero(x[first[k] : first[k + 1]] > 0.5)
    return Timetable(chosen, held, objective_of(pairs, capacity, chosen, held, sign), optimal)
