"""What a policy sees: the active jobs as read-only columns. Beliefs, never truth."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cotenant.core import columns as col
from cotenant.core.deadlines import Steps, strict_steps
from cotenant.core.stages import Stages
from cotenant.core.state import State
from cotenant.core.together import Together
from cotenant.core.training import Training
from cotenant.core.workload import Floats, Ints

# Columns that the engine computes for the view in one go.
V_REMAINING, V_ATTAINED, V_WAITED, V_RUNNING, V_PROGRESS = range(5)
VIEW_COLUMNS = 5


def rates_of(state: State, rows: Ints) -> NDArray[np.float64]:
    """Rows x pools: seconds of work per second when consolidated there; 0 where a job cannot or may not run."""
    allowed = state.cls[state.i[rows, col.CLASS], col.C_POOLS]
    open_ = (allowed[:, None] >> np.arange(len(state.pool))[None, :]) & 1
    return np.asarray(state.speed[state.i[rows, col.SPEED_ROW]][:, state.pool[:, col.POOL_TYPE], 0] * open_)


@dataclass(frozen=True, slots=True)
class Facts:
    """What does not change during a run: the pools, what GPUs cost, how well kinds of jobs share, who is who."""

    pool_types: tuple[str, ...] = ()
    pool_prices: Floats = field(default_factory=lambda: np.zeros(0))
    pair: NDArray[np.float64] | None = None  # kind x kind x GPU type: speed of the first beside the second
    ident: Ints | None = None  # row -> a number that stays with the job; None: the row itself
    coming: NDArray[np.bool_] | None = None  # row -> given GPUs that it does not have yet; None: nobody waits for any
    stages: Stages | None = None  # stage times of jobs, where they are known
    together: Together | None = None  # what is believed of jobs that share GPUs
    rates: NDArray[np.float64] | None = None  # `rates_of` all rows, where somebody has worked them out
    steps: Steps | None = None  # deadline steps of all rows; None: the deadlines as strict ones
    elastic: NDArray[np.bool_] | None = None  # row -> whether it may change its size; None: nobody may
    training: Training | None = None  # what elastic jobs have told of themselves
    sizes: Ints | None = None  # row x (fewest, most) GPUs of elastic jobs; None: any number


@dataclass(frozen=True, slots=True)
class View:
    """Active jobs (waiting and running) at one moment; all arrays are in step with `rows`.

    Arrays are copies: writing to them changes nothing. Times are seconds.
    """

    now_s: float
    rows: Ints  # which jobs: rows of the workload, the tie-break of last resort
    computed: NDArray[np.float64]
    state: State
    facts: Facts = field(default_factory=Facts)
    _kept: dict[str, Any] = field(default_factory=dict)

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
    def steps(self) -> Steps:
        """Deadline steps of each job and what they are worth."""
        known = self.facts.steps
        return strict_steps(self.deadline_s) if known is None else known.take(self.rows)

    @property
    def asked_gpus(self) -> Ints:
        """GPUs that each job asked for, whatever it runs on now."""
        return np.asarray(self.state.cls[self._ints(col.CLASS), col.C_GPUS], np.int64)

    @property
    def restore_s(self) -> Floats:
        """Seconds that stopping and restoring each job takes."""
        return self._floats(col.RESTORE)

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

    @property
    def ident(self) -> Ints:
        """A number per job that stays with it for ever, also when rows are laid out anew."""
        return self.rows if self.facts.ident is None else np.asarray(self.facts.ident[self.rows], np.int64)

    @property
    def weight(self) -> Floats:
        """Share of each job against others; 1 unless its source says otherwise."""
        return self._floats(col.WEIGHT)

    @property
    def steps_per_s(self) -> Floats:
        """Steps per second of work; 1 where nobody knows."""
        return self._floats(col.STEPS)

    @property
    def kind(self) -> Ints:
        """Kind of each job: jobs of one kind run alike (same model, same GPU count)."""
        return self._ints(col.SPEED_ROW)

    @property
    def pool_gpus(self) -> Ints:
        """GPUs per pool (one GPU type of one partition) on nodes that are up."""
        node = self.state.node
        return np.bincount(node[:, col.NODE_POOL], node[:, col.NODE_CAP], len(self.state.pool)).astype(np.int64)

    @property
    def pool_types(self) -> tuple[str, ...]:
        """GPU type of each pool."""
        return self.facts.pool_types

    @property
    def pool_prices(self) -> Floats:
        """Money per GPU-hour in each pool."""
        return self.facts.pool_prices

    @property
    def rates(self) -> NDArray[np.float64]:
        """Jobs x pools: seconds of work per second when consolidated there; 0 where a job cannot or may not run."""
        if "rates" not in self._kept:
            known = self.facts.rates
            self._kept["rates"] = rates_of(self.state, self.rows) if known is None else known[self.rows]
        return np.asarray(self._kept["rates"])

    @property
    def pair_rates(self) -> NDArray[np.float64] | None:
        """Kind x kind x pool: rate of the first beside the second on the same GPUs; 0 where they cannot share."""
        pair = self.facts.pair
        return None if pair is None else pair[:, :, self.state.pool[:, col.POOL_TYPE]]

    @property
    def pool(self) -> Ints:
        """Pool in which each job runs; -1 for those that wait."""
        state, head = self.state, self._ints(col.SLICE)
        node = state.slices[np.maximum(head, 0), col.SLICE_NODE]
        return np.where(head >= 0, state.node[node, col.NODE_POOL], -1).astype(np.int64)

    @property
    def gpu_users(self) -> NDArray[np.int64]:
        """GPUs x places: rows of the jobs on each GPU, -1 for nobody; no rows unless GPUs are shared."""
        return self.state.gpu.copy()

    @property
    def slowdown(self) -> Floats:
        """How much longer an iteration of each running job takes now than without company; 1 for the others."""
        speed, alone = self._floats(col.SPEED), self._floats(col.ALONE)
        return np.where(self.running & (speed > 0), alone / np.where(speed > 0, speed, 1.0), 1.0)

    @property
    def host_row(self) -> Ints:
        """Row of the job on whose GPUs each job is a guest; -1 for all others."""
        return self._ints(col.HOST)

    def size_limits(self, rows: Ints) -> tuple[Ints, Ints]:
        """Fewest and most GPUs that elastic jobs take."""
        known = self.facts.sizes
        if known is None:
            return np.ones(len(rows), np.int64), np.full(len(rows), self.cluster_gpus, np.int64)
        return np.maximum(known[rows, 0], 1), known[rows, 1]

    def _floats(self, column: int) -> Floats:
        return np.asarray(self.state.f[self.rows, column], np.float64)

    def _ints(self, column: int) -> Ints:
        return np.asarray(self.state.i[self.rows, column], np.int64)

    def placement(self, row: int) -> tuple[tuple[int, int], ...]:
        """(node, GPUs) pairs that a running job holds."""
        pairs, at = [], int(self.state.i[row, col.SLICE])
        while at >= 0:
            node, gpus, following, _ = self.state.slices[at]
            pairs.append((int(node), int(gpus)))
            at = int(following)
        return tuple(pairs)

    def places(self, row: int) -> tuple[tuple[int, int, int], ...]:
        """(node, GPUs, mask of GPUs of the node) of a running job; masks are 0 unless GPUs are shared."""
        found, at = [], int(self.state.i[row, col.SLICE])
        while at >= 0:
            node, gpus, following, mask = self.state.slices[at].tolist()
            found.append((node, gpus, mask))
            at = following
        return tuple(found)
