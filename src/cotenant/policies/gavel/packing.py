"""Gandiva's random packing, as the Gavel authors use it for a baseline."""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial
from typing import ClassVar

import numpy as np

from cotenant.core.spec import Value
from cotenant.core.view import View
from cotenant.policies.base import Context
from cotenant.policies.gavel.ordered import as_matrix, normalised_sum
from cotenant.policies.rounds.problem import Problem, Targets
from cotenant.policies.rounds.rounds import RoundPolicy
from cotenant.policies.rounds.standing import Standing

KEEP_ABOVE = 1.0  # a pair stays while its summed normalised rate is at least this


class GandivaPacking(RoundPolicy):
    """Even split while everybody fits; else random pairs of equal size, kept while packing pays."""

    name = "gandiva-packing"
    source = "Gandiva, OSDI'18, as a baseline in Gavel, OSDI'20"
    shares = True
    defaults: ClassVar[dict[str, Value]] = {"keep": KEEP_ABOVE}

    def begin(self, context: Context) -> None:
        """Pairs are remembered from solve to solve."""
        self._mate: dict[int, int] = {}
        self._summed = context.compat.get("gavel", {}).get("gandiva.threshold") == "all_types"
        super().begin(context)

    def targets(self, problem: Problem, view: View) -> Targets:
        """Equal time over combinations, alone or in pairs."""
        if problem.pair is None or (problem.gangs.sum() <= problem.capacity.sum()):
            self._mate = {}
            return Targets(problem.isolated * (problem.rates > 0))
        pairs = self._keep(problem, view)
        pairs += self._draw(problem, {j for pair in pairs for j in pair})
        self._mate = {int(view.rows[a]): int(view.rows[b]) for a, b in pairs}
        table = as_matrix(pairs)
        together = np.zeros(len(problem), bool)
        together[table.ravel()] = True
        combinations = len(problem) - len(pairs)
        share = problem.capacity[None, :] / (combinations * problem.gangs[:, None])
        share = share / np.maximum(share.sum(axis=1), 1.0)[:, None] * (problem.rates > 0)
        pair_x = share[table[:, 0]] * (self._worth_each(problem, table) > 0)
        return Targets(np.where(together[:, None], 0.0, share), table, pair_x)

    def told(self) -> Callable[[int], str]:
        """Whether it has somebody to share with."""
        mates = {**self._mate, **{two: one for one, two in self._mate.items()}}
        return partial(_company, frozenset(mates))

    def recalled(self, standing: Standing) -> None:
        """The pairs."""
        self._mate = {int(standing.ids[a]): int(standing.ids[b]) for a, b in standing.members.tolist() if b >= 0}

    def _keep(self, problem: Problem, view: View) -> list[tuple[int, int]]:
        """Pairs of the last time whose members are both here and still gain."""
        at = {row: place for place, row in enumerate(view.rows.tolist())}
        old = [(at[a], at[b]) for a, b in self._mate.items() if a in at and b in at]
        if not old:
            return []
        worth = self._worth_each(problem, as_matrix(old))
        total = worth.sum(axis=1) if self._summed else worth.max(axis=1)
        return [pair for pair, value in zip(old, total.tolist(), strict=True) if value >= self.number("keep")]

    def _draw(self, problem: Problem, busy: set[int]) -> list[tuple[int, int]]:
        """As many random tries as there are unassigned jobs; a try pairs two of equal size that can share."""
        free = [j for j in range(len(problem)) if j not in busy]
        pairs: list[tuple[int, int]] = []
        for _ in range(len(free)):
            if len(free) < 2:
                break
            one, two = (free[int(n)] for n in self.rng.choice(len(free), 2, replace=False))
            if problem.gangs[one] != problem.gangs[two]:
                continue
            if not (self._worth_each(problem, as_matrix([(one, two)])) > 0).any():
                continue
            pairs.append((one, two))
            free.remove(one)
            free.remove(two)
        return pairs

    def _worth_each(self, problem: Problem, pairs: np.ndarray) -> np.ndarray:
        """Summed normalised rate of each pair in each pool."""
        assert problem.pair is not None
        a, b = pairs[:, 0], pairs[:, 1]
        pools = problem.rates.shape[1]
        columns = [
            normalised_sum(problem.rates, problem.kind, problem.pair, a, b, np.full(len(a), k)) for k in range(pools)
        ]
        return np.stack(columns, axis=1) if len(pairs) else np.zeros((0, pools))


def _company(mates: Container[int], row: int) -> str:
    return "it is to share GPUs with a job of its size" if row in mates else "it is to run alone"
