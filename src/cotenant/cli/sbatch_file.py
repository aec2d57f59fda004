"""Batch scripts of Slurm as jobs: `#SBATCH` lines become fields of a job, the script itself is what it runs.

Options that mean nothing here are named in a warning and passed over, as the administrators of another cluster would
have it. What a script finds in its environment (`SLURM_...`) and its `srun` are in `sbatch_script`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from cotenant.cli.sbatch_script import ScriptFacts, whole_script
from cotenant.core.errors import InputError

_SHORT = {
    "A": "account", "a": "array", "c": "cpus-per-task", "C": "constraint", "d": "dependency", "D": "chdir",
    "e": "error", "G": "gpus", "H": "hold", "i": "input", "J": "job-name", "k": "no-kill", "L": "licenses",
    "m": "distribution", "M": "clusters", "n": "ntasks", "N": "nodes", "o": "output", "O": "overcommit",
    "p": "partition", "q": "qos", "Q": "quiet", "s": "oversubscribe", "t": "time", "v": "verbose", "w": "nodelist",
    "W": "wait", "x": "exclude",
}  # fmt: skip
_FLAGS = frozenset(
    ("contiguous", "exclusive", "hold", "no-kill", "no-requeue", "overcommit", "oversubscribe", "parsable", "quiet",
     "requeue", "spread-job", "test-only", "use-min-nodes", "verbose", "wait", "get-user-env", "ignore-pbs", "reboot")
)  # fmt: skip
_SILENT = frozenset(
    ("requeue", "no-requeue", "parsable", "quiet", "verbose", "wait", "get-user-env", "comment", "exclusive")
)
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", re.IGNORECASE)
_GIB = {"K": 2**-20, "": 2**-10, "M": 2**-10, "G": 1.0, "T": 1024.0}
_GPU = re.compile(r"(?:gres[:/])?(?:gpu:)?(?:([A-Za-z][\w.-]*):)?(\d+)(?:\(.*\))?")
_STEP = re.compile(r"(\d+)-(\d+):(\d+)")
_MAIL = {"BEGIN": ("start",), "END": ("end",), "FAIL": ("failure",), "ALL": ("start", "end")}
_AFTER = {"afterok": "", "afterany": "any:", "afternotok": "failed:", "aftercorr": ""}


@dataclass(slots=True)
class SbatchOptions:
    """Options as they came, the last of each name, with where it stood."""

    where: str
    values: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)

    def take(self, name: str) -> str:
        """The value of an option, which then counts as understood; '' where it was not given."""
        self.used.add(name)
        return self.values.get(name, "")

    def wrong(self, name: str, fix: str) -> InputError:
        """What to raise for a value that cannot be read."""
        return InputError(f"{self.places[name]}: --{name}={self.values[name]}: {fix}")

    def whole(self, name: str, usual: int = 0) -> int:
        """A whole number."""
        text = self.take(name)
        if text and not re.fullmatch(r"[0-9]{1,9}", text):
            raise self.wrong(name, "write a whole number")
        return int(text) if text else usual

    def warn(self, name: str, why: str) -> None:
        """Say something of an option."""
        value = f"={self.values[name]}" if self.values[name] else ""
        self.warnings.append(f"{self.places[name]}: --{name}{value} {why}")


def is_script(text: str) -> bool:
    """Whether a file is a batch script and not YAML."""
    return text.startswith("#!")


def read_script(
    text: str, where: str, options: Sequence[str] = (), arguments: Sequence[str] = ()
) -> tuple[dict[str, Any], list[str]]:
    """The job of a script, and warnings. `options` are words of a command line, which win over its own lines."""
    if not is_script(text):
        raise InputError(f"{where}: a batch script begins with its interpreter: write #!/bin/bash in the first line")
    asked = SbatchOptions(where)
    for place, words in (*_lines(text, where), (f"{where}: command line", list(options))):
        for name, value in _parsed(words, place):
            asked.values[name], asked.places[name] = value, place
    return _job(asked, text, arguments), asked.warnings


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """A command line of `sbatch`: its options, and from the script on the rest."""
    at = 0
    while at < len(words):
        if not words[at].startswith("-") or words[at] == "-":
            break
        at += 1 if _alone(words[at]) else 2
    return list(words[:at]), list(words[at:])


def _alone(word: str) -> bool:
    """Whether an option has no word after it for its value."""
    if word.startswith("--"):
        return "=" in word or word[2:] in _FLAGS
    return len(word) > 2 or _SHORT.get(word[1:2], "") in _FLAGS


def _lines(text: str, where: str) -> Iterator[tuple[str, list[str]]]:
    """Words of each `#SBATCH` line before the first command, with its place."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            return
        if line.startswith("#SBATCH"):
            place = f"{where}, line {number}"
            try:
                yield place, shlex.split(line.removeprefix("#SBATCH"), comments=True)
            except ValueError as error:
                raise InputError(f"{place}: {error}: close the quotes") from None


def _parsed(words: Sequence[str], place: str) -> Iterator[tuple[str, str]]:
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
        elif word.startswith("-") and len(word) > 1 and word[1] in _SHORT:
            name, equals, value = _SHORT[word[1]], word[2:3], word[2:].removeprefix("=")
        else:
            raise InputError(f"{place}: '{word}' is no option: write e.g. --nodes=2 or -N 2")
        if not equals and name not in _FLAGS:
            if not rest:
                raise InputError(f"{place}: --{name} needs a value")
            value = rest.pop(0)
        yield name, value


def _job(asked: SbatchOptions, text: str, arguments: Sequence[str]) -> dict[str, Any]:
    nodes = _nodes(asked)
    tasks, each = asked.whole("ntasks"), asked.whole("ntasks-per-node")
    tasks = tasks or each * max(nodes, 1) or max(nodes, 1)
    job: dict[str, Any] = {"gpus": _gpus(asked, nodes, tasks)}
    if nodes > 1:
        job["nodes"] = nodes
    cpus = asked.whole("cpus-per-task", 0)
    if cpus or tasks > max(nodes, 1):
        job["cpus"] = (cpus or 1) * tasks
    if mem_gib := _memory(asked, max(nodes, 1), (cpus or 1) * tasks, job["gpus"]):
        job["mem"] = mem_gib
    if limit := asked.take("time"):
        job["max_runtime"] = _seconds(limit, asked)
    name = asked.take("job-name")
    job["name"] = re.sub(r"[^\w.-]", "-", name, flags=re.ASCII).strip("-._")[:63] or "job"
    _people(asked, job)
    _rest(asked, job)
    facts = ScriptFacts(
        tasks, each or -(-tasks // max(nodes, 1)), nodes or 1, cpus, asked.take("output"), asked.take("error"),
        asked.take("input"), asked.take("open-mode") == "append", asked.take("signal"), name or "sbatch",
        bool(job.get("array")),
    )  # fmt: skip
    job["run"] = whole_script(text, facts, arguments)
    for left in sorted(asked.values.keys() - asked.used - _SILENT):
        asked.warn(left, "has no meaning here and is passed over")
    return job


def _nodes(asked: SbatchOptions) -> int:
    text = asked.take("nodes")
    if text and not re.fullmatch(r"[0-9]{1,6}(-[0-9]{1,6})?", text):
        raise asked.wrong("nodes", "write a number, or least-most")
    return int(text.partition("-")[0]) if text else 0


def _gpus(asked: SbatchOptions, nodes: int, tasks: int) -> str | int:
    """All GPUs of the job, with their type where one is named."""
    found: list[tuple[str, int]] = []
    for name, times in (
        ("gpus", 1),
        ("gres", max(nodes, 1)),
        ("gpus-per-node", max(nodes, 1)),
        ("gpus-per-task", tasks),
    ):
        for part in asked.take(name).split(","):
            if not part:
                continue
            if name == "gres" and not part.startswith("gpu"):
                asked.warnings.append(f"{asked.places[name]}: --gres={part} has no meaning here and is passed over")
                continue
            match = _GPU.fullmatch(part if part != "gpu" else "gpu:1")
            if match is None:
                raise asked.wrong(name, "write N, TYPE:N or, for gres, gpu:TYPE:N")
            found.append((match[1] or "", int(match[2]) * times))
        if found:
            break
    kinds = {kind for kind, _ in found if kind}
    if len(kinds) > 1:
        raise InputError(f"a job has GPUs of one type here, not of {' and '.join(sorted(kinds))}")
    count, kind = sum(number for _, number in found), next(iter(kinds), "")
    if not count:
        asked.warnings.append(f"{asked.where}: it asks for no GPU and takes one, as every job here does")
        count = 1
    if constraint := asked.take("constraint"):
        if count and not kind and re.fullmatch(r"[A-Za-z0-9][\w.-]*", constraint):
            kind = constraint
            asked.warn("constraint", "is taken as a type of GPU")
        elif constraint != kind:
            asked.warn("constraint", "has no meaning here and is passed over")
    return f"{kind}:{count}" if kind else count


def _memory(asked: SbatchOptions, nodes: int, cpus: int, gpus: str | int) -> float:
    """GiB of the whole job."""
    count = int(str(gpus).rpartition(":")[2])
    for name, times in (("mem", nodes), ("mem-per-cpu", cpus), ("mem-per-gpu", count)):
        if text := asked.take(name):
            match = _SIZE.fullmatch(text)
            if match is None:
                raise asked.wrong(name, "write e.g. 16G or 512M")
            return round(float(match[1]) * _GIB[match[2].upper()] * times, 6)
    return 0.0


def _seconds(text: str, asked: SbatchOptions) -> float:
    """M, M:S, H:M:S, D-H, D-H:M or D-H:M:S; 0 where there is no limit."""
    if text.upper() in ("INFINITE", "UNLIMITED", "0"):
        return 0.0
    match = _TIME.fullmatch(text)
    if match is None:
        raise asked.wrong("time", "write minutes, hours:minutes:seconds or days-hours")
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours, (minutes, seconds) = 0, [*numbers, 0][:2]
    return float(((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds)


def _people(asked: SbatchOptions, job: dict[str, Any]) -> None:
    if account := asked.take("account"):
        job["tenant"] = account
    if address := asked.take("mail-user"):
        kinds = [kind for kind in asked.take("mail-type").upper().split(",") if kind and kind != "NONE"]
        when = dict.fromkeys(moment for kind in kinds for moment in _MAIL.get(kind, ()))
        if when:
            job["notify"] = {"to": address, "when": list(when)}
    asked.take("mail-type")


def _rest(asked: SbatchOptions, job: dict[str, Any]) -> None:
    if array := asked.take("array"):
        indexes, percent, most = array.partition("%")
        spread = [_stepped(part) for part in indexes.split(",")]
        job["array"] = ",".join(spread) + percent + most
    if chain := asked.take("dependency"):
        job["after"] = _after(chain, asked)
    if "exclusive" in asked.values:
        job["exclusive"] = True
    if folder := asked.take("chdir"):
        job["workdir"] = folder
    if image := asked.take("container"):
        job["image"] = image
    if nice := asked.take("nice"):
        if not re.fullmatch(r"-?[0-9]{1,9}", nice):
            raise asked.wrong("nice", "write a whole number")
        job["priority"] = -int(nice)
    env = {}
    for part in asked.take("export").split(","):
        name, equals, value = part.partition("=")
        if equals:
            env[name] = value
    if env:
        job["env"] = env


def _stepped(part: str) -> str:
    """`0-8:4` as `0,4,8`."""
    match = _STEP.fullmatch(part)
    if match is None or not int(match[3]):
        return part
    first, last, step = map(int, match.groups())
    return ",".join(map(str, range(first, min(last, first + 100_000 * step) + 1, step)))


def _after(chain: str, asked: SbatchOptions) -> list[str]:
    found: list[str] = []
    for part in chain.split(","):
        how, *ids = part.split(":")
        if how not in _AFTER:
            asked.warnings.append(
                f"{asked.places['dependency']}: --dependency={part} has no meaning here and is passed over"
            )
            continue
        found += [f"{_AFTER[how]}{one}" for one in ids]
    return found
