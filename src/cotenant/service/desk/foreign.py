"""Jobs that others make in the engine where jobs run: taken into the journal like those that are submitted here.

They are nobody's to stop but their owners': they are not preemptible. One that its owner takes back while it waits is
cancelled; one that is cancelled here is let go.
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress

from cotenant.backends.base import Backend
from cotenant.backends.foreign import ForeignJob, TakesForeign
from cotenant.core.errors import CotenantError
from cotenant.core.jobspec import JobSpec
from cotenant.core.lifecycle import JobState
from cotenant.service.desk.desk import Desk
from cotenant.service.facade import Caller, Conflict, Role, Unavailable
from cotenant.service.store.store import Store

_log = logging.getLogger(__name__)
_MOST = 500  # that are taken in at one look
_TAKEN_BACK_S = 3.0  # what is not offered for so long was taken back, and not only about to be launched


class ForeignJobs:
    """Looked at by the scheduler's thread; nothing to do for backends that have none."""

    def __init__(self, store: Store, backend: Backend, desk: Desk) -> None:
        self._store, self._desk = store, desk
        self._backend = backend if isinstance(backend, TakesForeign) else None
        self._known = {job.spec.foreign: job.id for job in store.book.jobs.values() if job.spec.foreign}
        self._refused: set[str] = set()
        self._missed_s: dict[str, float] = {}  # of those that wait: since when they are not offered any more
        self._who = Caller("foreign", Role.ADMIN)

    def look(self) -> None:
        """Take in what is new, cancel what was taken back, let go of what was cancelled."""
        if self._backend is None:
            return
        offers = {one.name: one for one in self._backend.offered()}
        new = [one for name, one in offers.items() if name not in self._known and name not in self._refused]
        for offer in new[:_MOST]:
            self._take(offer)
        self._refused &= offers.keys()
        self._follow(self._backend, offers)

    def _take(self, offer: ForeignJob) -> None:
        name = re.sub(r"[^\w.-]", "-", offer.name.partition("/")[0])[:63] or "job"
        spec = JobSpec(
            run=offer.text, name=name, gpus=offer.gpus, gpu_type=offer.gpu_type, cpus=offer.cpus,
            mem_gib=offer.mem_gib, tenant=offer.tenant, preemptible=False, movable=False, foreign=offer.name,
        )  # fmt: skip
        try:
            ((job,),) = self._desk.submit(self._who, [spec], f"foreign/{offer.name}", offer.name)
        except Unavailable:
            raise
        except CotenantError as error:
            self._refused.add(offer.name)
            _log.warning("%s is left alone: %s", offer.text, error)
            return
        self._known[offer.name] = job

    def _follow(self, backend: TakesForeign, offers: dict[str, ForeignJob]) -> None:
        book, now_s = self._store.book, self._store.clock()
        for name, job_id in list(self._known.items()):
            job = book.jobs.get(job_id)
            waits = job is not None and job.state == JobState.PENDING
            if job is None:
                del self._known[name]
            elif job.finished and name in offers:
                backend.decline(name)
            elif waits and name not in offers and now_s - self._missed_s.setdefault(name, now_s) > _TAKEN_BACK_S:
                with suppress(Conflict):
                    self._desk.cancel(self._who, job_id)
            if not waits or name in offers:
                self._missed_s.pop(name, None)
