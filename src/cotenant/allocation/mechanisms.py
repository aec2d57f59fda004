"""The allocators by name: proportional, fixed, Synergy's three, ours, and two multi-resource baselines."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cotenant.allocation.base import Allocator, Request, largest_first, set_demands
from cotenant.allocation.fair import drf_order, tetris_order
from cotenant.allocation.knapsack import choose_points, count_hunger, deal, dealing_order, fastest, make_choices
from cotenant.allocation.servers import put
from cotenant.allocation.tables import ALIGNED, BEST_FIT, FEWEST_GPUS, FIRST_FIT
from cotenant.allocation.tune import greedy, tune
from cotenant.core.errors import InputError, unknown
from cotenant.core.sensitivity import CPU, MEM, RATE
from cotenant.core.spec import Spec, Value, typed_params
from cotenant.core.workload import Ints

_MOST_SERVERS = 64  # of phase 2: its fractions over more servers round to next to nothing
_FITS = {"best": BEST_FIT, "first": FIRST_FIT, "placement": FEWEST_GPUS}


class Proportional(Allocator):
    """Cores and memory in proportion to GPUs."""

    name = "proportional"
    source = "what most schedulers do"
    own: ClassVar[dict[str, Value]] = {"fit": "best"}

    def pack(self, request: Request) -> None:
        """Everybody wants its share, which every server can give."""
        p = request.packing
        set_demands(p, request.kind, request.demands, request.order)
        p.want[request.order] = p.floor[request.order]
        tune(p, largest_first(p, request.turn), request.lo, request.hi, _fit(self), False)


class FixedDemands(Allocator):
    """What the job file asks for, and the proportional share where it is silent; waits until that fits."""

    name = "fixed"
    source = "-"
    skips = True
    own: ClassVar[dict[str, Value]] = {"fit": "best"}

    def pack(self, request: Request) -> None:
        """First come, first served."""
        p, jobs = request.packing, request.order
        set_demands(p, request.kind, request.demands, jobs)
        asked, floor = request.asked[jobs], p.floor[jobs]
        p.want[jobs] = floor
        p.want[jobs, CPU] = np.where(np.isnan(asked[:, 0]), floor[:, CPU], asked[:, 0])
        p.want[jobs, MEM] = np.where(np.isnan(asked[:, 1]), floor[:, MEM], asked[:, 1])
        greedy(p, request.turn, request.lo, request.hi, _fit(self))


class Greedy(Allocator):
    """The best-case demand or nothing: first fit in every dimension, jobs that fit nowhere are skipped."""

    name = "synergy-greedy"
    source = "Synergy, OSDI'22"
    skips = True
    own: ClassVar[dict[str, Value]] = {"fit": "first"}

    def pack(self, request: Request) -> None:
        """Walk the whole queue while GPUs remain."""
        set_demands(request.packing, request.kind, request.demands, request.order)
        greedy(request.packing, request.turn, request.lo, request.hi, _fit(self))


class Tune(Allocator):
    """Best-case demand, else the share, else taken back from those above theirs; nobody is skipped."""

    name = "synergy-tune"
    source = "Synergy, OSDI'22"
    own: ClassVar[dict[str, Value]] = {"order": "paper", "fit": "best"}

    def pack(self, request: Request) -> None:
        """`order=paper`: by GPUs, cores and memory, largest first; `policy`: as the policy orders."""
        p, turn = request.packing, request.turn
        set_demands(p, request.kind, request.demands, request.order)
        if self.params["order"] == "paper":
            turn = largest_first(p, turn)
        elif self.params["order"] != "policy":
            raise unknown("order of allocator 'synergy-tune'", str(self.params["order"]), ("paper", "policy"))
        elif request.by_attained:
            turn = turn[np.argsort(-p.gpus[turn], kind="stable")]
        tune(p, turn, request.lo, request.hi, _fit(self), self.params["fit"] == "first")


class Knapsack(Allocator):
    """Per server the best choice among all points of the matrix that are no slower than the share."""

    name = "synergy-knapsack"
    source = "ours"

    def pack(self, request: Request) -> None:
        """Deal the jobs by their hunger, then solve server by server."""
        p, jobs, demands = request.packing, request.order, request.demands
        set_demands(p, request.kind, demands, jobs)
        p.want[jobs] = fastest(demands)[request.kind[jobs]]
        count_hunger(p)
        turn = request.turn[dealing_order(p.gpus[request.turn], p.want[request.turn], p.kept[request.turn])]
        deal(p, turn, request.lo, request.hi)
        choices = make_choices(demands, request.share, p.on.shape[1])
        choose_points(p, choices, request.kind, request.lo, request.hi)


class Opt(Allocator):
    """The two programs of the paper in HiGHS: best points on one big machine, then spread over servers."""

    name = "synergy-opt"
    source = "Synergy, OSDI'22"
    own: ClassVar[dict[str, Value]] = {"budget": 5.0}

    def pack(self, request: Request) -> None:
        """Out of time: the demands stay what TUNE would use. Whoever finds no server whole goes TUNE's way."""
        from cotenant.solvers.errors import SolverError

        p, jobs, budget_s = request.packing, request.order, self.number("budget")
        if not budget_s > 0:
            raise InputError(f"allocator 'synergy-opt': budget={budget_s:g} must be above 0 seconds")
        set_demands(p, request.kind, request.demands, jobs)
        point = np.full(len(p.gpus), -1, np.int64)
        try:
            self._phase_1(request, point, budget_s)
            if not p.kept[jobs].any() and request.hi - request.lo <= _MOST_SERVERS:
                self._phase_2(request, point, budget_s)
        except SolverError:
            pass
        left = np.array([k for k in request.turn.tolist() if p.at[k, 1] == 0 or p.kept[k]], np.int64)
        tune(p, largest_first(p, left), request.lo, request.hi, BEST_FIT, False)

    def _phase_1(self, request: Request, point: Ints, budget_s: float) -> None:
        from cotenant.allocation.opt import best_shares

        p, demands, jobs = request.packing, request.demands, request.order
        kinds = request.kind[jobs]
        counts = np.bincount(kinds, minlength=len(request.gangs))
        cap = p.cap[request.lo : request.hi]
        taken = best_shares(counts, request.gangs, demands, cap[:, 1].sum(), cap[:, 2].sum(), budget_s).taken
        for kind in np.unique(kinds).tolist():
            which = jobs[kinds == kind]
            point[which] = np.repeat(np.arange(taken.shape[1]), taken[kind])[: len(which)]
            p.want[which] = demands.points[kind, point[which]]
            if request.gangs[kind] > 1:  # a gang may end up on several servers: see `demand` on mixed demands
                above = np.any(p.want[which, :RATE] > p.floor[which, :RATE] + 1e-9, axis=1, keepdims=True)
                raised = np.maximum(p.want[which, :RATE], p.floor[which, :RATE])
                p.want[which, :RATE] = np.where(above, raised, p.want[which, :RATE])

    def _phase_2(self, request: Request, point: Ints, budget_s: float) -> None:
        from cotenant.allocation.opt import spread_over_servers

        p, jobs = request.packing, request.order
        code = request.kind[jobs] * request.demands.points.shape[1] + point[jobs]
        classes, first, amounts = np.unique(code, return_index=True, return_counts=True)
        want, gangs = p.want[jobs[first]], p.gpus[jobs[first]]
        cap = p.cap[request.lo : request.hi]
        whole = spread_over_servers(amounts, gangs, want[:, CPU], want[:, MEM], cap, budget_s)
        for c, value in enumerate(classes.tolist()):
            waiting = iter(jobs[code == value].tolist())
            for n in np.repeat(np.arange(request.lo, request.hi), whole[c]).tolist():
                put(p, next(waiting), n, want[c, CPU], want[c, MEM], want[c, RATE])


class Drf(Allocator):
    """Best-case demands in the order of dominant resource fairness: whoever holds least of its dominant one."""

    name = "drf"
    source = "Ghodsi et al., NSDI'11; baseline of Synergy"
    skips = True

    def pack(self, request: Request) -> None:
        """Progressive filling over tenants; with a single one, jobs by their own dominant share."""
        p = request.packing
        set_demands(p, request.kind, request.demands, request.order)
        order = drf_order(p, request.turn, request.tenant, p.cap[request.lo : request.hi].sum(axis=0))
        greedy(p, order, request.lo, request.hi, BEST_FIT)


class Tetris(Allocator):
    """Best-case demands: little remaining work first, each to the server whose free resources it matches."""

    name = "tetris"
    source = "Grandl et al., SIGCOMM'14; baseline of Synergy"
    skips = True

    def pack(self, request: Request) -> None:
        """Remaining time x sum of normalised demands, smallest first; servers by alignment."""
        p = request.packing
        set_demands(p, request.kind, request.demands, request.order)
        total = p.cap[request.lo : request.hi].sum(axis=0)
        greedy(p, tetris_order(p, request.turn, request.left_s, total), request.lo, request.hi, ALIGNED)


ALLOCATORS: dict[str, type[Allocator]] = {
    one.name: one for one in (FixedDemands, Proportional, Greedy, Tune, Knapsack, Opt, Drf, Tetris)
}
"""Every allocator by name."""


def make_allocator(text: str) -> Allocator:
    """An allocator from `synergy-tune` or `synergy-tune:order=policy,fit=first`."""
    spec = Spec.parse(text)
    if spec.name not in ALLOCATORS:
        raise unknown("allocator", spec.name, ALLOCATORS)
    chosen = ALLOCATORS[spec.name]
    made = chosen(**typed_params(spec, {**chosen.common, **chosen.own}, "allocator"))
    _check(made)
    return made


def _check(made: Allocator) -> None:
    if "fit" in made.params:
        _fit(made)
    if made.params["profiling"] not in ("oracle", "optimistic"):
        raise unknown(f"profiling of allocator '{made.name}'", str(made.params["profiling"]), ("oracle", "optimistic"))
    for name, low, high in (("round", 0.0, np.inf), ("noise", 0.0, 1.0), ("saturate", 0.01, 1.0)):
        if not low <= made.number(name) <= high:
            raise InputError(f"allocator '{made.name}': {name}={made.params[name]} must be from {low:g} to {high:g}")


def _fit(made: Allocator) -> int:
    fit = str(made.params["fit"])
    if fit not in _FITS:
        raise unknown(f"fit of allocator '{made.name}'", fit, _FITS)
    return _FITS[fit]
