"""Arithmetic of leases: how many a job needs, and which of them end before a deadline (Chronus, SoCC'21).

Time is cut into leases of `lease_s` seconds. Slot k of a plan made for lease `first` covers the seconds
[(first + k) lease_s, (first + k + 1) lease_s).
"""

from __future__ import annotations

import numpy as np

from cotenant.core.workload import Floats, Ints

HEAD_ROOM = 1.1  # estimates are taken so much longer than believed
MOST_SLOTS = 5000  # that are looked ahead: later deadlines count as that one
NEVER = MOST_SLOTS + 1  # more leases than anybody is promised
_MINUTE_S = 60.0
_EPSILON = 1e-9


def estimate_s(duration_s: Floats, restore_s: Floats, lease_s: float) -> Floats:
    """Time to reserve: what a job is believed to take, one stop per lease, and 10 % more; in whole minutes.

    `restore_s` is what a stop costs (the authors: 0.5 (1 + log2 GPUs) minutes).
    """
    reserved = np.asarray(duration_s) * (1.0 + np.asarray(restore_s) / lease_s) * HEAD_ROOM
    return np.asarray(np.maximum(np.floor(reserved / _MINUTE_S + _EPSILON) * _MINUTE_S, duration_s))


def leases_needed(left_s: Floats, lease_s: float) -> Ints:
    """Leases that so many seconds of work fill, at least one."""
    return np.maximum(np.ceil(np.asarray(left_s) / lease_s - _EPSILON), 1.0).astype(np.int64)


def leases_for(work_s: Floats, stop_s: Floats, lease_s: float) -> Ints:
    """Leases for so much work and 10 % more if each one loses what a stop costs; `NEVER` where that is all of it."""
    useful_s = lease_s - np.asarray(stop_s)
    need = HEAD_ROOM * np.asarray(work_s) / np.where(useful_s > 0, useful_s, 1.0)
    return np.where(useful_s > 0, np.minimum(leases_needed(need * lease_s, lease_s), NEVER), NEVER)


def slots_before(deadline_s: np.ndarray, first: int, lease_s: float) -> np.ndarray:
    """Slots from lease `first` on that end by a deadline; 0 where none does or there is no deadline."""
    ends = np.floor(np.nan_to_num(deadline_s, nan=-np.inf, neginf=-1e18, posinf=1e18) / lease_s + _EPSILON)
    return np.asarray(np.clip(ends - first, 0, MOST_SLOTS), np.int64)


def lease_at(now_s: float, lease_s: float) -> int:
    """Index of the lease that covers a moment."""
    return int(np.floor(now_s / lease_s + _EPSILON))


def next_lease(now_s: float, lease_s: float) -> int:
    """Index of the next lease that can still be assigned: one that begins now counts."""
    return int(np.ceil(now_s / lease_s - _EPSILON))


def whole_share(gpus: Ints, node_gpus: int) -> Ints:
    """GPUs to reserve: up to a node rounded up to a power of two, so that reserved gangs always pack (SoCC'21).

    Nodes that are no power of two are taken as they are.
    """
    asked = np.asarray(gpus, np.int64)
    if node_gpus & (node_gpus - 1):
        return asked
    power = (2 ** np.ceil(np.log2(np.maximum(asked, 1)))).astype(np.int64)
    return np.where(asked <= node_gpus, power, asked)


def in_words(seconds: float) -> str:
    """A time for people who write it into a deadline: never less than it is."""
    whole = int(np.ceil(seconds - _EPSILON))
    return f"{whole} s" if whole < 120 else f"{-(-whole // 60)} min"
