"""Who belongs to a job: every living process in its fence, below its keeper, or, without keeper, with its mark."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable

from cotenant.backends.local import cgroups, procs
from cotenant.backends.local.records import KeeperRecord

_ROUNDS = 1000  # a job may fork while it is being killed, but not for ever


def of(record: KeeperRecord, label: str) -> set[int]:
    """Every living process of the job; `label` is that of the state directory."""
    child = record.child()
    if child is None or child.boot != procs.boot_id():
        return set()
    found: set[int] = set()
    if track := record.cgroups().get("track"):
        found |= cgroups.members(track)
    if procs.is_process(child.keeper, child.keeper_ticks):
        found |= procs.descendants(child.keeper)
    else:
        found |= procs.marked(f"COTENANT_MARK={label}/{record.key}".encode())
        if procs.is_process(child.pid, child.ticks):  # between fork and exec it does not carry the mark yet
            found |= {child.pid} | procs.descendants(child.pid)
    return {pid for pid in found if procs.state_of(pid) not in "ZX"}


def signal_group(record: KeeperRecord, label: str, number: signal.Signals) -> bool:
    """Signal the job's process group; whether anybody was told."""
    child = record.child()
    if child is None:
        return False
    told = False
    if procs.is_process(child.pid, child.ticks):
        with contextlib.suppress(OSError):
            os.killpg(child.pid, number)
            return True
    for pid in of(record, label):  # the leader is gone, its group is not; or the leader has no group yet
        told |= procs.send(pid, number, lambda p: p == child.pid or procs.group_of(p) == child.pid)
    return told


def kill(record: KeeperRecord, label: str, watch: Callable[[int], None]) -> bool:
    """SIGKILL until a look finds nobody new; `watch` hears of each. False when there is no end of it."""
    track = record.cgroups().get("track")
    done: set[int] = set()
    for _ in range(_ROUNDS):
        if track is not None:
            cgroups.kill(track)
        new = of(record, label) - done
        if not new:
            return True
        for pid in new:
            watch(pid)
            procs.send(pid, signal.SIGKILL, lambda p: p in of(record, label))
        if track is not None:
            cgroups.freeze(track, False)  # in v1 the frozen cannot die
        done |= new
    return False


def stop(record: KeeperRecord, label: str) -> bool:
    """SIGSTOP until all stand still: a signal takes a moment to arrive, and meanwhile the job may fork."""
    for _ in range(_ROUNDS):
        mine = of(record, label)
        moving = {pid for pid in mine if procs.state_of(pid) not in "TZX"}
        if not moving:
            return bool(mine)
        for pid in moving:
            procs.send(pid, signal.SIGSTOP, lambda p: p in of(record, label))
        select.select([], [], [], 0.001)
    return False


def suspended(record: KeeperRecord) -> bool:
    """Whether its fence is frozen or its first process stopped."""
    track, child = record.cgroups().get("track"), record.child()
    frozen = track is not None and cgroups.is_frozen(track)
    return frozen or (child is not None and procs.state_of(child.pid) == "T")
