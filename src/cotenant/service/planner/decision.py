"""What a decision of the planner is for the service: a value that the executor carries out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, isfinite, nan
from typing import Any, NamedTuple

from cotenant.core.plan import ALONE, Terms
from cotenant.journal import Entry
from cotenant.service.store.job import Gpus


@dataclass(frozen=True, slots=True)
class Act:
    """One transition of one job.

    `kind` is start, stop, suspend, resume, end (a suspended job is killed, for its GPUs are not to be had), terms
    or pause.
    `gpus` are those of a start, by index; they are free by now. `why` says for what a job is stopped, suspended or
    ended: preempt, turn, resize, move or split. `need_gib` is the memory per GPU on these terms, 0 as the job asks.
    `pause` has a job stand still for `seconds` between two steps, so that the one beside it (`why`) can be measured.
    `gain_s` and `cost_s` are those of an order's stop, as in `Transition`.
    """

    kind: str
    job: str
    gpus: Gpus = ()
    why: str = ""
    terms: Terms = ALONE
    need_gib: float = 0.0
    seconds: float = 0.0
    gain_s: float = nan
    cost_s: float = nan

    @property
    def weighed(self) -> dict[str, float]:
        """What is journaled of that: numbers only."""
        known = {"gain_s": self.gain_s, "cost_s": self.cost_s}
        return {name: round(value, 3) for name, value in known.items() if isfinite(value)}


class Ahead(NamedTuple):
    """A start ahead of its GPUs: which ones, and at what place of its start the process waits for them."""

    gpus: Gpus
    place: str


@dataclass(frozen=True, slots=True)
class LiveDecision:
    """Acts, and when to decide again if nothing happens before.

    `promised` are all jobs that will start on these GPUs when others have left. `ahead` are all jobs of which a process
    shall wait for GPUs that others still have; None: as it is. `remembered` is what must outlive a
    crash, by key: keys that are not named stay as they are, None removes one. Both are journaled where they changed.
    `notes` are for people to read in the stories of jobs, or say how many replicas a service should have. `lines` are
    all groups whose stages take turns, in this order; None: as it is. `told` is what the policy has told jobs with
    deadlines.
    """

    at_s: float
    policy: str
    acts: tuple[Act, ...] = ()
    next_s: float = inf
    promised: Mapping[str, Gpus] = field(default_factory=dict)
    remembered: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[Entry, ...] = ()
    ahead: Mapping[str, Ahead] | None = None
    lines: tuple[tuple[str, ...], ...] | None = None
    told: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class Access(NamedTuple):
    """Labels of nodes that are open to a job, and the one for which it does not wait behind others: it is reserved."""

    labels: tuple[str, ...] = ()
    line: str = ""
