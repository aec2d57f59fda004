"""Jobs side by side: what they do to each other, who has to leave because of it, who may be put together next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cotenant.backends.base import JobUse
from cotenant.beliefs.live_profiles import LiveProfiles, veto
from cotenant.beliefs.pairing import Pairing, Split, guests_of
from cotenant.beliefs.training import Trainings
from cotenant.beliefs.trying import SeenUse, Trying
from cotenant.beliefs.watched import learned_kind
from cotenant.core import columns as col
from cotenant.core.declared import Oversubscription
from cotenant.core.lifecycle import JobState
from cotenant.core.traits import Traits
from cotenant.engine.live_rows import LiveRows
from cotenant.journal import Entry
from cotenant.service.observer.reports import Reports
from cotenant.service.options import Options
from cotenant.service.planner.decision import Act
from cotenant.service.planner.durations import LiveDurations
from cotenant.service.store.book import Book
from cotenant.service.store.job import LiveJob

UseOf = Callable[[LiveJob, bool], SeenUse | None]
"""What a job uses of its GPUs; whether it is alone there."""


@dataclass(slots=True)
class Kept:
    """What outlives a change of policy: what was measured, and speeds that were looked up."""

    profiles: LiveProfiles
    pairing: Pairing = field(default_factory=Pairing)
    trainings: Trainings = field(default_factory=Trainings)
    trying: Trying | None = None  # None: what may be tried stays as it is
    durations: LiveDurations | None = None  # None: not asked yet

    def apart(self) -> Kept:
        """The same for somebody who plays forward while this goes on being measured."""
        known = self.profiles
        profiles = LiveProfiles(known.profile, known.types, known.gpu_gib, known.rule)
        return Kept(profiles, self.pairing.copy(), durations=self.durations)


def kept_for(kept: Kept | None, options: Options, types: Sequence[str], gpu_gib: Mapping[str, float]) -> Kept:
    """What outlives the last session, with profiles for the GPU types that there are now."""
    if kept is not None and kept.profiles.types == types:
        return kept
    rule = Oversubscription.parse(options.oversubscribe)
    fresh = LiveProfiles(options.profile, types, gpu_gib, rule)
    return Kept(fresh) if kept is None else replace(kept, profiles=fresh)


def held_back(book: Book, tables: LiveRows, row_of: Mapping[str, int], pairing: Pairing) -> set[str]:
    """Jobs that are held back between their steps, or will be if they do harm: guests of a guaranteed job."""
    f, i, beside = tables.state.f, tables.state.i, pairing.company
    known = book.on_gpus.keys() & row_of.keys()
    spare = {job for job in known if i[row_of[job], col.OPPORTUNISTIC]}
    held = {job for job in known if f[row_of[job], col.SHARE] < 1}
    return held | {job for job in spare if any(one.id not in spare for one in beside.get(job, ()))}


class SideBySide:
    """One look after the other at the jobs that have GPUs. `splits` are pairs that were just seen not to pay."""

    def __init__(
        self, book: Book, reports: Reports, kept: Kept, types: Mapping[str, str], traits: Traits, use_of: UseOf
    ) -> None:
        self._book, self._reports, self._kept, self._types = book, reports, kept, types
        self._traits, self._use_of = traits, use_of
        self._learns_types = traits.names_pools and len(set(types.values())) > 1
        self._offered: object = None  # for which state of things pairs were offered last
        self._told: set[tuple[str, str]] = set()  # attempts side by side, of which people were told
        self.splits: list[Split] = []

    def look(self, now_s: float, paced: Callable[[], Collection[str]]) -> None:
        """Take in what jobs say of their steps and are seen to use; `paced`: who is held back between steps."""
        kept, book = self._kept, self._book
        pairing, self.splits = kept.pairing, []
        if not (self._traits.shares or self._learns_types or book.shared_gpus or pairing.company):
            return
        running = [job for job in book.on_gpus.values() if job.state == JobState.RUNNING]
        self.splits = pairing.look(running, self._reports.of, self._types, now_s, paced())
        self._reports.look_again(pairing.moved)
        pairing.forget_but(book.active)
        if kept.trying is not None:
            self._try(kept.trying, running)

    def _try(self, trying: Trying, running: list[LiveJob]) -> None:
        pairing, profiles = self._kept.pairing, self._kept.profiles
        uses = {job.id: self._use(job, job.id not in pairing.company) for job in running}
        seen = pairing.seen
        trying.watch(running, uses, pairing, seen)
        state = len(profiles.kinds), seen.changes, seen.vetoes, pairing.tried
        if state != self._offered:
            trying.offer(profiles.kinds, profiles.types, seen, pairing.tried)
            self._offered = len(profiles.kinds), seen.changes, seen.vetoes, pairing.tried

    def _use(self, job: LiveJob, alone: bool) -> SeenUse | None:
        """What a job uses of its GPUs by the driver; where that does not tell, how busy the job says it is."""
        found, report = self._use_of(job, alone), self._reports.of(job.id)
        if found is None and report is not None and report.busy > 0:
            return JobUse(job.key, report.busy, 0.0)
        return found

    def notes(self) -> Iterator[Entry]:
        """For people to read in the stories of jobs: who is tried beside whom, and who is parted as it did not pay.

        `believed` is the speed against alone that was guessed.
        """
        pairing, told = self._kept.pairing, self._told
        self._told = set()
        beside = [(job, one) for job, others in pairing.company.items() for one in others] if pairing.tried else []
        for name, other in beside:
            job, gpu_type = self._book.on_gpus[name], pairing.gpu_type[name]
            kinds, pair = (learned_kind(job), learned_kind(other)), (job.key, other.key)
            if veto(*kinds, gpu_type) in pairing.tried:
                self._told.add(pair)
                if pair not in told:
                    guess = pairing.seen.guesses[(*kinds, gpu_type)]
                    yield Entry("try", name, {"beside": other.id, "believed": round(guess, 3)})
        for split in self.splits:
            for one, two in ((split.one, split.two), (split.two, split.one)):
                yield Entry("split", one, {"beside": two, "worth": round(split.worth, 3)})

    def standstills(self) -> list[Act]:
        """Jobs that are to stand still for a moment, so that those beside them can be measured."""
        return [Act("pause", one.job, why=one.other, seconds=one.seconds) for one in self._kept.pairing.standstills()]

    def partings(self) -> list[str]:
        """Jobs that must not stay with those beside them: no policy would say so.

        Guests under a policy that does not share, or cannot say that they have some of the GPUs of a host only; and the
        younger of a pair that does not pay, where the policy never stops what it has started.
        """
        traits, on_gpus = self._traits, self._book.on_gpus
        if traits.names_gpus:
            pairs = [(on_gpus[one.one], on_gpus[one.two]) for one in self.splits] if not traits.undoes else []
            return [max(pair, key=lambda job: (job.last.launched_s, job.order)).id for pair in pairs]
        guests = guests_of(on_gpus.values()) if self._book.shared_gpus else {}
        return [job for job, host in guests.items() if not traits.shares or on_gpus[job].last.gpus != host.last.gpus]
