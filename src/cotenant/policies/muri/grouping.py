"""Which jobs share: multi-round maximum-weight matching inside buckets of equal GPU count (Muri, section 4.2).

Groups are merged, best first, only until everything fits the cluster. Afterwards a group that makes less progress than
its members would one after the other is dissolved (autopack).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cotenant.core.cycles import SLOTS, Cycles
from cotenant.solvers.pairing import pair_kinds

ROUNDS = 4


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
        self._pairs: dict[tuple[tuple[tuple[int, ...], int], ...], tuple[tuple[int, int, int], ...]] = {}

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
            gone: set[int] = set()
            for one, two in merges:
                if required <= room:
                    break
                required -= one.gpus
                gone.add(id(two))
                one.kinds = tuple(sorted(one.kinds + two.kinds))
                one.jobs += two.jobs
                one.places += two.places
                one.node = max(one.node, two.node)
            groups = [group for group in groups if id(group) not in gone]
        return groups

    def _merges(self, groups: list[Group]) -> list[tuple[Group, Group]]:
        """Pairs of this round, in the order in which they are to be merged."""
        buckets: dict[int, list[Group]] = {}
        for group in groups:
            buckets.setdefault(group.gpus, []).append(group)
        merges: list[tuple[Group, Group]] = []
        for bucket in buckets.values():
            bucket.sort(key=lambda group: group.node)
            pairs = self._matched(bucket) if self.matching else self._in_chunks(bucket)
            pairs.sort(key=lambda pair: max(pair[0].node, pair[1].node))
            merges += pairs
        if not self.released_order:
            merges.sort(key=lambda pair: (1 - self.weight(pair[0].kinds, pair[1].kinds)) * pair[0].gpus)
        return merges

    def _matched(self, bucket: list[Group]) -> list[tuple[Group, Group]]:
        members: dict[tuple[int, ...], list[Group]] = {}
        for group in reversed(bucket):
            members.setdefault(group.kinds, []).append(group)
        names = sorted(members)
        key = tuple((name, len(members[name])) for name in names)
        found = self._pairs.get(key)
        if found is None:
            weight = np.array([[self.weight(one, two) for two in names] for one in names])
            table = pair_kinds(weight, np.array([count for _, count in key], np.int64))
            rows, columns = np.nonzero(table)
            found = tuple(zip(rows.tolist(), columns.tolist(), table[rows, columns].tolist(), strict=True))
            self._pairs[key] = found
        pairs = []
        for a, b, count in found:
            for _ in range(count):
                pairs.append((members[names[a]].pop(), members[names[b]].pop()))
        return pairs

    def _in_chunks(self, bucket: list[Group]) -> list[tuple[Group, Group]]:
        """Without matching: neighbours in the order (the authors' ablation)."""
        pairs = zip(bucket[::2], bucket[1::2], strict=False)
        return [(one, two) for one, two in pairs if self.weight(one.kinds, two.kinds) > 0]

    def worth_it(self, group: Group) -> bool:
        """Whether a group makes at least the progress of its members one after the other."""
        return len(group.jobs) == 1 or self.cycles.throughput(group.kinds) >= 1.0
