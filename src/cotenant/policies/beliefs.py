"""What a policy believes of kinds of jobs that share a GPU: it knows the table, guesses it, or learns it by watching.

`oracle` is the table itself. `formula` is what the busy shares of two jobs alone let one guess (`Together.guess`).
`learned` starts from the formula; once two jobs have been side by side for a minute, what their steps really take
(`View.slowdown`) replaces the guess for their kinds on that GPU type. Who cannot share at all, because memory does not
hold both, is always known. Only clear cases teach: one neighbour, or neighbours of one kind, no throttle and no memory
limit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cotenant.core import columns as col
from cotenant.core.errors import unknown
from cotenant.core.together import Together, slowdown_of
from cotenant.core.view import View
from cotenant.core.workload import Ints

NAMES = ("oracle", "formula", "learned")
NONE = "none"  # for policies that can do without
WATCH_S = 60.0  # side by side before a slowdown counts as seen


class PairBeliefs:
    """Slowdowns of kinds beside kinds as a policy believes them; `noise` distorts what it starts from.

    `look` at every decision, so that pairs are watched. Kinds keep their numbers; live, more of them may come.
    """

    def __init__(
        self, policy: str, name: str, noise: float = 0.0, seed: int = 0, *, names: tuple[str, ...] = NAMES
    ) -> None:
        if name not in names:
            raise unknown(f"pairs of policy '{policy}'", name, names)
        self.name, self._noise = name, noise
        self._rng = np.random.default_rng([seed, 2407])
        self._draws = np.zeros((0, 0, 1))
        self._learned: dict[tuple[int, int, str], float] = {}  # two kinds and a GPU type
        self._table: NDArray[np.float64] | None = None
        self._basis: Together | None = None  # what the table was made from
        self._seen: NDArray[np.bool_] = np.zeros((0, 0, 0), bool)
        self._view: View | None = None
        self._failures = 0
        self._there: set[int] = set()  # rows at the last look
        self._stays: dict[int, tuple[frozenset[int], float]] = {}  # row -> who was beside it, and since when

    @property
    def active(self) -> bool:
        """Whether anything is believed."""
        return self.name != NONE

    def look(self, view: View) -> None:
        """Learn from what runs."""
        if self._view is not view and self.name == "learned":
            self._view = view
            self._watch(view, self._ready(view))

    def slowdown(self, view: View) -> NDArray[np.float64]:
        """`[kind, other, GPU type]`: at least 1; infinity where two cannot share."""
        self.look(view)
        return self._ready(view)

    def known(self, view: View) -> NDArray[np.bool_]:
        """`[kind, other, GPU type]`: false where `learned` still only guesses."""
        self.slowdown(view)
        return self._seen

    def worth_packing(self, view: View) -> NDArray[np.float64]:
        """`[kind, other, GPU type]`: believed speed of each of two; 0 where the two are slower than in turns."""
        speed = 1.0 / self.slowdown(view)
        return np.where(speed + speed.swapaxes(0, 1) > 1.0, speed, 0.0)

    def _ready(self, view: View) -> NDArray[np.float64]:
        """The table of now, begun anew where something else is known of kinds, or of more of them."""
        together = view.facts.together
        if self._table is None or self._basis is not together or len(self._table) != len(view.site.speed):
            self._table, self._basis = self._start(view), together
            self._seen = np.full(self._table.shape, self.name != "learned")
            if self._learned:
                names = _type_names(view)
                for (a, b, name), slow in self._learned.items():
                    if name in names:
                        self._write(self._table, np.ix_([a], [b]), names.index(name), slow)
        return self._table

    def _start(self, view: View) -> NDArray[np.float64]:
        together = view.facts.together
        kinds, types = view.site.speed.shape[:2]
        if together is None:
            return np.full((kinds, kinds, types), np.inf)
        guess = None if self.name == "oracle" else together.guess
        table = together.slowdown() if guess is None else slowdown_of(guess)
        if self._noise > 0:
            drawn = self._draws
            if kinds > len(drawn):
                self._draws = self._rng.standard_normal((kinds, kinds, types))
                self._draws[: len(drawn), : len(drawn)] = drawn
            table = np.maximum(table * np.exp(self._noise * self._draws), 1.0)
        return np.ascontiguousarray(table)

    def _write(self, table: NDArray[np.float64], cells: tuple[Ints, ...], gpu_type: int, slow: float) -> None:
        believed = table[:, :, gpu_type]
        believed[cells] = np.where(np.isfinite(believed[cells]), slow, np.inf)
        self._seen[:, :, gpu_type][cells] = True

    # -- watching ----------------------------------------------------------------------------------------------

    def _watch(self, view: View, table: NDArray[np.float64]) -> None:
        """Take over what pairs that have not been seen yet really do.

        When somebody has just gone, or a node has failed, the speeds that are seen are still those beside it: the
        next look will do.
        """
        together = view.facts.together
        failures, self._failures = self._failures, view.site.failures
        there, self._there = self._there, set(view.rows.tolist())
        users = view.site.users
        shared = np.flatnonzero((users >= 0).sum(axis=1) > 1)
        self._sit(view, shared)
        if together is None or failures != self._failures or not there <= self._there:
            return
        fresh: set[int] = set()
        for gpu in shared.tolist():
            jobs = [int(job) for job in users[gpu] if job >= 0]
            kinds, kind = view.kind[[view.at(job) for job in jobs]], self._type(view, gpu)
            if not self._seen[:, :, kind][np.ix_(kinds, kinds)].all():
                fresh.update(jobs)
        for job in sorted(fresh):
            found = self._neighbours(view, job, shared)
            if found is None:
                continue
            other, level, kind = found
            at = view.at(job)
            a = int(view.kind[at])
            pace = float(together.pace[a, view.level[at]])
            share = float(view.share[at]) if view.turn[at] else 1.0
            eased = together.easing()
            lost = max(float(view.alone_speed[at] / view.speed[at]) * pace * share - 1.0, 0.0)
            slow = 1.0 + lost / float(eased[a, view.level[at]] * eased[other, level])  # with whole batches
            ours, theirs = _alike(together, a), _alike(together, other)
            self._write(table, np.ix_(ours, theirs), kind, slow)
            name = _type_names(view)[kind]
            self._learned.update({(one, two, name): slow for one in ours.tolist() for two in theirs.tolist()})

    def _sit(self, view: View, shared: Ints) -> None:
        """Note since when each job has had its company: since the last of them started, or somebody left."""
        beside: dict[int, set[int]] = {}
        for jobs in view.site.users[shared].tolist():
            here = [job for job in jobs if job >= 0]
            for one in here:
                beside.setdefault(one, set()).update(here)
        began = dict(zip(view.rows.tolist(), view.since_s.tolist(), strict=True))
        stays = {}
        for one, company in beside.items():
            before, since_s = self._stays.get(one, (frozenset(), 0.0))
            last_s = max(began[job] for job in company)
            stays[one] = frozenset(company), max(last_s, since_s if before <= company else view.now_s)
        self._stays = stays

    def _neighbours(self, view: View, job: int, shared: Ints) -> tuple[int, int, int] | None:
        """Kind and level of those beside a job, and the GPU type; None where it is not clear who slows it down."""
        users = view.site.users
        found: set[int] = set()
        levels: set[int] = set()
        types: set[int] = set()
        if view.now_s - self._stays[job][1] < WATCH_S:
            return None
        for gpu in shared[(users[shared] == job).any(axis=1)].tolist():
            here = [int(k) for k in users[gpu] if k >= 0 and k != job]
            beside = [k for k in here if _meet(view.turn[[view.at(job), view.at(k)]])]
            if len(beside) > 1 or not all(self._plain(view, k) for k in (job, *beside)):
                return None
            found.update(int(view.kind[view.at(k)]) for k in beside)
            levels.update(int(view.level[view.at(k)]) for k in beside)
            types.add(self._type(view, gpu))
        together = view.facts.together
        if together is not None and together.alike is not None:
            groups = {int(together.alike[kind]) for kind in found}
            found = found if len(groups) != 1 else {min(found)}
        return (found.pop(), levels.pop(), types.pop()) if len(found) == len(levels) == len(types) == 1 else None

    @staticmethod
    def _plain(view: View, job: int) -> bool:
        """Whether a job runs with all its memory and without a throttle."""
        at = view.at(job)
        return bool((view.turn[at] > 0 or view.share[at] >= 1) and view.cap[at] >= 1)

    @staticmethod
    def _type(view: View, gpu: int) -> int:
        node = int(np.searchsorted(view.site.gpu_first, gpu, side="right")) - 1
        return int(view.site.node_type[node])


def _meet(turns: Ints) -> bool:
    """Whether two jobs on one GPU run at the same time: those of different turns do not."""
    return bool(turns[0] * turns[1] == 0 or turns[0] == turns[1])


def _alike(together: Together, kind: int) -> Ints:
    """The kinds that run like this one in company."""
    groups = together.alike
    if groups is None or groups[kind] < 0:
        return np.array([kind])
    return np.flatnonzero(groups == groups[kind])


def _type_names(view: View) -> list[str]:
    """GPU types by number, as the pools show them; their numbers where nobody has named them."""
    names = [str(number) for number in range(view.site.speed.shape[1])]
    for number, name in zip(view.site.pool[:, col.POOL_TYPE].tolist(), view.facts.pool_types, strict=False):
        names[number] = name
    return names
