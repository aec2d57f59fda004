"""What a policy sees: the active jobs as read-only columns. Beliefs, never truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cotenant.core import columns as col
from cotenant.core.state import State
from cotenant.core.workload import Floats, Ints

# Columns that the engine computes for the view in one go.
V_REMAINING, V_ATTAINED, V_WAITED, V_RUNNING, V_PROGRESS = range(5)
VIEW_COLUMNS = 5


@dataclass(frozen=True, slots=True)
class View:
    """Active jobs (waiting and running) at one moment; all arrays are in step with `rows`.

    Arrays are copies: writing to them changes nothing. Times are seconds.
    """

    now_s: float
    rows: Ints  # which jobs: rows of the workload, the tie-break of last resort
    computed: NDArray[np.float64]
    state: State

    @property
    def gpus(self) -> Ints:
        """GPUs that each job asks for."""
        return self._ints(col.GPUS)

    @property
    def submit_s(self) -> Floats:
        """When each job arrived."""
        return self._floats(col.SUBMIT)

    @property
    def believed_s(self) -> Floats:
        """How long each job is believed to take in all, on the GPUs it asked for."""
        return self._floats(col.BELIEF)

    @property
    def remaining_s(self) -> Floats:
        """How long each job is believed to take from now on."""
        return np.asarray(self.computed[V_REMAINING])

    @property
    def attained_s(self) -> Floats:
        """Seconds in which each job has held its GPUs."""
        return np.asarray(self.computed[V_ATTAINED])

    @property
    def attained_gpu_s(self) -> Floats:
        """GPU-seconds that each job has held."""
        return np.asarray(self.computed[V_ATTAINED] * self.gpus)

    @property
    def waited_s(self) -> Floats:
        """Seconds in which each job has waited so far."""
        return np.asarray(self.computed[V_WAITED])

    @property
    def running(self) -> NDArray[np.bool_]:
        """Whether each job runs now."""
        return np.asarray(self.computed[V_RUNNING] > 0)

    @property
    def first_start_s(self) -> Floats:
        """First start of each job; NaN before it."""
        return self._floats(col.FIRST)

    @property
    def tenant(self) -> Ints:
        """Tenant of each job, as a small number."""
        return self._ints(col.TENANT)

    @property
    def deadline_s(self) -> Floats:
        """Deadline of each job; NaN without one."""
        return self._floats(col.DEADLINE)

    @property
    def priority(self) -> Floats:
        """Priority that each job's owner gave it, 0 unless told; higher comes first, before any other order."""
        return -self._floats(col.TIER)

    @property
    def preemptions(self) -> Ints:
        """How often each job has been preempted."""
        return self._ints(col.PREEMPTS)

    @property
    def node_free_gpus(self) -> Ints:
        """Idle GPUs per node."""
        return np.array(self.state.node[:, col.NODE_FREE], np.int64)

    @property
    def cluster_gpus(self) -> int:
        """GPUs on nodes that are up."""
        return int(self.state.node[:, col.NODE_CAP].sum())

    def _floats(self, column: int) -> Floats:
        return np.asarray(self.state.f[self.rows, column], np.float64)

    def _ints(self, column: int) -> Ints:
        return np.asarray(self.state.i[self.rows, column], np.int64)

    def placement(self, row: int) -> tuple[tuple[int, int], ...]:
        """(node, GPUs) pairs that a running job holds."""
        pairs, at = [], int(self.state.i[row, col.SLICE])
        while at >= 0:
            node, gpus, following = self.state.slices[at]
            pairs.append((int(node), int(gpus)))
            at = int(following)
        return tuple(pairs)
