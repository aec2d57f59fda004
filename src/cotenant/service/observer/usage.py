"""What GPUs and jobs use, sampled beside the scheduler: nothing of it is waited for in a decision."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Collection, Iterable, Sequence

from cotenant.backends.base import Backend, BackendError, GpuUse, JobUse, Measures, Unreachable
from cotenant.service.store.job import LiveJob, cells

SAMPLE_S = 0.5
_log = logging.getLogger(__name__)


class Usage:
    """The newest sample. Taken by one thread, or by whoever moves virtual time; read from any."""

    def __init__(self, backend: Backend | None = None) -> None:
        self._backend = backend if isinstance(backend, Measures) else None
        self._at: dict[tuple[str, int], GpuUse] = {}

    def sample(self) -> bool:
        """Take one; whether anything is known here at all."""
        if self._backend is None:
            return False
        self.take(self._backend.gpu_use())
        return bool(self._at)

    def take(self, gpus: Iterable[GpuUse]) -> None:
        """This is what they use now."""
        self._at = {(gpu.node, gpu.index): gpu for gpu in gpus}

    @property
    def gpus(self) -> Collection[GpuUse]:
        """All that are known."""
        return self._at.values()

    def of(self, job: LiveJob, alone: bool) -> JobUse | None:
        """What an attempt uses on the busiest of its GPUs: by its own processes, or all that is used where it is alone.

        None where not all of its GPUs are known, or where others are there and nobody can tell whose it is.
        """
        known, mine = self._at, list(cells(job.last.devices))
        if not mine or not known.keys() >= set(mine):
            return None
        parts = [self._part(known[cell], job.key, alone) for cell in mine]
        if any(math.isnan(part.busy) for part in parts):
            return None
        return JobUse(job.key, max(part.busy for part in parts), max(part.used_gib for part in parts))

    @staticmethod
    def _part(gpu: GpuUse, key: str, alone: bool) -> JobUse:
        if alone:
            return JobUse(key, gpu.busy, gpu.used_gib)
        own = next((use for use in gpu.jobs if use.key == key), None)
        return own if own is not None else JobUse(key, math.nan, 0.0)

    def on(self, node: str) -> Sequence[GpuUse]:
        """The GPUs of a node, as far as known."""
        return [gpu for gpu in self.gpus if gpu.node == node]


class Sampler:
    """The thread that takes samples; it ends by itself where there is nothing to know."""

    def __init__(self, usage: Usage) -> None:
        self._usage, self._ending = usage, threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu-use", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                if not self._usage.sample():
                    return
            except Unreachable:  # the scheduler says so
                pass
            except (BackendError, OSError) as error:
                _log.warning("what GPUs use is not known any more: %s", error)
                return
            self._ending.wait(SAMPLE_S)

    def stop(self) -> None:
        """End."""
        self._ending.set()
        self._thread.join(timeout=10)
