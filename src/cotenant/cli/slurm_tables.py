"""Jobs and nodes of ours in Slurm's words: states, formats such as `%.18i %.8j %T`, columns of `sacct`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from cotenant.core.errors import InputError

if TYPE_CHECKING:
    from cotenant.service.facade import JobInfo, NodeStatus

UNFINISHED = ("pending", "starting", "running", "suspended", "stopping")
SQUEUE = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
SINFO = "%9P %.5a %.10l %.6D %.6t %N"
SINFO_NODES = "%N %.6D %.9P %6t"
SACCT = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
_PARTITION = "cotenant"
_STATES = {
    "pending": ("PENDING", "PD"), "starting": ("CONFIGURING", "CF"), "running": ("RUNNING", "R"),
    "suspended": ("SUSPENDED", "S"), "stopping": ("COMPLETING", "CG"), "succeeded": ("COMPLETED", "CD"),
    "failed": ("FAILED", "F"), "cancelled": ("CANCELLED", "CA"),
}  # fmt: skip
_NODE = {"up": "idle", "draining": "drng", "drained": "drain", "maintenance": "maint", "reserved": "resv",
         "asleep": "pow_dn", "waking": "pow_up", "down": "down"}  # fmt: skip
_HEADS = {
    "A": "JOBID", "a": "ACCOUNT", "b": "TRES_PER_NODE", "C": "CPUS", "D": "NODES", "e": "END_TIME", "F": "ARRAY_JOB_ID",
    "i": "JOBID", "j": "NAME", "K": "ARRAY_TASK_ID", "l": "TIME_LIMIT", "M": "TIME", "m": "MIN_MEMORY", "N": "NODELIST",
    "P": "PARTITION", "Q": "PRIORITY", "p": "PRIORITY", "R": "NODELIST(REASON)", "r": "REASON", "S": "START_TIME",
    "T": "STATE", "t": "ST", "u": "USER", "V": "SUBMIT_TIME", "G": "GRES", "c": "CPUS", "n": "HOSTNAMES",
}  # fmt: skip
_NODE_HEADS = {"a": "AVAIL", "l": "TIMELIMIT", "t": "STATE", "m": "MEMORY", "C": "CPUS(A/I/O/T)"}
_FIELD = re.compile(r"%(\.?)(\d*)([A-Za-z])")


def our_states(text: str) -> tuple[str, ...]:
    """States that somebody names in Slurm's words, long or short; `all` is every one."""
    names = {word: ours for ours, words in _STATES.items() for word in words}
    found: list[str] = []
    for word in text.upper().split(","):
        if word == "ALL":
            return ()
        if word not in names and word not in ("TIMEOUT", "TO", "NODE_FAIL", "NF", "PREEMPTED", "OUT_OF_MEMORY"):
            raise InputError(f"invalid state '{word}': write e.g. {', '.join(sorted(names))} or all")
        found.append(names.get(word, "failed"))
    return tuple(dict.fromkeys(found))


def places(nodes: Iterable[NodeStatus]) -> dict[str, list[str]]:
    """Nodes of each job."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        for job in node.jobs:
            found.setdefault(job, []).append(node.name)
    return found


def formatted(text: str, rows: Sequence[Any], value: Callable[[Any, str], str]) -> list[str]:
    """A heading and a line for each, as Slurm fills `%.10M`: so wide, cut, to the right if there is a dot."""
    node = value is node_field
    if not _FIELD.search(text):
        raise InputError(f"format '{text}' names no field: write e.g. '%i %j %T'")

    def line(of: Callable[[str], str]) -> str:
        def put(match: re.Match[str]) -> str:
            dot, width, letter = match.groups()
            cell = of(letter)
            if not width:
                return cell
            cut = cell[: int(width)]
            return cut.rjust(int(width)) if dot else cut.ljust(int(width))

        return _FIELD.sub(put, text)

    heads = {**_HEADS, **_NODE_HEADS} if node else _HEADS
    return [line(lambda letter: heads.get(letter, "?")), *(line(partial(value, row)) for row in rows)]


def job_field(job: JobInfo, field: str, where: dict[str, list[str]]) -> str:
    """One field of `squeue`."""
    nodes = where.get(job.id, [])
    long, short = _STATES[str(job.state)]
    array, _, index = job.id.replace(".", "_").partition("_")
    reason = "None" if job.started_s else job.reason or "Resources"
    values: dict[str, Callable[[], str]] = {
        "i": lambda: job.id.replace(".", "_"), "A": lambda: job.id.replace(".", "_"), "F": lambda: array,
        "K": lambda: index or "N/A", "j": lambda: job.name, "u": lambda: job.user, "a": lambda: job.tenant or "(null)",
        "T": lambda: long, "t": lambda: short, "M": lambda: span(_ran_s(job)), "D": lambda: str(len(nodes) or 1),
        "N": lambda: ",".join(nodes), "P": lambda: _PARTITION, "Q": lambda: str(job.priority),
        "p": lambda: str(job.priority), "r": lambda: reason, "R": lambda: ",".join(nodes) or f"({reason})",
        "S": lambda: stamp(job.started_s), "e": lambda: stamp(job.ended_s or job.expected_end_s),
        "V": lambda: stamp(job.submitted_s), "b": lambda: f"gres:gpu:{job.gpus}" if job.gpus else "N/A",
        "l": lambda: "UNLIMITED", "C": lambda: "1", "m": lambda: "0",
    }  # fmt: skip
    return values[field]() if field in values else ""


def _ran_s(job: JobInfo) -> float:
    return (job.ended_s or time.time()) - job.started_s if job.started_s else 0.0


def span(seconds: float) -> str:
    """`[days-][hours:]minutes:seconds`."""
    days, rest = divmod(int(seconds), 86400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{left:02}"
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def stamp(at_s: float | None) -> str:
    """A time as Slurm writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at_s)) if at_s else "N/A"


def node_state(node: NodeStatus) -> str:
    """In Slurm's words: an up node is idle, mixed or alloc."""
    if node.state != "up":
        return _NODE.get(node.state, node.state)
    return "idle" if not node.gpus_used else "alloc" if node.gpus_used >= node.gpus else "mix"


def groups(nodes: Sequence[NodeStatus], apart: bool) -> list[tuple[NodeStatus, ...]]:
    """Nodes that `sinfo` shows in one line: alike in type and state, or each alone."""
    if apart:
        return [(node,) for node in nodes]
    found: dict[tuple[str, str], list[NodeStatus]] = {}
    for node in nodes:
        found.setdefault((node.gpu_type, node_state(node)), []).append(node)
    return [tuple(group) for group in found.values()]


def node_field(group: Sequence[NodeStatus], field: str) -> str:
    """One field of `sinfo`."""
    first = group[0]
    values = {
        "P": _PARTITION, "a": "up", "l": "infinite", "D": str(len(group)), "t": node_state(first),
        "T": node_state(first), "N": ",".join(node.name for node in group), "n": ",".join(node.name for node in group),
        "G": f"gpu:{first.gpu_type}:{first.gpus}" if first.gpus else "(null)", "c": str(first.cpus),
        "m": str(int(first.mem_gib * 1024)), "f": first.gpu_type, "E": "none",
    }  # fmt: skip
    return values.get(field, "")


def exit_code(job: JobInfo) -> int:
    """How a job ended, as a shell would say it."""
    last = job.attempts[-1] if job.attempts else None
    if last is None or str(job.state) == "succeeded":
        return 0
    return last.exit_code or (128 + last.signal if last.signal else 1)


def accounted(text: str, jobs: Sequence[JobInfo]) -> list[list[str]]:
    """A heading and a row for each, with the columns that `sacct --format` names."""
    names = [part.partition("%")[0] for part in text.split(",") if part]
    known = {name.lower(): name for name in _ACCOUNTED}
    for name in names:
        if name.lower() not in known:
            raise InputError(f"invalid field '{name}': there are {', '.join(sorted(_ACCOUNTED))}")
    chosen = [known[name.lower()] for name in names]
    return [chosen, *([_ACCOUNTED[name](job) for name in chosen] for job in jobs)]


def _ended(job: JobInfo) -> str:
    last = job.attempts[-1] if job.attempts else None
    return f"{(last.exit_code or 0) if last else 0}:{(last.signal or 0) if last else 0}"


def _cpus(job: JobInfo) -> str:
    return str(int(job.spec.get("cpus", 0) or 1))


def _nodes(job: JobInfo) -> str:
    last = job.attempts[-1] if job.attempts else None
    return ",".join(name for name, _ in last.nodes) if last else "None assigned"


_ACCOUNTED: dict[str, Callable[[JobInfo], str]] = {
    "JobID": lambda job: job.id.replace(".", "_"), "JobIDRaw": lambda job: job.id, "JobName": lambda job: job.name,
    "Partition": lambda job: _PARTITION, "Account": lambda job: job.tenant, "User": lambda job: job.user,
    "AllocCPUS": lambda job: _cpus(job), "NCPUS": lambda job: _cpus(job),
    "State": lambda job: _STATES[str(job.state)][0], "ExitCode": _ended, "Elapsed": lambda job: span(_ran_s(job)),
    "ElapsedRaw": lambda job: str(int(_ran_s(job))), "Submit": lambda job: stamp(job.submitted_s),
    "Start": lambda job: stamp(job.started_s), "End": lambda job: stamp(job.ended_s), "NodeList": _nodes,
    "NNodes": lambda job: str(len(job.attempts[-1].nodes) if job.attempts else 0),
    "Priority": lambda job: str(job.priority), "AllocTRES": lambda job: f"gres/gpu={job.gpus}",
    "ReqTRES": lambda job: f"gres/gpu={job.gpus}",
    "Reason": lambda job: job.reason, "Restarts": lambda job: str(max(len(job.attempts) - 1, 0)),
}  # fmt: skip
