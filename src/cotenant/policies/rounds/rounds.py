"""Rounds: target fractions become, round by round, a choice of who runs in which pool.

At a round's end whoever is furthest behind its target runs next; a combination that is chosen again in the
same pool keeps its GPUs (the engine sees to that: no restart). Between rounds nothing is taken away; GPUs
that fall idle go to whoever has none.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cotenant.core.plan import Plan, Pools
from cotenant.core.state import IntMatrix, Matrix
from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints
from cotenant.policies.base import Context, PlanPolicy
from cotenant.policies.rounds.history import History
from cotenant.policies.rounds.problem import Problem, Targets
from cotenant.policies.rounds.select import by_priority, fill, one_line, pick, pick_in_line
from cotenant.policies.rounds.standing import Standing, no_more

EPSILON_S = 1e-6
_NONE: Ints = np.zeros(0, np.int64)
_NOTHING: tuple[Ints, Ints, Ints, Ints] = (_NONE, _NONE, _NONE, _NONE)


@dataclass(frozen=True, slots=True)
class Quirks:
    """Habits of the released simulator that change results; all off by default."""

    reset_interval_s: float = 0.0  # least time between solves
    drop_late: bool = False  # jobs that arrived since the last solve may be picked, and then do not run
    latest_finish: bool = False  # nothing happens between rounds; GPUs that fall idle stay idle
    whole_steps: bool = False  # received time counts whole steps only
    own_draws: bool = False  # random numbers as Python's own generator draws them


class RoundPolicy(PlanPolicy):
    """The mechanism; subclasses say what the targets are."""

    names_pools = True
    pair_belief = "oracle"

    agnostic: ClassVar[bool] = False  # visits GPU types in random order
    one_queue: ClassVar[bool] = False  # walks all pools in one line by priority, not pool by pool
    only_targets: ClassVar[bool] = False  # never runs a combination without a target, even on idle GPUs

    def begin(self, context: Context) -> None:
        """Asked at every round's end and, unless `latest_finish`, at every event."""
        self.length_s = float(context.round_s)
        self.quirks = quirks_of(context.compat)
        self.rng = np.random.default_rng([context.seed, 5])
        self._draws = random.Random(context.seed + 5) if self.quirks.own_draws else None
        self._history: History | None = None
        self._round_end_s = -np.inf
        self._asked_s = -np.inf
        self._changed = True
        self._pair: np.ndarray | None = None
        self._speed: np.ndarray | None = None
        self._seen: Ints = np.zeros(0, np.int64)
        self._gpus: Ints = np.zeros(0, np.int64)
        self._held = _NOTHING
        self._alone: IntMatrix = np.zeros((0, 2), np.int64)  # combinations of one job
        self._all_run = False  # everybody with a target was chosen, at the last round
        self._pair_pieces: Floats = np.zeros(0)
        self.standing: Standing | None = None  # at the last round
        self._recalled: Mapping[tuple[int, ...], Any] = {}
        self.wakes = not self.quirks.latest_finish

    @abstractmethod
    def targets(self, problem: Problem, view: View) -> Targets:
        """Time fractions for the jobs of the view."""

    def recalled(self, standing: Standing) -> None:
        """Bring back what else is remembered from solve to solve, as far as a standing tells it."""

    # -- what outlives a crash ---------------------------------------------------------------------------------

    def remember(self) -> dict[tuple[int, ...], Any]:
        """How everybody stood when the round began: once per round something new."""
        if self.standing is None or self._history is None:
            return {}
        found, history = self.standing.written(), self._history
        found[()]["gpus"] = self._gpus.tolist()
        for who in found:
            if len(who) == 1:
                found[who] += [history.isolated_s[who[0]], history.seen_left_s[who[0]], history.seen_rate[who[0]]]
        return found

    def recall(self, kept: Mapping[tuple[int, ...], Any]) -> None:
        """Kept until the first decision, which knows the pools."""
        self._recalled = kept

    def _begun(self, view: View) -> History:
        """A history, empty or as it was kept; whoever runs by now has run since that round began."""
        history, kept = History(len(view.pool_gpus), self.length_s / 2), self._recalled
        if not kept or tuple(kept[()]["types"]) != view.pool_types:
            return history
        self.standing = standing = Standing.read(kept)
        history.room_for(view.rows)
        history.recall(standing)
        for row in standing.ids.tolist():
            history.isolated_s[row], history.seen_left_s[row], history.seen_rate[row] = kept[row,][3:]
        self._seen, self._gpus, self._pair = standing.ids, np.array(kept[()]["gpus"], np.int64), view.facts.pair
        self._speed, self._changed = view.site.speed, False
        self._round_end_s, self._asked_s = standing.next_s, standing.began_s
        pool = dict(zip(view.rows.tolist(), view.pool.tolist(), strict=True))
        guests = {(int(row), int(host)) for row, host in zip(view.rows, view.host_row, strict=True) if host >= 0}
        pairs = [k for k, (a, b) in enumerate(history.pairs.tolist()) if (a, b) in guests or (b, a) in guests]
        paired = {row for pair in guests for row in pair}
        alone = [row for row, held in pool.items() if held >= 0 and row not in paired]
        self._held = (
            np.array(alone, np.int64), np.array([pool[row] for row in alone], np.int64),
            np.array(pairs, np.int64), np.array([pool[int(history.pairs[k, 0])] for k in pairs], np.int64),
        )  # fmt: skip
        self.recalled(standing)
        return history

    # -- one decision ------------------------------------------------------------------------------------------

    def decide(self, view: View) -> Plan:
        """Account for the time since the last decision, solve if something changed, pick."""
        now_s, ids = view.now_s, view.rows
        if len(view.given):
            self._catch_up(view.given)
        if not len(ids):
            self._held = _NOTHING
            return Plan(pools=Pools(_NONE, _NONE, _NONE))
        history = self._history = self._history or self._begun(view)
        history.room_for(ids)
        self._account(view, history)
        seen = np.sort(ids)
        if len(seen) != len(self._seen) or (seen != self._seen).any():
            self._changed, self._seen = True, seen
        if not _alike(view.facts.pair, self._pair):  # beliefs about pairs have changed
            self._changed, self._pair = True, view.facts.pair
        if not _alike(view.site.speed, self._speed):  # or about types
            self._changed, self._speed = True, view.site.speed
        gpus = view.pool_gpus
        if len(gpus) != len(self._gpus) or (gpus != self._gpus).any():  # nodes have failed or come back
            self._changed, self._gpus = True, gpus
        boundary = self.quirks.latest_finish or now_s >= self._round_end_s - EPSILON_S
        if boundary and self._changed and self._may_solve(history, now_s):
            self._solve(view, history)
        pools, next_s = self._pick(view, history) if boundary else self._top_up(view)
        assert self.standing is not None
        until_s = self._idle_until(history), self._same_until(history)
        return Plan(pools=pools, next_s=next_s, why=self.standing.why, idle_until_s=until_s[0], same_until_s=until_s[1])

    def _idle_until(self, history: History) -> float:
        """Up to when whatever happens is answered as in `_top_up`."""
        quirks = self.quirks
        other = self.only_targets or quirks.latest_finish or quirks.whole_steps or len(history.pairs)
        return -np.inf if other else self._round_end_s

    def _same_until(self, history: History) -> float:
        """Up to when rounds can only repeat this one: everybody runs who has a target, and nobody else may."""
        quirks = self.quirks
        if not (self._all_run and self.only_targets and quirks.latest_finish and quirks.whole_steps):
            return -np.inf
        if len(history.pairs) or (self._changed and not (quirks.reset_interval_s > 0 and history.solved_s > 0)):
            return -np.inf
        return history.solved_s + quirks.reset_interval_s - EPSILON_S if self._changed else np.inf

    def _catch_up(self, given: Matrix) -> None:
        """Without asking, idle GPUs were given away between two rounds as here, or rounds were like the last one."""
        assert self._history is not None
        ids, pools = self._held[:2]
        pieces = self._pieces if self.quirks.whole_steps else np.full(len(ids), np.inf)
        ids, pools = self._history.catch_up(ids, pools, pieces, given, self._asked_s)
        self._held = ids, pools, *self._held[2:]
        self._asked_s = float(given[-1, 0])
        if self.quirks.latest_finish and self.agnostic:
            for _ in range(len(given)):
                self._shuffled(len(self._gpus))  # as every round does
        if not self._changed:  # by somebody who is new, also if he has ended by now
            who = given[given[:, 1] >= 0, 1].astype(np.int64)
            at = np.minimum(np.searchsorted(self._seen, who), max(len(self._seen) - 1, 0))
            self._changed = bool((self._seen[at] != who).any() if len(self._seen) else len(who))

    def next_look(self, now_s: float, waiting: int, idle: int) -> float | None:
        """Between rounds nothing is done unless idle GPUs could go to somebody; what changed is seen at the end."""
        if (waiting and idle) or self.quirks.latest_finish or self._history is None:
            return None
        return self._round_end_s if now_s < self._round_end_s - EPSILON_S else None

    def _may_solve(self, history: History, now_s: float) -> bool:
        """The released simulator waits between solves, but not after one at time 0."""
        waits_s = self.quirks.reset_interval_s
        return now_s - history.solved_s >= waits_s or (waits_s > 0 and history.solved_s == 0)

    def refresh(self) -> None:
        """Solve anew at the next round: the GPUs are not those of the last targets."""
        self._changed = True

    def told(self) -> Callable[[int], str]:
        """What there is to say of a job (by row) besides its fractions, as of the last solve."""
        return no_more

    def _account(self, view: View, history: History) -> None:
        """Credit what was chosen last time with the seconds since then, but nobody for GPUs it did not have yet."""
        elapsed = view.now_s - self._asked_s
        ids, pools, pairs, pair_pools = self._held
        if np.isfinite(elapsed) and elapsed > 0:
            seconds = np.full(len(ids), elapsed)
            promised = view.rows[view.promised == 1]
            if len(promised):
                seconds[np.isin(ids, promised)] = 0.0
            if self.quirks.whole_steps:
                seconds = np.minimum(seconds, self._pieces)
            history.receive(ids, pools, seconds)
            together = np.full(len(pairs), elapsed)
            if self.quirks.whole_steps:
                together = np.minimum(together, self._pair_pieces)
            history.receive_pairs(pairs, pair_pools, together)
        self._asked_s = view.now_s

    def _solve(self, view: View, history: History) -> None:
        history.settle(view.now_s)
        problem = self.problem(view, history)
        history.promise(view.rows, self.targets(problem, view), view.now_s)
        self._changed = False

    def problem(self, view: View, history: History) -> Problem:
        """The view as arrays for an objective."""
        left = view.remaining_s
        problem = Problem(
            now_s=view.now_s, rates=view.rates, gangs=view.gpus, weights=view.weight,
            capacity=view.pool_gpus.astype(np.float64), left_s=left, age_s=view.now_s - view.submit_s,
            isolated_s=np.zeros(len(left)), steps_per_s=view.steps_per_s, deadline_s=view.deadline_s,
            tenant=view.tenant, prices=view.pool_prices, kind=view.kind, pool_types=view.pool_types,
            pair=view.pair_rates,
        )  # fmt: skip
        isolated = history.watch_isolated(view.rows, left, self.even_rates(problem))
        return replace(problem, isolated_s=isolated)

    def even_rates(self, problem: Problem) -> Floats:
        """The rate of each job on its even share, by which `isolated_s` is counted."""
        return problem.isolated_rate

    # -- picking -----------------------------------------------------------------------------------------------

    def _pick(self, view: View, history: History) -> tuple[Pools, float]:
        """A fresh choice at a round's end."""
        ids, rates, gangs = view.rows, view.rates, view.gpus
        members, pair_of = self._combinations(ids, history)
        usable = (rates > 0).astype(np.int64)
        target, received, deficit = history.target[ids], history.received_s[ids], history.deficit_s[ids]
        if len(pair_of):
            target = np.concatenate([target, history.pair_target[pair_of]])
            received = np.concatenate([received, history.pair_received_s[pair_of]])
            deficit = np.concatenate([deficit, history.pair_deficit_s[pair_of]])
            usable = np.concatenate([usable, (usable[members[len(ids) :]]).min(axis=1)])
        priority, order = by_priority(target, received, deficit, usable)
        room = self._gpus.copy()
        taken = np.zeros(len(ids), np.int64)
        eager = np.ones(usable.shape, np.int64)
        if self.only_targets or len(pair_of):
            first = 0 if self.only_targets else len(ids)
            eager[first:] = priority[first:] > 0
        out = np.zeros((len(members), 2), np.int64)
        pools = self._shuffled(len(room)) if self.agnostic else np.arange(len(room))
        each = gangs if not len(pair_of) else gangs[members[:, 0]]
        if self.one_queue:
            line = one_line(priority, deficit, target)
            count = pick_in_line(line, members, each, usable, eager, room, taken, out)
        else:
            count = pick(order, members, each, usable, eager, pools, room, taken, out)
        chosen, where = out[:count, 0], out[:count, 1]
        self._all_run = count == np.count_nonzero(priority)
        if self.quirks.drop_late:
            known = history.known[ids[members[chosen, 0]]]
            chosen, where = chosen[known], where[known]
        self._round_end_s = self._next_boundary(view.now_s)
        said = self._say(view, members[chosen], pair_of, chosen, where)
        self.standing = Standing(
            ids, history.known[ids], members, target, received - history.head_start_s, deficit, history.solved_s,
            view.now_s, self._round_end_s, view.pool_types, self.told(),
        )  # fmt: skip
        return said

    def _shuffled(self, pools: int) -> Ints:
        """The pools in random order."""
        if self._draws is None:
            return self.rng.permutation(pools)
        order = list(range(pools))
        self._draws.shuffle(order)
        return np.array(order, np.int64)

    def _combinations(self, ids: Ints, history: History) -> tuple[IntMatrix, Ints]:
        """Every active job alone, then the pairs whose members are both active, by their place in the view."""
        if len(self._alone) < len(ids):
            many = np.arange(2 * len(ids))
            self._alone = np.stack([many, np.full(len(many), -1)], axis=1)
        alone = self._alone[: len(ids)]
        if not len(history.pairs):
            return alone, _NONE
        order = np.argsort(ids)
        at = np.searchsorted(ids[order], history.pairs)
        at = np.minimum(at, len(ids) - 1)
        here = (ids[order][at] == history.pairs).all(axis=1)
        return np.concatenate([alone, order[at[here]]]), np.flatnonzero(here)

    def _say(
        self, view: View, members: IntMatrix, pair_of: Ints, chosen: Ints, where: Ints
    ) -> tuple[Pools, float]:  # fmt: skip
        """Remember what was chosen, and say it in rows; and when the next round is."""
        rows, double = view.rows, members[:, 1] >= 0
        if not len(pair_of):
            jobs = members[:, 0]
            self._held = (rows[jobs], where, _NONE, _NONE)
            self._pair_pieces = np.zeros(0)
            if self.quirks.whole_steps:
                self._pieces = _pieces(view, jobs, where, self.length_s)
            pools = Pools(rows[jobs], where, members[:, 1])
            return pools, self._wake_s(view, len(jobs) < len(rows))
        swap = double & (view.host_row[members[:, 0]] == rows[members[:, 1]])
        members[swap] = members[swap, ::-1]  # whoever is the host stays it
        self._held = (
            rows[members[~double, 0]], where[~double], pair_of[chosen[double] - len(rows)], where[double],
        )  # fmt: skip
        if self.quirks.whole_steps:
            self._pieces = _pieces(view, members[~double, 0], where[~double], self.length_s)
            self._pair_pieces = _pair_pieces(view, members[double], where[double], self.length_s)
        hosts = np.full(len(members), -1, np.int64)
        guest, host = members[double, 1], members[double, 0]
        idle = np.ones(len(rows), bool)
        idle[members[:, 0]] = idle[guest] = False
        pools = Pools(
            rows=np.concatenate([rows[members[:, 0]], rows[guest]]),
            pools=np.concatenate([where, where[double]]),
            hosts=np.concatenate([hosts, rows[host]]),
        )
        return pools, self._wake_s(view, bool(idle.any()))

    def _top_up(self, view: View) -> tuple[Pools, float]:
        """Between rounds: whatever runs goes on, and idle GPUs go to jobs that have none, oldest first."""
        held, gangs, mates = view.pool, view.gpus, view.host_row
        kept = held >= 0
        own = kept & (mates < 0)
        room = self._gpus.copy()
        np.subtract.at(room, held[own], gangs[own])
        taken = kept.astype(np.int64)
        out = np.zeros((len(gangs), 2), np.int64)
        oldest = np.argsort(view.rows, kind="stable")
        count = 0 if self.only_targets else fill(oldest, view.rates, gangs, room, taken, out)
        new, pools = out[:count, 0], out[:count, 1]
        rows = view.rows
        self._held = (
            np.concatenate([self._held[0], rows[new]]), np.concatenate([self._held[1], pools]),
            self._held[2], self._held[3],
        )  # fmt: skip
        chosen = Pools(
            rows=np.concatenate([rows[kept], rows[new]]),
            pools=np.concatenate([held[kept], pools]),
            hosts=np.concatenate([mates[kept], np.full(count, -1, np.int64)]),
        )
        return chosen, self._round_end_s

    def _next_boundary(self, now_s: float) -> float:
        """Rounds lie on a fixed grid, so that runs can be compared; `latest_finish` counts from now."""
        if self.quirks.latest_finish:
            return now_s + self.length_s
        return float((np.floor(now_s / self.length_s + 1e-9) + 1) * self.length_s)

    def _wake_s(self, view: View, somebody_idle: bool) -> float:
        """The round's end, or never when the next rounds could only repeat this one."""
        history = self._history
        assert history is not None
        if somebody_idle or self.quirks.latest_finish or self._changed or len(history.pairs):
            return self._round_end_s
        ids, pools = self._held[0], self._held[1]
        elsewhere = history.target[ids].sum(axis=1) - history.target[ids, pools]
        return self._round_end_s if (elsewhere > 1e-6).any() else np.inf


def _pieces(view: View, jobs: Ints, pools: Ints, round_s: float) -> Floats:
    """Seconds of a round in which a job makes whole steps, by its rate in the pool."""
    rate = view.rates[jobs, pools] * view.steps_per_s[jobs]
    return np.asarray(np.floor(rate * round_s + 1e-9) / rate)


def _pair_pieces(view: View, pairs: IntMatrix, pools: Ints, round_s: float) -> Floats:
    """The same for two jobs together: that of the slower one."""
    assert view.pair_rates is not None
    kind = view.kind[pairs]
    found = np.zeros(len(pairs))
    for one, other in ((0, 1), (1, 0)):
        rate = view.pair_rates[kind[:, one], kind[:, other], pools] * view.steps_per_s[pairs[:, one]]
        steps = np.floor(rate * round_s + 1e-9)
        found = np.maximum(found, np.divide(steps, rate, out=np.zeros(len(pairs)), where=rate > 0))
    return found


def quirks_of(compat: dict[str, dict[str, str]]) -> Quirks:
    """The quirks that `--compat gavel` or `--compat gavel:name=value` switch on."""
    given = compat.get("gavel")
    if given is None:
        return Quirks()
    return Quirks(
        reset_interval_s=float(given.get("reset_interval_s", 0.0)),
        drop_late=given.get("late_arrivals") == "drop_at_placement",
        latest_finish=given.get("round_end") == "latest_finish",
        whole_steps=given.get("progress") == "whole_steps",
        own_draws=given.get("draws") == "python",
    )


def _alike(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    """Whether two tables say the same; most often they are one."""
    return one is other or (one is not None and other is not None and np.array_equal(one, other))
