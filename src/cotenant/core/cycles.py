"""How long a cycle of interleaved jobs takes (Muri, SIGCOMM'22, section 4.1, and its released simulator).

Members of a group advance one iteration each per cycle T. Jobs take turns on four slots; the order matters, so the
best of all orders counts. With three stage numbers (data, GPU, network) data occupies two slots and T follows from a
recurrence; with four, T is the sum over slots of the longest stage in each. Everything is remembered by the multiset
of kinds, because a cluster has few kinds and many jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations

from cotenant.core.stages import Stages

SLOTS = 4
_SAME = 1e-3  # relative: two periods of the recurrence are equal


def three_stage_cycle(stages: Sequence[Sequence[float]]) -> float:
    """Period of jobs with (data, GPU, network) times that start one slot apart, in the order given."""
    m = len(stages)
    f = [0.0]
    for i in range(2 * SLOTS):
        best = 0.0
        network, gpu, data = (i + 1) % SLOTS, (i + 2) % SLOTS, (i + 3) % SLOTS
        if network < m:
            best = max(best, f[i] + stages[network][2])
        if gpu < m:
            best = max(best, f[i] + stages[gpu][1])
        if data < m and i > 0:
            best = max(best, f[i - 1] + stages[data][0])
        f.append(best)
        if i >= SLOTS:
            now, before = f[i + 1] - f[i - 3], f[i] - f[i - 4]
            if abs(now - before) <= _SAME * max(abs(now), abs(before)):
                return now
    return f[2 * SLOTS] - f[SLOTS]


def four_stage_cycle(stages: Sequence[Sequence[float]]) -> float:
    """Sum over slots of the longest stage in each, job j shifted by j slots."""
    return sum(max(job[(slot - j) % SLOTS] for j, job in enumerate(stages)) for slot in range(SLOTS))


def order_of_turns(stages: Sequence[Sequence[float]], worst: bool = False) -> tuple[int, ...]:
    """In which order jobs (by their places in `stages`) have to follow each other at every stage."""
    one = three_stage_cycle if len(stages[0]) == 3 else four_stage_cycle
    choose = max if worst else min
    return choose(permutations(range(len(stages))), key=lambda order: one([stages[at] for at in order]))


def all_cycles(stages: Sequence[Sequence[float]]) -> list[float]:
    """Cycle of every order of 2 to 4 jobs; two jobs of three stages may also swap halves."""
    three = len(stages[0]) == 3
    one = three_stage_cycle if three else four_stage_cycle
    found = [one(order) for order in permutations(stages)]
    if three and len(stages) == 2:
        (d0, g0, n0), (d1, g1, n1) = stages
        found.append(max(d0, g1 + n1) + max(d1, g0 + n0))
    return found


class Cycles:
    """Cycle times and efficiencies of groups of kinds, each worked out once."""

    def __init__(self, stages: Stages, choose: Callable[[list[float]], float] = min) -> None:
        self._times = [tuple(row) for row in stages.times.tolist()]
        self._alone = (stages.alone_s * stages.contention[0]).tolist()
        self._factor = [value / stages.contention[0] for value in stages.contention]
        self._choose = choose
        self._known: dict[tuple[int, ...], float] = {}
        self._sums: dict[tuple[int, ...], float] = {}
        self._turns: dict[tuple[int, ...], tuple[int, ...]] = {}

    def alone_s(self, kind: int) -> float:
        """One iteration without company."""
        return float(self._alone[kind])

    def cycle_s(self, kinds: tuple[int, ...]) -> float:
        """Seconds in which each member of a group (sorted kinds) makes one iteration."""
        found = self._known.get(kinds)
        if found is None:
            if len(kinds) == 1:
                found = self.alone_s(kinds[0])
            else:
                raw = self._choose(all_cycles([self._times[kind] for kind in kinds]))
                found = raw * self._factor[len(kinds) - 1]
            self._known[kinds] = found
        return found

    def turns(self, kinds: Sequence[int]) -> tuple[int, ...]:
        """Places in `kinds` in the order in which these jobs take turns at every stage."""
        key = tuple(kinds)
        if key not in self._turns:
            self._turns[key] = order_of_turns([self._times[kind] for kind in key], self._choose is max)
        return self._turns[key]

    def efficiency(self, kinds: tuple[int, ...]) -> float:
        """Share of the four resources that a group keeps busy (Muri's gamma)."""
        busy = float(sum(sum(self._times[kind]) for kind in kinds))
        return busy / (SLOTS * self.cycle_s(kinds))

    def throughput(self, kinds: tuple[int, ...]) -> float:
        """Sum of the members' speeds against alone; below 1 sharing loses."""
        found = self._sums.get(kinds)
        if found is None:
            found = self._sums[kinds] = float(sum(self._alone[kind] for kind in kinds)) / self.cycle_s(kinds)
        return found
