"""Themis (NSDI'20): against having a share of the cluster for itself, no job finishes much later than another.

The measure is rho = (e + W / rate) / D, the finish time of a job over that on an even share of its own: e is the time
since its submission, W the work left, and D the time that the work so far would have taken on the even shares of then
plus W at the even rate of now. Shares are among the jobs present, so D follows their number.

* `form=shares` is what later systems use as their baseline: time fractions with the least largest rho, realised in the
  rounds of Gavel. The program, its certificate and what is done beyond the worst job are those of
  `gavel:objective=ftf`.
* `form=auction` is the paper's: at the end of a lease (one round) the 1 - `f` worst-off jobs bid for all GPUs. A bid is
  a table of rho. Partial allocation (Cole, Gkatzelis and Goel, EC'13) decides: the largest product of 1 / rho wins, and
  every winner gives back the part of its share by which it harms the others. Gangs are rigid here: a table has an
  entry per pool and one for nothing (a lease later), and what is given back is time at the end of the lease.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from cotenant.core.errors import InputError, unknown
from cotenant.core.plan import Plan, Pools, Why
from cotenant.core.reasons import moment
from cotenant.core.spec import Value
from cotenant.core.state import Matrix
from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints
from cotenant.policies.base import Context
from cotenant.policies.gavel.targets import TargetOptions, finish_time
from cotenant.policies.rounds.history import History
from cotenant.policies.rounds.last_good import LastGood
from cotenant.policies.rounds.problem import Problem, Targets
from cotenant.policies.rounds.rounds import EPSILON_S, RoundPolicy
from cotenant.solvers import SolverBudget, SolverError
from cotenant.solvers.program import Program

FORMS = ("shares", "auction")
LEAST_KEPT = float(np.exp(-1.0))  # what a partial allocation leaves to a winner at least, where GPUs can be divided
LEAST_S = 1e-3  # finish times below this are alike
TIE = 1e-6  # of two equal products the one with the worse-off bidder wins


class Themis(RoundPolicy):
    """Least largest finish time against that on an even share of one's own, in rounds or by auction."""

    name = "themis"
    source = "Themis, Mahajan et al., NSDI'20; shares as in Gavel, OSDI'20"
    defaults: ClassVar[dict[str, Value]] = {"form": "shares", "f": 0.8}

    def __init__(self, **params: Value) -> None:
        super().__init__(**params)
        if self.params["form"] not in FORMS:
            raise unknown("form of policy 'themis'", str(self.params["form"]), FORMS)
        if not 0.0 <= self.number("f") <= 1.0:
            raise InputError("policy 'themis': f is the part of the jobs that may not bid, from 0 to 1")

    def begin(self, context: Context) -> None:
        """Nobody has a lease, and nothing has been solved."""
        super().begin(context)
        self._options, self._last = TargetOptions(budget_s=np.inf), LastGood()
        self._ratios = Ratios(np.zeros(0, np.int64), np.zeros(0), "")
        self._books: History | None = None
        self._arbiter = Arbiter(self.length_s, self.number("f"), context.seed)

    def decide(self, view: View) -> Plan:
        """Rounds of the time shares, or leases of the auction."""
        if self.params["form"] == "auction" and len(view.rows):
            books = self._books = self._books or History(len(view.pool_gpus), 0.0)
            books.room_for(view.rows)
            return self._arbiter.decide(view, self.problem(view, books))
        plan = super().decide(view)
        said, more = plan.why, self._ratios.asked_by(view)
        return replace(plan, why=lambda row: "; ".join(part for part in (said(row), more(row)) if part))

    def targets(self, problem: Problem, view: View) -> Targets:
        """Time fractions of the least largest ratio; the last good ones if no solver answers."""
        before = self._options.memory.prices
        try:
            answer = self._last.keep(view.rows, finish_time(problem, self._options))
        except SolverError:
            answer = self._last.stand_in(view.rows, problem)
        rate = (problem.rates * answer.x).sum(axis=1)
        solved = self._options.memory.prices
        worth = np.zeros(0) if solved is None or solved is before else solved.prices * problem.capacity
        scarce = ""
        if len(worth) > 1 and worth.sum() > 0:
            dear = int(worth.argmax())
            scarce = f"{problem.pool_types[dear]} is the scarcest ({worth[dear] / worth.sum():.0%} of the price of all)"
        self._ratios = Ratios(view.rows.copy(), ratio(problem, rate), scarce)
        return answer

    def story(self) -> str:
        """How solving went, where it did not."""
        return self._last.story() if self._last.stood_in else ""


def isolated_finish_s(problem: Problem) -> Floats:
    """D: how long each job would have taken, in all, on an even share of its own; inf while it cannot run at all."""
    even = problem.isolated_rate
    able = even > 0
    return np.where(able, problem.isolated_s + problem.left_s / np.where(able, even, 1.0), np.inf)


def ratio(problem: Problem, rate: Floats) -> Floats:
    """Rho of each job if it goes on at these rates; inf for one that does not move."""
    moves = (rate > 0) | (problem.left_s <= 0)
    finish_s = problem.age_s + problem.left_s / np.where(rate > 0, rate, 1.0)
    return np.where(moves, finish_s / np.maximum(isolated_finish_s(problem), LEAST_S), np.inf)


@dataclass(frozen=True, slots=True)
class Ratios:
    """What the last solve promised: rho of each job (by row) and the GPU type that is hardest to have."""

    ids: Ints
    rho: Floats
    scarce: str

    def asked_by(self, view: View) -> Why:
        """Answers by the rows of a decision."""
        present = set(view.rows.tolist())

        def why(row: int) -> str:
            mine = np.flatnonzero(self.ids == row)
            if not len(mine) or not np.isfinite(self.rho[mine[0]]):
                return ""
            worst = int(np.where(np.isfinite(self.rho), self.rho, -1.0).argmax())
            own = f"its finish time is planned at {self.rho[mine[0]]:.2f} times that on a share of its own"
            largest = f"the largest such ratio is {self.rho[worst]:.2f}"
            if worst == mine[0]:
                largest = "nobody's ratio is larger"
            elif int(self.ids[worst]) in present:
                largest += f", of row {self.ids[worst]}"
            return "; ".join(part for part in (own, largest, self.scarce) if part)

        return why


class Arbiter:
    """The auction: leases by row, and the word on who got none.

    All leases end with the round, so that large gangs find all GPUs on offer. What winners give back, and whatever
    nobody won, goes until then to jobs drawn at random, each where it is or else where it is fastest.
    """

    def __init__(self, lease_s: float, knob: float, seed: int) -> None:
        self.lease_s, self.knob, self.seed = lease_s, knob, seed
        self.auctions = 0
        self._end_s = -np.inf
        self._leases: dict[int, tuple[int, float]] = {}  # row -> pool, end
        self._winners: frozenset[int] = frozenset()
        self._sale: Sale | None = None

    def decide(self, view: View, problem: Problem) -> Plan:
        """Auction at the end of a round; in between leases stand, and what is free is dealt out."""
        ids, now_s = view.rows.tolist(), view.now_s
        if now_s >= self._end_s - EPSILON_S:
            self._leases = self._sell(view, problem)
        here = dict(zip(ids, view.pool.tolist(), strict=True))
        fresh = self._sale is not None and self._sale.at_s == now_s
        self._leases = {
            row: (pool, end_s) for row, (pool, end_s) in self._leases.items()
            if row in here and end_s > now_s + EPSILON_S and (fresh or here[row] == pool)
        }  # fmt: skip
        room = view.pool_gpus
        for at, row in enumerate(ids):
            if row in self._leases:
                room[self._leases[row][0]] -= view.gpus[at]
        self._deal(view, problem, room)
        where = np.array([self._leases.get(row, (-1, 0.0))[0] for row in ids], np.int64)
        runs = where >= 0
        ends = [end_s for _, end_s in self._leases.values()]
        next_s = min([self._end_s, *ends]) if not runs.all() else np.inf
        pools = Pools(view.rows[runs], where[runs], np.full(int(runs.sum()), -1, np.int64))
        assert self._sale is not None
        return Plan(pools=pools, next_s=next_s, why=self._sale.why)

    def _sell(self, view: View, problem: Problem) -> dict[int, tuple[int, float]]:
        """The worst-off bid for everything; who wins, where, and until when."""
        best = problem.rates.max(axis=1, initial=0.0)
        able = np.flatnonzero(best > 0)
        rho = ratio(problem, best)
        worst_first = able[np.lexsort((view.rows[able], view.submit_s[able], -rho[able]))]
        # the small term: (1 - 0.8) * 5 is 0.9999999999999998 or 1, and may not decide how many bid
        bidders = worst_first[: max(int(np.ceil((1.0 - self.knob) * len(worst_first) - 1e-9)), 1)]
        gains = bid_gains(problem, bidders, view.pool, view.restore_s, self.lease_s)
        won, kept = partial_allocation(gains, problem.gangs[bidders], problem.capacity)
        self._end_s = float((np.floor(view.now_s / self.lease_s + 1e-9) + 1) * self.lease_s)
        self.auctions += 1
        length_s = self._end_s - view.now_s
        ids = view.rows[bidders].tolist()
        taken = {ids[at]: (int(won[at]), view.now_s + float(kept[at]) * length_s) for at in np.flatnonzero(won >= 0)}
        self._winners = frozenset(taken)
        self._sale = Sale(view.now_s, self._end_s, view.rows.copy(), rho, view.rows[bidders], len(able))
        return taken

    def _deal(self, view: View, problem: Problem, room: Ints) -> None:
        """What is left over goes at random, to those who gave it back last: a draw by seed, auction and job alone."""
        ids = view.rows
        smallest = int(problem.gangs.min(initial=1))
        waiting = [at for at, row in enumerate(ids.tolist()) if row not in self._leases]
        if not waiting or room.max(initial=0) < smallest:
            return
        draw = {at: np.random.default_rng([self.seed, 20, self.auctions, int(ids[at])]).random() for at in waiting}
        for at in sorted(waiting, key=lambda at: (int(ids[at]) in self._winners, draw[at], view.submit_s[at], ids[at])):
            fits = np.flatnonzero((room >= problem.gangs[at]) & (problem.rates[at] > 0))
            if len(fits):
                stays = view.pool[at] in fits
                pool = int(view.pool[at] if stays else fits[problem.rates[at, fits].argmax()])
                room[pool] -= problem.gangs[at]
                self._leases[int(ids[at])] = (pool, self._end_s)


def bid_gains(problem: Problem, bidders: Ints, pool: Ints, restore_s: Floats, lease_s: float) -> Matrix:
    """Tables of bids, bidders x pools: log of (rho with nothing / rho there). D is in both and cancels.

    With nothing a job loses a lease; one that runs loses its restore too, unless it stays in its pool. -inf where it
    cannot run.
    """
    rates, left_s = problem.rates[bidders], problem.left_s[bidders, None]
    runs = pool[bidders, None] >= 0
    moved_s = np.where(runs, restore_s[bidders, None], 0.0)
    here = np.arange(rates.shape[1])[None, :] == pool[bidders, None]
    so_far_s = problem.age_s[bidders, None]
    nothing_s = so_far_s + lease_s + moved_s + left_s / np.maximum(rates.max(axis=1, initial=0.0)[:, None], 1e-300)
    there_s = so_far_s + np.where(here, 0.0, moved_s) + left_s / np.where(rates > 0, rates, 1.0)
    gain = np.log(np.maximum(nothing_s, LEAST_S)) - np.log(np.maximum(there_s, LEAST_S))
    return np.where(rates > 0, gain, -np.inf)


def partial_allocation(gains: Matrix, gangs: Ints, capacity: Floats) -> tuple[Ints, Floats]:
    """Pool that each bidder wins (-1: none), and the part of its share that each may keep.

    Winners maximise the product of valuations. Who wins keeps (product of the others with it there) / (their best
    product without it), but no less than 1/e, the bound of the mechanism for divisible goods. Bidders come worst-off
    first, which breaks ties.
    """
    won, kept = np.full(len(gangs), -1, np.int64), np.ones(len(gangs))
    offers = (gains > 0) & (gangs[:, None] <= capacity[None, :])
    some = offers.any(axis=1)
    dearest = np.where(offers, gains, -np.inf).argmax(axis=1)
    if (np.bincount(dearest[some], gangs[some], len(capacity)) <= capacity).all():
        won[some] = dearest[some]  # everybody has its best, so nobody takes anything from anybody
        return won, kept
    jobs, pools = np.nonzero(offers)
    program = Program(maximise=True)
    x = program.add_columns(
        len(jobs), upper=1.0, cost=gains[jobs, pools] + TIE * (1.0 - jobs / len(gangs)), integer=True
    )
    program.add_entries(program.add_rows(len(gangs), upper=1.0)[jobs], x, 1.0)
    program.add_entries(program.add_rows(len(capacity), upper=capacity)[pools], x, gangs[jobs].astype(np.float64))
    picked = _picked(program)
    won[jobs[picked]] = pools[picked]
    total = float(gains[jobs, pools][picked].sum())
    for winner in np.flatnonzero(won >= 0).tolist():
        program.set_column_bounds(x[jobs == winner], 0.0, 0.0)
        without = float(gains[jobs, pools][_picked(program)].sum())
        program.set_column_bounds(x[jobs == winner], 0.0, 1.0)
        kept[winner] = np.clip(np.exp(total - gains[winner, won[winner]] - without), LEAST_KEPT, 1.0)
    return won, kept


def _picked(program: Program) -> np.ndarray:
    """Which offers are taken in the best allocation."""
    point = program.solve_integer(SolverBudget())
    assert point is not None  # taking nothing is always possible
    return np.asarray(point.x > 0.5)


@dataclass(frozen=True, slots=True)
class Sale:
    """One auction, for those who ask afterwards."""

    at_s: float
    next_s: float
    ids: Ints
    rho: Floats  # if a job had its fastest GPUs from then on
    bidders: Ints  # worst-off first
    jobs: int

    def why(self, row: int) -> str:
        """Why a job has no lease."""
        soon = f"next auction at {moment(self.next_s)}"
        at = np.flatnonzero(self.ids == row)
        if not len(at):
            return f"it came after the auction at {moment(self.at_s)}, and no GPUs are left over for it; {soon}"
        own = f"even at full speed it would finish {self.rho[at[0]]:.2f} times as late as on a share of its own"
        place = np.flatnonzero(self.bidders == row)
        if len(place):
            bid = f"it bid as the worst-off but {place[0]} of {self.jobs}, and other bids were worth more together"
        else:
            least = float(self.rho[self.ids == self.bidders[-1]][0]) if len(self.bidders) else 0.0
            bid = f"only the {len(self.bidders)} worst-off of {self.jobs} could bid (ratio {least:.2f} or more)"
        return f"{own}; {bid}, and what was left over went to others; {soon}"
