"""Solve over classes of interchangeable jobs, with space sharing, then split back to the jobs.

Jobs with the same rates, gang and partners form a class with multiplicity (Gavel has 26 job types at any number of
jobs). Columns are the job-time of a class alone on a type, and of two classes together on a type; a class shares with
itself if it has two members. Averaging over the members of a class shows that nothing is lost where all need the
same. Where needs differ (makespan, finish-time fairness, weights), the members' needs can be met exactly if, for every
m, the m largest of them are at most what m jobs could get out of the class's time (see `split`). These conditions are
convex, and are added as cuts when broken; so are the tangents of needs that fall with theta.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.solvers.answer import Answer, Floats, Instance, Ints, relative_gap
from cotenant.solvers.errors import SolverBudget, SolverError
from cotenant.solvers.need import Need
from cotenant.solvers.program import Program, Solution
from cotenant.solvers.split import between, reachable, share_out, share_out_exactly, within

MOST_ROUNDS = 200
CUTS_PER_CLASS = 3


@dataclass(frozen=True, slots=True)
class Classes:
    """Groups of interchangeable jobs."""

    first: Ints
    """One job of each class."""
    of: Ints
    """Class of each job."""
    members: list[Ints]

    @property
    def counts(self) -> Floats:
        """Jobs in each class."""
        return np.array([len(m) for m in self.members], dtype=np.float64)


def classes(*columns: Floats | Ints) -> Classes:
    """Group jobs whose rows agree in every column (each n or n x something)."""
    table = np.column_stack([np.asarray(c, dtype=np.float64) for c in columns])
    if not len(table):
        none = np.zeros(0, dtype=np.int64)
        return Classes(none, none, [])
    _, first, of = np.unique(table, axis=0, return_index=True, return_inverse=True)
    of = of.reshape(-1).astype(np.int64)
    order = np.argsort(of, kind="stable").astype(np.int64)
    ends = np.cumsum(np.bincount(of))
    return Classes(first.astype(np.int64), of, np.split(order, ends[:-1]))


@dataclass(frozen=True, slots=True)
class _Options:
    """Ways of one class to run: program column, job-time per unit of it, speed, type, partner class (-1: alone)."""

    column: Ints
    time: Floats
    speed: Floats
    type_: Ints
    partner: Ints
    own: Floats


def solve(
    inst: Instance, need: Need, kind: Ints, pair: Floats, *, tol: float = 1e-9, budget: SolverBudget | None = None
) -> Answer:
    """Best theta with space sharing. `pair[a, b, k]`: rate of a job of kind a beside one of kind b on type k.

    Only jobs with gangs of one size share, and only where both move.
    """
    budget = budget or SolverBudget()
    rows = np.flatnonzero(need.work > 0.0)
    groups = classes(kind[rows], inst.gangs[rows], inst.rates[rows])
    model = _Model(inst, need.take(rows), rows, groups, kind, pair)
    return model.solve(tol, budget)


class _Model:
    """One program over classes."""

    def __init__(self, inst: Instance, need: Need, rows: Ints, groups: Classes, kind: Ints, pair: Floats) -> None:
        self.inst, self.rows, self.groups = inst, rows, groups
        self.kind, self.pair = kind, pair
        self.types = len(inst.capacity)
        self.gang = inst.gangs[rows[groups.first]]
        self.program = Program(maximise=not need.falling)
        self.options = self._columns()
        able = np.array([len(o.column) > 0 for o in self.options], dtype=bool)
        self.left_out = rows[~able[groups.of]] if len(rows) else rows
        self.need = Need(np.where(able[groups.of], need.work, 0.0), need.span, need.elapsed) if len(rows) else need

    def _columns(self) -> list[_Options]:
        """Columns, time rows and GPU rows; what each class can do."""
        groups, program, inst = self.groups, self.program, self.inst
        count = len(groups.first)
        kind = self.kind[self.rows[groups.first]]
        rates = inst.rates[self.rows[groups.first]]
        c, k = np.nonzero(rates > 0.0)
        beside = self.pair[kind[:, None], kind[None, :]]
        both = (beside > 0.0) & (beside.transpose(1, 0, 2) > 0.0)
        both &= (self.gang[:, None] == self.gang[None, :])[:, :, None]
        fits = (self.gang[:, None] <= inst.capacity[None, :]) | (rates > 0.0)  # a part of a cluster may be smaller
        both &= (fits[:, None, :]) & (fits[None, :, :])
        both &= ~np.tri(count, k=-1, dtype=bool)[:, :, None]
        alone = np.flatnonzero(groups.counts < 2)
        both[alone, alone] = False
        a, b, t = np.nonzero(both)
        x = program.add_columns(len(c))
        y = program.add_columns(len(a))
        time_rows = program.add_rows(count, upper=groups.counts)
        self.gpu_rows = program.add_rows(self.types, upper=inst.capacity)
        program.add_entries(time_rows[c], x, 1.0)
        program.add_entries(time_rows[a], y, 1.0)
        program.add_entries(time_rows[b], y, 1.0)
        program.add_entries(self.gpu_rows[k], x, self.gang[c])
        program.add_entries(self.gpu_rows[t], y, self.gang[a])
        other = a != b
        owner = np.concatenate([c, a, b[other]])
        data = _Options(
            np.concatenate([x, y, y[other]]),
            np.concatenate([np.ones(len(c)), np.where(other, 1.0, 2.0), np.ones(other.sum())]),
            np.concatenate([rates[c, k], beside[a, b, t], beside[b, a, t][other]]),
            np.concatenate([k, t, t[other]]),
            np.concatenate([np.full(len(c), -1), b, a[other]]),
            np.concatenate([np.zeros(len(c)), np.where(other, 0.0, 1.0), np.zeros(other.sum())]),
        )
        out = []
        for one in range(count):
            at = np.flatnonzero(owner == one)
            out.append(
                _Options(data.column[at], data.time[at], data.speed[at], data.type_[at], data.partner[at], data.own[at])
            )
        return out

    def solve(self, tol: float, budget: SolverBudget) -> Answer:
        """Cut until every class can meet the needs of its members."""
        if not (self.need.work > 0.0).any():
            return Answer.nothing(self.inst, self.need.idle, "kinds", budget.spent_s, self.left_out)
        theta = self._physical() if self.need.falling else 1.0
        self.level = int(self.program.add_columns(1, lower=theta if self.need.falling else 0.0, cost=1.0)[0])
        for one in range(len(self.options)):
            self._cut(one, theta, np.array([len(self.groups.members[one])]), np.zeros(1))
        for _ in range(MOST_ROUNDS):
            solution = self.program.solve(budget)
            theta = float(solution.x[self.level])
            lack = self._cut_broken(solution, theta, tol)
            if lack > tol:
                continue
            times = self._share_out(solution, theta, lack, tol, budget)
            if times is not None:
                return self._answer(solution, theta, times, budget)
        raise SolverError(f"kinds: needs still broken by {lack:.1e} after {MOST_ROUNDS} rounds of cuts")

    def _physical(self) -> float:
        best = np.array([o.speed.max(initial=0.0) for o in self.options])
        return self.need.attained(best[self.groups.of])

    def _cut_broken(self, solution: Solution, theta: float, tol: float) -> float:
        """Add cuts for the classes that cannot meet their members' needs; gives the worst relative lack."""
        worst = 0.0
        rate = self.need.rate(theta)
        for one, options in enumerate(self.options):
            members = self.groups.members[one]
            if not len(options.column):
                continue
            total = np.maximum(solution.x[options.column], 0.0) * options.time
            can, slowest = reachable(total, options.speed, options.own, len(members))
            asked = np.cumsum(-np.sort(-rate[members]))
            lack = 1.0 - can / np.maximum(asked, 1e-300)
            lack[asked <= 0.0] = 0.0
            worst = max(worst, float(lack.max()))
            broken = np.flatnonzero(lack > tol)
            if len(broken):
                broken = np.unique(np.append(broken[np.argsort(-lack[broken])][:CUTS_PER_CLASS], broken[-1]))
                self._cut(one, theta, broken + 1, slowest[broken])
        return worst

    def _cut(self, one: int, theta: float, sizes: Ints, slowest: Floats) -> None:
        """The `sizes` neediest members together, at tangents to their needs: no more than the class can give."""
        options, members = self.options[one], self.groups.members[one]
        rate, slope = self.need.rate(theta)[members], self.need.slope(theta)[members]
        order = np.argsort(-rate, kind="stable")
        asked, rise = np.cumsum(rate[order]), np.cumsum(slope[order])
        for m, pace in zip(sizes.tolist(), slowest.tolist(), strict=True):
            r, dr = float(asked[m - 1]), float(rise[m - 1])
            if r <= 0.0 or not len(options.column):
                continue
            time = options.time if m > 1 or len(members) == 1 else np.where(options.own > 0.0, 1.0, options.time)
            value = np.maximum(options.speed - pace, 0.0) * time / r
            used = np.flatnonzero(value > 0.0)
            columns = np.append(options.column[used], self.level)
            lower = 1.0 - dr / r * theta - m * pace / r
            self.program.add_row(columns, np.append(value[used], -dr / r), lower=lower)

    def _share_out(
        self, solution: Solution, theta: float, lack: float, tol: float, budget: SolverBudget
    ) -> list[tuple[Ints, Floats]] | None:
        """Options in use and their time per member, for every class; None if a class needs another cut."""
        rate = self.need.rate(theta) * (1.0 - max(lack, 0.0))
        out: list[tuple[Ints, Floats]] = []
        broken = False
        for one, options in enumerate(self.options):
            members = self.groups.members[one]
            total = np.maximum(solution.x[options.column], 0.0) * options.time
            on = np.flatnonzero(total > 1e-12)
            speed, own = options.speed[on], options.own[on]
            time, met = share_out(total[on], speed, own, rate[members]) if len(on) else (np.zeros((0, 0)), True)
            if not met:
                beside = np.where(options.partner >= 0, 1.0 - options.own, 0.0)
                time, part, why = share_out_exactly(total, options.speed, options.own, beside, rate[members], budget)
                on = np.arange(len(total))
                if part < 1.0 - tol:
                    broken = True
                    r = float(why.weight @ rate[members])
                    dr = float(why.weight @ self.need.slope(theta)[members])
                    columns = np.append(options.column, self.level)
                    values = np.append(why.value * options.time / r, -dr / r)
                    self.program.add_row(columns, values, lower=1.0 - dr / r * theta - why.fixed / r)
            out.append((on, time))
        return None if broken else out

    def _answer(
        self, solution: Solution, theta: float, times: list[tuple[Ints, Floats]], budget: SolverBudget
    ) -> Answer:
        """Fractions of the jobs, and of the pairs that members form with members."""
        x = np.zeros(self.inst.rates.shape)
        delivered = np.zeros(len(self.rows))
        hours: dict[tuple[int, int, int], tuple[Ints, Floats]] = {}
        for one, (options, (on, time)) in enumerate(zip(self.options, times, strict=True)):
            members = self.groups.members[one]
            if not len(on):
                continue
            delivered[members] = time @ options.speed[on]
            for o, column in zip(on.tolist(), time.T, strict=True):
                if options.partner[o] < 0:
                    x[self.rows[members], options.type_[o]] = column
                else:
                    hours[one, int(options.partner[o]), int(options.type_[o])] = (self.rows[members], column)
        pairs, pair_x = _pair_up(hours, self.types)
        value = self.need.attained(delivered)
        bound = min(theta, value) if self.need.falling else max(theta, value)
        prices = np.abs(solution.row_duals[self.gpu_rows])
        worth = float(prices @ self.inst.capacity)
        return Answer(
            x, value, bound, prices / worth if worth > 0.0 else prices, "kinds", budget.spent_s,
            relative_gap(value, bound), self.left_out, pairs, pair_x,
        )  # fmt: skip


def _pair_up(hours: dict[tuple[int, int, int], tuple[Ints, Floats]], types: int) -> tuple[Ints, Floats]:
    """Job pairs and their fractions out of the time that members spend beside each class on each type."""
    firsts, seconds, parts, on = [], [], [], []
    for (a, b, k), (jobs, mine) in hours.items():
        if a > b:
            continue
        if a == b:
            i, j, length = within(mine)
            one, two = jobs[i], jobs[j]
        else:
            if (b, a, k) not in hours:
                continue
            theirs, other = hours[b, a, k]
            i, j, length = between(mine, other)
            one, two = jobs[i], theirs[j]
        firsts.append(np.minimum(one, two))
        seconds.append(np.maximum(one, two))
        parts.append(length)
        on.append(np.full(len(one), k, dtype=np.int64))
    if not firsts:
        return np.zeros((0, 2), dtype=np.int64), np.zeros((0, types))
    all_pairs = np.column_stack([np.concatenate(firsts), np.concatenate(seconds)])
    pairs, of = np.unique(all_pairs, axis=0, return_inverse=True)
    pair_x = np.zeros((len(pairs), types))
    np.add.at(pair_x, (of.reshape(-1), np.concatenate(on)), np.concatenate(parts))
    return pairs, pair_x
