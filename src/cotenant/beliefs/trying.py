"""Which pairs of kinds that nobody knows are worth a try, and what is believed of them until they were measured.

A kind's busy share and memory are watched while jobs of it run and are past their start-up. Two kinds may be tried on
one GPU when the memory of both is known and fits with some to spare (`LiveProfiles`), the busy share of one at least
was measured, and both together would not keep the GPU busier than `BUSY_LIMIT`. A kind that has not run yet is
believed to be busy half of the time. What is believed of the pair follows from the busy shares by the formula that was
fitted to measured pairs, less some doubt. Whether it is tried is for the policy to say, and whether it pays is then
measured (`pairing`).
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cotenant.beliefs.live_profiles import UNSEEN_BUSY, LiveKind, Seen, Use, Veto, veto
from cotenant.beliefs.watched import Watched, learned_kind
from cotenant.workload.profiles import Kind
from cotenant.workload.profiles.together import fitted, formula

BUSY_LIMIT = {"time": 1.2, "mps": 2.0}  # sum of busy shares: at once, even two busy ones leave each other room
DOUBT = 0.1  # by which a guessed slowdown is made larger
MOST_TRIALS = 4  # pairs of kinds at a time
SAMPLES = 5  # before a busy share counts
_MEMORY = 0.1  # how much the newest sample counts
_BUSY_GRID, _GIB_GRID = 0.05, 0.5  # less is no news: policies think anew at each


class SeenUse(Protocol):
    """What a job uses of its GPUs just now."""

    @property
    def busy(self) -> float:
        """Share of the time."""

    @property
    def used_gib(self) -> float:
        """Of memory, per GPU."""


class Situations(Protocol):
    """How running jobs stand, by id."""

    @property
    def warm(self) -> Container[str]:
        """Those past their start-up."""

    @property
    def company(self) -> Container[str]:
        """Those that have others beside them."""

    @property
    def gpu_type(self) -> Mapping[str, str]:
        """On which GPUs they run."""


@dataclass(slots=True)
class _Watch:
    busy: float
    gib: float
    samples: int = 1

    def add(self, use: SeenUse) -> None:
        """One more sample: the plain mean at first, then a moving one; the most memory ever."""
        self.samples += 1
        self.busy += (use.busy - self.busy) * max(_MEMORY, 1 / self.samples)
        self.gib = max(self.gib, use.used_gib)


class Trying:
    """What kinds use, and which pairs of them may be tried. `share` is how jobs share a GPU: time or mps."""

    def __init__(self, share: str = "time") -> None:
        self._share = share
        self._watched: dict[tuple[Kind, str], _Watch] = {}

    def watch(
        self, running: Iterable[Watched], uses: Mapping[str, SeenUse | None], where: Situations, seen: Seen
    ) -> None:
        """Take in what jobs use that are past their start-up. In company it counts only while nothing else is known.

        While jobs of a kind are in company, more memory than they were put together with is not believed of it: the
        policy could not keep them where they are.
        """
        jobs = list(running)
        shared = {learned_kind(job) for job in jobs if job.id in where.company}
        for job in jobs:
            use = uses.get(job.id) if job.id in where.warm else None
            if use is None:
                continue
            at = learned_kind(job), where.gpu_type[job.id]
            if at not in self._watched:
                self._watched[at] = _Watch(use.busy, use.used_gib)
            elif job.id not in where.company or at not in seen.uses:
                self._watched[at].add(use)
            self._publish(at, seen, at[0] in shared)

    def _publish(self, at: tuple[Kind, str], seen: Seen, shared: bool) -> None:
        """Tell what changed by more than a little."""
        watched, known = self._watched[at], seen.uses.get(at, Use(-1.0, 0.0))
        gib = known.gib if shared else max(known.gib, -(-watched.gib // _GIB_GRID) * _GIB_GRID)
        if watched.samples >= SAMPLES and (abs(known.busy - watched.busy) > _BUSY_GRID or gib > known.gib):
            seen.uses[at] = Use(round(round(watched.busy / _BUSY_GRID) * _BUSY_GRID, 3), gib)
            seen.changes += 1

    def offer(self, kinds: Sequence[LiveKind], types: Iterable[str], seen: Seen, tried: Collection[Veto]) -> None:
        """Write down what is believed of pairs that may be tried; while enough are being tried, of no others."""
        found: dict[tuple[Kind, Kind, str], float] = {}
        names = sorted({kind.learned for kind in kinds if not kind.alone})
        for gpu_type in types:
            known = [name for name in names if (name, gpu_type) in seen.uses]
            for pair in {veto(one, two, gpu_type) for one in known for two in names}:
                if pair in seen.vetoes or (len(tried) >= MOST_TRIALS and pair not in tried):
                    continue
                back = pair[1], pair[0], gpu_type
                if pair in tried:  # it goes on as it was begun, until it was measured
                    found[pair], found[back] = seen.guesses[pair], seen.guesses[back]
                elif ratios := self.believed(*pair, seen):
                    found[pair], found[back] = ratios
        if found != seen.guesses:
            seen.guesses = found
            seen.changes += 1

    def believed(self, one: Kind, two: Kind, gpu_type: str, seen: Seen) -> tuple[float, float] | None:
        """Speeds of both against alone, as guessed; None where they are not to be tried."""
        uses = [seen.uses.get((kind, gpu_type)) for kind in (one, two)]
        busy = [use.busy if use else UNSEEN_BUSY for use in uses]
        if sum(busy) > BUSY_LIMIT[self._share]:
            return None
        factors = fitted("mps" if self._share == "mps" else "time-sliced")
        first, second = (float(formula(u, v, factors)) * (1.0 + DOUBT) for u, v in (busy, busy[::-1]))
        return 1.0 / first, 1.0 / second


def kept_uses(seen: Seen) -> list[list[Any]]:
    """What was seen, as plain data."""
    return [[list(kind), gpu_type, use.busy, use.gib] for (kind, gpu_type), use in sorted(seen.uses.items())]


def recalled_uses(rows: Iterable[Sequence[Any]]) -> dict[tuple[Kind, str], Use]:
    """The inverse."""
    return {((str(kind[0]), int(kind[1])), gpu_type): Use(busy, gib) for kind, gpu_type, busy, gib in rows}
