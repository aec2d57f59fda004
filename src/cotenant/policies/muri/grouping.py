"""Which jobs share: multi-round maximum-weight matching inside buckets of equal GPU count (Muri, section 4.2).

Groups are merged, best first, only until everything fits the cluster. Afterwards a group that makes less progress than
its members would one after the other is dissolved (autopack).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter

import numpy as np

from cotenant.core.cycles import SLOTS, Cycles
from cotenant.solvers.pairing import pair_kinds

ROUNDS = 4
_BY_NODE, _BY_LOSS = attrgetter("node"), itemgetter(0)
_GONE = -1  # the number of a group that is part of another


@dataclass(slots=True)
class Group:
    """Jobs on the same GPUs, where each stands in the order, and the last of their numbers in the graph."""

    gpus: int
    kinds: tuple[int, ...]  # sorted; -1 for a job of unknown stages, which stays alone
    jobs: list[int]
    places: list[int]
    node: int = 0

    @property
    def first(self) -> int:
        """Place of the member that comes first."""
        return min(self.places)


_Pair = tuple[int, float, Group, Group, tuple[int, ...]]  # number, weight, both, kinds of both
_Merge = tuple[float, int, Group, Group, tuple[int, ...]]  # loss, number, both, kinds of both
_Pairing = tuple[
    tuple[int, ...], tuple[int, ...], int, float, tuple[int, ...]
]  # kinds, kinds, count, weight, all kinds
Fits = Callable[[tuple[int, ...]], bool]


class Grouping:
    """The matching, with what it has found out so far."""

    def __init__(
        self,
        cycles: Cycles,
        *,
        largest: int = SLOTS,
        least_efficiency: float = 0.0,
        matching: bool = True,
        released_order: bool = False,
        fits: Fits = lambda kinds: True,
    ) -> None:
        self.cycles, self.largest, self.least = cycles, largest, least_efficiency
        self.matching, self.released_order, self.fits = matching, released_order, fits
        self._weights: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = {}
        self._pairs: dict[tuple[tuple[tuple[int, ...], int], ...], list[_Pairing]] = {}

    def _weight(self, one: tuple[int, ...], two: tuple[int, ...]) -> float:
        """Efficiency of two groups as one; 0 where they must not be."""
        size = len(one) + len(two)
        if size > self.largest or min(one) < 0 or min(two) < 0:
            return 0.0
        kinds = tuple(sorted(one + two))
        gamma = self.cycles.efficiency(kinds)
        return gamma if gamma > self.least * size / SLOTS and self.fits(kinds) else 0.0

    def weight(self, one: tuple[int, ...], two: tuple[int, ...]) -> float:
        """The same, looked up where it was asked for before."""
        found = self._weights.get((one, two))
        if found is None:
            found = self._weights[one, two] = self._weight(one, two)
        return found

    def group(
        self,
        jobs: Sequence[int],
        gpus: Sequence[int],
        kinds: Sequence[int],
        room: int,
        places: Sequence[int] | None = None,
    ) -> list[Group]:
        """Merge jobs until they need at most `room` GPUs or nothing more can be merged.

        `places` say where they stand in the order, if not as they are given.
        """
        columns = zip(jobs, gpus, kinds, places or range(len(jobs)), strict=True)
        groups = [Group(count, (kind,), [job], [place], at) for at, (job, count, kind, place) in enumerate(columns)]
        required = sum(group.gpus for group in groups)
        for _ in range(ROUNDS):
            if required <= room:
                break
            merges = self._merges(groups)
            if not merges:
                break
            for _, _, one, two, kinds in merges:
                if required <= room:
                    break
                required -= one.gpus
                one.kinds = kinds
                one.jobs += two.jobs
                one.places += two.places
                one.node = max(one.node, two.node)
                two.node = _GONE
            groups = [group for group in groups if group.node != _GONE]
        return groups

    def _merges(self, groups: list[Group]) -> list[_Merge]:
        """Pairs of this round, in the order in which they are to be merged."""
        buckets: dict[int, list[Group]] = {}
        for group in groups:
            buckets.setdefault(group.gpus, []).append(group)
        merges: list[_Merge] = []
        for gpus, bucket in buckets.items():
            if len(bucket) < 2:
                continue
            bucket.sort(key=_BY_NODE)
            pairs = self._matched(bucket) if self.matching else self._in_chunks(bucket)
            pairs.sort()  # no two have the same number
            merges += [((1 - weight) * gpus, at, one, two, kinds) for at, weight, one, two, kinds in pairs]
        if not self.released_order:
            merges.sort(key=_BY_LOSS)
        return merges

    def _matched(self, bucket: list[Group]) -> list[_Pair]:
        members: dict[tuple[int, ...], list[Group]] = {}
        for group in reversed(bucket):
            members.setdefault(group.kinds, []).append(group)
        key = tuple([(name, len(members[name])) for name in sorted(members)])
        found = self._pairs.get(key)
        if found is None:
            found = self._pairs[key] = self._pair_up([name for name, _ in key], [count for _, count in key])
        pairs = []
        for one, two, count, weight, kinds in found:
            for _ in range(count):
                a, b = members[one].pop(), members[two].pop()
                pairs.append((max(a.node, b.node), weight, a, b, kinds))
        return pairs

    def _pair_up(self, names: list[tuple[int, ...]], counts: list[int]) -> list[_Pairing]:
        """How many groups of which kinds to merge with which others, and what comes of it."""
        weight = np.zeros((len(names), len(names)))
        for a, one in enumerate(names):
            for b in range(a, len(names)):
                weight[a, b] = weight[b, a] = self.weight(one, names[b])
        table = pair_kinds(weight, np.array(counts, np.int64))
        rows, columns = np.nonzero(table)
        return [
            (names[a], names[b], int(table[a, b]), float(weight[a, b]), tuple(sorted(names[a] + names[b])))
            for a, b in zip(rows.tolist(), columns.tolist(), strict=True)
        ]

    def _in_chunks(self, bucket: list[Group]) -> list[_Pair]:
        """Without matching: neighbours in the order (the authors' ablation)."""
        found: list[_Pair] = []
        for one, two in zip(bucket[::2], bucket[1::2], strict=False):
            weight = self.weight(one.kinds, two.kinds)
            if weight > 0:
                found.append((max(one.node, two.node), weight, one, two, tuple(sorted(one.kinds + two.kinds))))
        return found

    def worth_it(self, group: Group) -> bool:
        """Whether a group makes at least the progress of its members one after the other."""
        return len(group.jobs) == 1 or self.cycles.throughput(group.kinds) >= 1.0
