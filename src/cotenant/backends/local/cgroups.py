"""Control groups, as far as this machine lets us: limits, freezing, and a fence that no process can leave.

A job's groups are made below our own one, so that every limit the service itself lives under also holds for its
jobs. Version 2 serves everything from one directory; version 1 has one per controller; many machines run both, and
there the fence is taken from version 2 (it can kill atomically) and the limits from version 1.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
from dataclasses import dataclass, field
from pathlib import Path

from cotenant.backends.local.keeper_files import put, text_of

PERIOD_US = 100_000
GIB = 1 << 30
_V1_ROLES = {"freezer": "track", "memory": "memory", "cpu": "cpu"}
_V1_APART = {"pids": "pids", "devices": "devices"}


@dataclass(frozen=True, slots=True)
class Cgroups:
    """The directories under which a job's groups are made, by role: `track` (the fence), `memory`, `cpu`.

    Where tenants are kept apart also `pids` and, in version 1, `devices`.
    """

    parents: dict[str, Path] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def paths(self, name: str) -> dict[str, str]:
        """The directory of each role for one job."""
        return {role: str(parent / name) for role, parent in self.parents.items()}


def find(apart: bool = False) -> Cgroups:
    """Probe what can be created here, by creating and removing it; `apart`: what keeps tenants apart, too."""
    parents: dict[str, Path] = {}
    notes: list[str] = []
    ours = own_groups()
    for controller, role in (_V1_ROLES | (_V1_APART if apart else {})).items():
        if (parent := ours.get(controller)) is None:
            continue
        if _probe(parent) is not None:
            parents[role] = parent
        else:
            notes.append(f"cgroup v1 {controller}: {parent} is not writable")
    if "" in ours:
        roles, parent = _find_v2(ours[""], apart)
        parents.update(dict.fromkeys(roles, parent))
        if missing := {"track", "memory", "cpu"} - parents.keys():
            hint = "under systemd, Delegate=yes and DelegateSubgroup= open it"
            notes.append(f"cgroup v2: {parent} gives no {', '.join(sorted(missing))} ({hint})")
    return Cgroups(parents, tuple(notes))


def own_groups(mounts: str = "/proc/self/mounts", own: str = "/proc/self/cgroup") -> dict[str, Path]:
    """The groups we are in ourselves: by controller for version 1, under '' for version 2."""
    mine = {name: path for _, names, path in _split(own, ":", 2) for name in names.split(",")}
    groups: dict[str, Path] = {}
    for _, where, kind, options, *_ in _split(mounts, " ", 4):
        names = [""] if kind == "cgroup2" else options.split(",") if kind == "cgroup" else []
        for name in names:
            if name in mine:
                groups[name] = _below(where, mine[name])
    return groups


def memory_ceiling_gib() -> float:
    """The limit on our own memory, and so on that of all jobs together."""
    ours = own_groups()
    values = [text_of(str(ours[""] / "memory.max"))] if "" in ours else []
    values += [text_of(str(ours["memory"] / "memory.limit_in_bytes"))] if "memory" in ours else []
    return min((int(value) / GIB for value in values if value.strip().isdigit()), default=math.inf)


def _split(path: str, by: str, times: int) -> list[list[str]]:
    return [line.split(by, times) for line in text_of(path).splitlines()]


def _below(mount: str, path: str) -> Path:
    full = Path(mount + path)
    return full if full.is_dir() else Path(mount)


def _find_v2(own: Path, apart: bool = False) -> tuple[list[str], Path]:
    """Our own group, or the one above it where that was handed to us.

    A group with processes in it cannot pass controllers on (v2 rule), so a service with `Delegate=yes` and
    `DelegateSubgroup=` sits in a leaf, and its jobs belong beside it. Elsewhere the group above is not ours: the
    jobs would leave the limits that we live under.
    """
    best: tuple[list[str], Path] = ([], own)
    for parent in (own, own.parent):
        if not (parent / "cgroup.procs").exists() or (parent != own and not _is_delegated(parent)):
            continue
        for controller in ("memory", "cpu", *(["pids"] if apart else [])):
            if controller not in text_of(str(parent / "cgroup.subtree_control")).split():
                with contextlib.suppress(OSError):
                    put(str(parent / "cgroup.subtree_control"), f"+{controller}")
        files = _probe(parent)
        if files is None:
            continue
        needs = {"track": "cgroup.freeze", "memory": "memory.max", "cpu": "cpu.max"}
        needs |= {"pids": "pids.max"} if apart else {}
        roles = [role for role, file in needs.items() if file in files]
        if len(roles) > len(best[0]):
            best = (roles, parent)
    return best


def _is_delegated(path: Path) -> bool:
    """Marked so by systemd, or simply an ordinary user's own."""
    for mark in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(path, mark) == b"1":
                return True
    return path.stat().st_uid == os.geteuid() != 0


def _probe(parent: Path) -> set[str] | None:
    """The files a new group has below this one; None when none can be made."""
    path = parent / f"cotenant.probe.{os.getpid()}"
    try:
        path.mkdir()
    except OSError:
        return None
    try:
        return set(os.listdir(path))
    finally:
        path.rmdir()


def limit_writes(paths: dict[str, str], cpu_share: float | None, mem_gib: float | None) -> list[tuple[str, str]]:
    """Which control file gets which value. The directories may not exist yet, so versions are told by the mount."""
    writes: list[tuple[str, str]] = []
    if mem_gib is not None and "memory" in paths:
        amount = None if math.isinf(mem_gib) else str(int(mem_gib * GIB))
        if is_v2(paths["memory"]):
            writes = [("memory.max", amount or "max"), ("memory.swap.max", "0" if amount else "max")]
            writes.append(("memory.oom.group", "1"))
        else:
            writes = [("memory.limit_in_bytes", amount or "-1"), ("memory.memsw.limit_in_bytes", amount or "-1")]
        writes = [(f"{paths['memory']}/{name}", value) for name, value in writes]
    if cpu_share is not None and "cpu" in paths:
        quota = None if math.isinf(cpu_share) else str(max(1000, int(cpu_share * PERIOD_US)))
        if is_v2(paths["cpu"]):
            writes.append((f"{paths['cpu']}/cpu.max", f"{quota or 'max'} {PERIOD_US}"))
        else:
            writes.append((f"{paths['cpu']}/cpu.cfs_quota_us", quota or "-1"))
    return writes


def apply_limits(paths: dict[str, str], cpu_share: float | None, mem_gib: float | None) -> bool:
    """Change limits of a living group. In v1 memory must stay below memory plus swap, whichever way both move."""
    writes = limit_writes(paths, cpu_share, mem_gib)
    for order in (writes, writes[::-1]):
        for path, value in order:
            with contextlib.suppress(OSError):
                put(path, value)
    required = [
        (path, value)
        for path, value in writes
        if not path.endswith(("memsw.limit_in_bytes", "memory.swap.max", "memory.oom.group"))
    ]
    return bool(required) and all(_holds(path, value) for path, value in required)


def _holds(path: str, value: str) -> bool:
    text = text_of(path).strip()
    if path.endswith("memory.limit_in_bytes") and value == "-1":
        return int(text or 0) > 1 << 60
    if path.endswith(("memory.limit_in_bytes", "memory.max")) and value != "max":
        return text.isdigit() and abs(int(text) - int(value)) < 1 << 16  # rounded to pages
    return text == value


def is_v2(path: str) -> bool:
    """Whether a group, existing or still to be made, belongs to the version 2 hierarchy."""
    return (Path(path).parent / "cgroup.subtree_control").exists()


def oom_file(paths: dict[str, str]) -> str | None:
    """Where the kernel counts processes it killed for memory."""
    if "memory" not in paths:
        return None
    return paths["memory"] + ("/memory.events" if is_v2(paths["memory"]) else "/memory.oom_control")


def members(path: str) -> set[int]:
    """Processes in the group."""
    return {int(pid) for pid in text_of(path + "/cgroup.procs").split()}


def freeze(path: str, frozen: bool) -> bool:
    """Stop or continue every process of the group, seen by none of them. Waits until all stand still."""
    try:
        if not is_v2(path):
            put(path + "/freezer.state", "FROZEN" if frozen else "THAWED")
            return not frozen or _settles_v1(path)
        put(path + "/cgroup.freeze", "1" if frozen else "0")
        return not frozen or _settles(path)
    except OSError:  # it may end, and its group with it, at any moment
        return False


def _settles(path: str) -> bool:
    events = os.open(path + "/cgroup.events", os.O_RDONLY | os.O_CLOEXEC)
    try:
        poller = select.poll()
        poller.register(events, select.POLLPRI)
        for _ in range(20):
            if b"frozen 1" in os.pread(events, 4096, 0):
                return True
            poller.poll(100)
    finally:
        os.close(events)
    return False


def _settles_v1(path: str) -> bool:
    """Version 1 tells nobody when the last process stands still: look until it does."""
    for _ in range(200):
        state = text_of(path + "/freezer.state").strip()
        if state != "FREEZING":
            return state == "FROZEN"
        select.select([], [], [], 0.01)
    return False


def is_frozen(path: str) -> bool:
    """Whether the group was asked to stand still."""
    return text_of(path + "/cgroup.freeze").strip() == "1" or text_of(path + "/freezer.state").strip() in (
        "FROZEN",
        "FREEZING",
    )


def kill(path: str) -> bool:
    """Kill the whole group at once where the kernel can (5.14 and v2); otherwise the caller goes one by one."""
    try:
        put(path + "/cgroup.kill", "1")
    except OSError:
        return False
    return True


def remove(paths: dict[str, str]) -> bool:
    """Remove the groups; False while one still has processes."""
    for path in set(paths.values()):
        try:
            os.rmdir(path)
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True
