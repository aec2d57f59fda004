"""Jobs side by side: what they do to each other, who has to leave because of it, who may be put together next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from cotenant.beliefs.live_profiles import LiveProfiles
from cotenant.beliefs.pairing import Pairing, Split, guests_of
from cotenant.beliefs.training import Trainings
from cotenant.beliefs.trying import SeenUse, Trying
from cotenant.core.lifecycle import JobState
from cotenant.core.traits import Traits
from cotenant.service.observer.reports import Reports
from cotenant.service.planner.decision import Act
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

    def apart(self) -> Kept:
        """The same for somebody who plays forward while this goes on being measured."""
        profiles = LiveProfiles(self.profiles.profile, self.profiles.types, self.profiles.gpu_gib)
        return Kept(profiles, self.pairing.copy())


class SideBySide:
    """One look after the other at the jobs that have GPUs. `splits` are pairs that were just seen not to pay."""

    def __init__(
        self, book: Book, reports: Reports, kept: Kept, types: Mapping[str, str], traits: Traits, use_of: UseOf
    ) -> None:
        self._book, self._reports, self._kept, self._types = book, reports, kept, types
        self._traits, self._use_of = traits, use_of
        self._offered: object = None  # for which state of things pairs were offered last
        self.splits: list[Split] = []

    def look(self, now_s: float, paced: Collection[str]) -> None:
        """Take in what jobs say of their steps and are seen to use; `paced` are held back between steps."""
        kept, book = self._kept, self._book
        pairing = kept.pairing
        if not (self._traits.shares or book.shared_gpus or pairing.company):
            return
        running = [job for job in book.on_gpus.values() if job.state == JobState.RUNNING]
        self.splits = pairing.look(running, self._reports.of, self._types, now_s, paced)
        pairing.forget_but(book.active)
        if kept.trying is not None:
            self._try(kept.trying, running)

    def _try(self, trying: Trying, running: list[LiveJob]) -> None:
        pairing, profiles = self._kept.pairing, self._kept.profiles
        uses = {job.id: self._use_of(job, job.id not in pairing.company) for job in running}
        seen = pairing.seen
        trying.watch(running, uses, pairing, seen)
        state = len(profiles.kinds), seen.changes, seen.vetoes, pairing.tried
        if state != self._offered:
            trying.offer(profiles.kinds, profiles.types, seen, pairing.tried)
            self._offered = len(profiles.kinds), seen.changes, seen.vetoes, pairing.tried

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
