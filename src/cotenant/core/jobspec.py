"""What a person asks for: one job as a flat mapping in which everything but `run` is optional."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any

from cotenant.core.declared import Speeds, parse_speeds
from cotenant.core.errors import InputError, unknown
from cotenant.core.service_fields import service_fields

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,62}")
_SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*([KMGT]i?B?)?$", re.IGNORECASE)
_TIME = re.compile(r"^(\d+(?:\.\d+)?)\s*(s|m|min|h|d)?$", re.IGNORECASE)
_IMAGE = re.compile(r"[A-Za-z0-9/._][\w./:@+-]{0,500}")  # never an option of whoever runs it
_GIB = {"K": 2**-20, "M": 2**-10, "G": 1.0, "T": 1024.0}
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
MOST_ARRAY_TASKS = 100_000
MOST_TEXT_BYTES = 128 * 1024  # the longest single argument or variable that Linux hands to a program, its end included
OK, ANY, FAILED = "ok", "any", "failed"  # how a job must have ended that another one comes after


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job. Times in seconds, memory in GiB."""

    run: str
    name: str = "job"
    setup: str = ""
    workdir: str = ""
    env: dict[str, str] = field(default_factory=dict)
    gpus: int = 1
    gpu_type: str = ""
    model: str = ""  # what it trains, as profiles name it: says how fast it is on which GPU type
    cpus: float = 0.0
    mem_gib: float = 0.0
    gpu_mem_gib: float = 0.0  # per GPU: what it needs, and may use
    gpu_mem_min_gib: float = 0.0  # per GPU: what it can do with; 0: all that it needs
    gpu_mem_speeds: Speeds = ()  # GiB granted, and speed against its peak
    nodes: int = 0
    tenant: str = ""
    priority: int = 0
    deadline_s: float = 0.0  # after submission; 0 for none; the first of `deadline_steps` where there are some
    deadline_steps: tuple[tuple[float, float], ...] = ()  # a soft deadline: seconds after submission, and its worth
    max_runtime_s: float = 0.0
    expected_s: float = 0.0  # what the user believes it takes; 0 for unknown
    retries: int = 0
    min_gpus: int = 0
    max_gpus: int = 0
    batch_size: int = 0
    batch_min: int = 0
    batch_max: int = 0
    checkpoint_dir: str = ""
    checkpoint_interval_s: float = 0.0
    preemptible: bool = True
    exclusive: bool = False  # its GPUs are never shared with another job
    slice: str = ""  # the part of its GPU that it asks for, by name or as a fraction (2g, 2/7); empty: any
    movable: bool = True  # it may be stopped and go on elsewhere to make room, or to run better
    weight: float = 1.0  # its share of the time, against others who take turns with it
    tty: bool = False  # it has a terminal, which `attach` joins
    array: tuple[int, ...] = ()
    image: str = ""  # of a container that all of it runs in
    array_most: int = 0  # elements of its array that may run at a time; 0: all
    notify: tuple[str, ...] = ()  # who is told: http:, https: and mailto: addresses
    notify_on: tuple[str, ...] = ()  # when: start, end, failure; none: end
    foreign: str = ""  # somebody else has made it, in the engine where jobs run: its name there; nobody can write this
    service: dict[str, Any] = field(default_factory=dict)  # it answers requests and never ends: target_s, service_s
    after: tuple[str, ...] = ()  # jobs that must have succeeded, or `any:ID` (ended), `failed:ID` (not succeeded)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, without deep copies: `run`, and every field that differs from its default."""
        given = {name: getattr(self, name) for name in _DEFAULTS}
        return {"run": self.run} | {name: value for name, value in given.items() if value != _DEFAULTS[name]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> JobSpec:
        """The inverse of `as_dict`, also after a way through JSON. Fields of a newer version are passed over."""
        values = {name: value for name, value in data.items() if name in _DEFAULTS}
        for key in ("array", "after", "notify", "notify_on"):
            if key in values:
                values[key] = tuple(values[key])
        for key in ("deadline_steps", "gpu_mem_speeds"):
            if key in values:
                values[key] = tuple((float(at), float(worth)) for at, worth in values[key])
        return cls(data["run"], **values)


_DEFAULTS = {item.name: getattr(JobSpec(run=""), item.name) for item in fields(JobSpec) if item.name != "run"}
_PLAIN = ("run", "name", "setup", "workdir", "tenant", "model", "image")
_KEYS = (
    *_PLAIN, "env", "gpus", "cpus", "mem", "gpu_mem", "nodes", "priority", "deadline", "max_runtime", "expected",
    "retries", "elastic", "batch", "checkpoint", "preemptible", "exclusive", "tty", "array", "after", "notify",
    "movable", "weight", "slice", "gpu_mem_min", "gpu_mem_speeds", "service",
)  # fmt: skip


def parse_job(data: Any, where: str = "job") -> JobSpec:
    """Check a mapping (from YAML, JSON or options); every complaint names the field and the fix."""
    if not isinstance(data, Mapping):
        raise InputError(f"{where}: a job is a mapping with at least 'run', not {type(data).__name__}")
    for key in data:
        if key not in _KEYS:
            raise _at(where, unknown("field", str(key), _KEYS))
    if not isinstance(data.get("run"), str) or not str(data["run"]).strip():
        raise InputError(f"{where}: field 'run' is missing: write the command to run, e.g. run: python train.py")
    values: dict[str, Any] = {}
    for key in _PLAIN:
        if key in data:
            values[key] = _text(data[key], key, where)
    for key in ("name", "tenant"):
        if values.get(key) and not _NAME.fullmatch(values[key]):
            raise InputError(f"{where}: field '{key}' is {values[key]!r}: use letters, digits, '.', '_' and '-'")
    if values.get("image") and not _IMAGE.fullmatch(values["image"]):
        raise InputError(f"{where}: field 'image' is '{values['image']}': write a file, or e.g. docker://python:3.11")
    values["env"] = _env(data.get("env", {}), where)
    values.update(_gpus(data.get("gpus", 1), where))
    values["cpus"] = _number(data.get("cpus", 0), "cpus", where)
    values["mem_gib"] = _memory(data.get("mem", 0), "mem", where)
    values["gpu_mem_gib"] = _memory(data.get("gpu_mem", 0), "gpu_mem", where)
    values.update(_squeezes(data, values["gpu_mem_gib"], where))
    for key in ("nodes", "retries", "priority"):
        values[key] = _whole(data.get(key, 0), key, where, negative=key == "priority")
    for key, target in (("max_runtime", "max_runtime_s"), ("expected", "expected_s")):
        values[target] = read_seconds(data.get(key, 0), key, where)
    values.update(deadline_fields(data.get("deadline", 0), where))
    _nested(data, "elastic", {"min_gpus": "min_gpus", "max_gpus": "max_gpus"}, values, where)
    _nested(data, "batch", {"size": "batch_size", "min": "batch_min", "max": "batch_max"}, values, where)
    _checkpoint(data.get("checkpoint", {}), values, where)
    for key, usual in (("preemptible", True), ("exclusive", False), ("tty", False), ("movable", True)):
        if not isinstance(data.get(key, usual), bool):
            raise InputError(f"{where}: field '{key}' must be true or false")
        values[key] = data.get(key, usual)
    values["weight"] = _weight(data.get("weight", 1), where)
    values["slice"] = _slice(data.get("slice", ""), values["gpus"], where)
    values["array"], values["array_most"] = _array(data.get("array", ""), where)
    values["after"] = _after(data.get("after", ()), where)
    values["notify"], values["notify_on"] = notify_fields(data.get("notify", ()), where)
    return JobSpec(**values | service_fields(data, where))


def _squeezes(data: Mapping[str, Any], peak_gib: float, where: str) -> dict[str, Any]:
    """What it can do with of a GPU's memory, and how fast."""
    least_gib, speeds = _memory(data.get("gpu_mem_min", 0), "gpu_mem_min", where), data.get("gpu_mem_speeds", {})
    if least_gib > peak_gib:
        raise InputError(
            f"{where}: field 'gpu_mem_min' is {least_gib:g} GiB, more than 'gpu_mem' ({peak_gib:g}): it is what the job"
            " can do with, and gpu_mem what it needs at its peak"
        )
    said = f"{where}: field 'gpu_mem_speeds' is {speeds!r}"
    if isinstance(speeds, str):
        speeds = {gib: speed for gib, _, speed in (part.partition(":") for part in speeds.split(";"))}
    if not isinstance(speeds, Mapping):
        raise InputError(f"{said}: write a mapping of GiB to speed, e.g. {{10: 0.6, 13: 0.9}}")
    return {"gpu_mem_min_gib": least_gib, "gpu_mem_speeds": parse_speeds(speeds.items(), said) if speeds else ()}


def _at(where: str, error: InputError) -> InputError:
    return InputError(f"{where}: {error}")


def _text(value: Any, key: str, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(f"{where}: field '{key}' must be text")
    text = str(value)
    if "\x00" in text:
        raise InputError(f"{where}: field '{key}' holds a NUL character")
    size = len(text.encode("utf-8", "surrogatepass")) + len(key.removeprefix("env.")) + 2
    if size > MOST_TEXT_BYTES:
        raise InputError(f"{where}: field '{key}' has {size} bytes; at most {MOST_TEXT_BYTES}: put it into a file")
    return text


def _number(value: Any, key: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise InputError(f"{where}: field '{key}' is '{value}': write a number that is not negative")
    return float(value)


def _whole(value: Any, key: str, where: str, negative: bool = False) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not (-(10**9) if negative else 0) <= value <= 10**9:
        raise InputError(f"{where}: field '{key}' is '{value}': write a whole number")
    return value


def read_seconds(value: Any, key: str, where: str) -> float:
    """A length of time: seconds, or a number with a unit."""
    if not isinstance(value, str):
        return _number(value, key, where)
    return _number(seconds_of(value, f"{where}: field '{key}' is"), key, where)


def seconds_of(value: str, what: str) -> float:
    """A length of time that an option gives, as in a job file."""
    match = _TIME.match(value.strip())
    if match is None:
        raise InputError(f"{what} {value}: write seconds, or e.g. 90s, 30m, 2h, 1d")
    return float(match[1]) * _SECONDS[(match[2] or "s").lower()]


def deadline_fields(value: Any, where: str) -> dict[str, Any]:
    """A strict deadline (`4h`), or falling steps of worth (`4h:10,8h:5`), as fields of a spec."""
    if not isinstance(value, str) or ":" not in value:
        return {"deadline_s": read_seconds(value, "deadline", where), "deadline_steps": ()}
    steps = []
    for part in value.replace(";", ",").split(","):
        at, _, worth = part.partition(":")
        steps.append((read_seconds(at.strip(), "deadline", where), _number(_float(worth), "deadline", where)))
    times, values = [at for at, _ in steps], [worth for _, worth in steps]
    rising = all(a < b for a, b in pairwise([0.0, *times]))
    falling = all(a > b for a, b in pairwise(values)) and values[-1] > 0
    if not rising or not falling:
        raise InputError(
            f"{where}: field 'deadline' is '{value}': times must rise and their worth fall, above 0, e.g. 4h:10,8h:5"
        )
    return {"deadline_s": times[0], "deadline_steps": tuple(steps)}


def deadline_text(spec: JobSpec) -> str | float:
    """The inverse: what a person would write."""
    if not spec.deadline_steps:
        return spec.deadline_s
    return ",".join(f"{at!r}:{worth!r}" for at, worth in spec.deadline_steps)


def _float(text: str) -> Any:
    """A number where the text is one, else the text itself, to be complained about."""
    try:
        return float(text)
    except ValueError:
        return text


def _memory(value: Any, key: str, where: str) -> float:
    if not isinstance(value, str):
        return _number(value, key, where)
    match = _SIZE.match(value.strip())
    if match is None:
        raise InputError(f"{where}: field '{key}' is '{value}': write GiB as a number, or e.g. 512M, 16G")
    return _number(float(match[1]) * _GIB[(match[2] or "G")[0].upper()], key, where)


def _weight(value: Any, where: str) -> float:
    number = _number(value, "weight", where)
    if not 0.01 <= number <= 100:
        raise InputError(f"{where}: field 'weight' is '{value}': write a number from 0.01 to 100")
    return number


def _slice(value: Any, gpus: int, where: str) -> str:
    text = _text(value, "slice", where)
    if text and not re.fullmatch(r"[\w.]{1,32}(/[0-9]{1,3})?", text, re.ASCII):
        raise InputError(f"{where}: field 'slice' is '{text}': write a name or a part, e.g. 2g or 2/7")
    if text and gpus != 1:
        raise InputError(f"{where}: field 'slice' is '{text}' of {gpus} GPUs: a slice is a part of one GPU")
    return text


def _env(value: Any, where: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InputError(f"{where}: field 'env' must be a mapping of names to values")
    for key in value:
        if not isinstance(key, str) or not re.fullmatch(r"[A-Za-z_]\w*", key):
            raise InputError(f"{where}: field 'env' has a name '{key}' that is no variable name")
    return {key: _text(item, f"env.{key}", where) for key, item in value.items()}


def _gpus(value: Any, where: str) -> dict[str, Any]:
    kind = ""
    if isinstance(value, str):
        kind, _, number = value.rpartition(":")
        if not re.fullmatch(r"[0-9]{1,9}", number) or (kind and not _NAME.fullmatch(kind)):
            raise InputError(f"{where}: field 'gpus' is '{value}': write N or TYPE:N, e.g. 4 or h200:4")
        value = int(number)
    return {"gpus": _whole(value, "gpus", where), "gpu_type": kind}


def _nested(data: Mapping[str, Any], key: str, names: dict[str, str], values: dict[str, Any], where: str) -> None:
    part = data.get(key, {})
    if not isinstance(part, Mapping):
        raise InputError(f"{where}: field '{key}' must be a mapping with {', '.join(names)}")
    for name, value in part.items():
        if name not in names:
            raise _at(where, unknown(f"field in '{key}'", str(name), names))
        values[names[name]] = _whole(value, f"{key}.{name}", where)


def _checkpoint(part: Any, values: dict[str, Any], where: str) -> None:
    if not isinstance(part, Mapping) or any(key not in ("dir", "interval") for key in part):
        raise InputError(f"{where}: field 'checkpoint' must be a mapping with dir and interval")
    values["checkpoint_dir"] = _text(part.get("dir", ""), "checkpoint.dir", where)
    values["checkpoint_interval_s"] = read_seconds(part.get("interval", 0), "checkpoint.interval", where)


def _array(value: Any, where: str) -> tuple[tuple[int, ...], int]:
    """Indexes, and how many may run at a time: `0-99%5`."""
    if value in ("", None):
        return (), 0
    text, percent, most = str(value).partition("%")
    if percent and not (re.fullmatch(r"[0-9]{1,9}", most) and int(most)):
        raise InputError(
            f"{where}: field 'array' is '{value}': after '%' comes how many may run at a time, as in 0-99%5"
        )
    indexes = indexes_of(text)
    if indexes is None:
        raise InputError(f"{where}: field 'array' is '{value}': write e.g. 0-99, 1,3,5 or 0-99%5")
    if len(indexes) > MOST_ARRAY_TASKS:
        raise InputError(f"{where}: field 'array' asks for more than {MOST_ARRAY_TASKS} tasks")
    return tuple(dict.fromkeys(indexes)), int(most or 0)


def indexes_of(text: str) -> list[int] | None:
    """The indexes of `0-99,200`, a few more than an array may have at most; None where it is no such text."""
    indexes: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*", part)
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        indexes += range(first, min(last, first + MOST_ARRAY_TASKS) + 1)
        if len(indexes) > MOST_ARRAY_TASKS:
            break
    return indexes


def runs_of(indexes: Iterable[int]) -> list[list[int]]:
    """Stretches of indexes that follow each other, as first and last."""
    runs: list[list[int]] = []
    for index in indexes:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return runs


def _after(value: Any, where: str) -> tuple[str, ...]:
    items = [value] if isinstance(value, str | int) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str | int) for item in items):
        raise InputError(f"{where}: field 'after' must be a list of job ids")
    found = [dependency(str(item)) for item in items]
    for how, job in found:
        if how not in (OK, ANY, FAILED) or not job:
            raise InputError(f"{where}: field 'after' is '{how}:{job}': write ID, ok:ID, any:ID or failed:ID")
    return tuple(job if how == OK else f"{how}:{job}" for how, job in found)


def dependency(item: str) -> tuple[str, str]:
    """How the job must have ended that another one comes after, and which job: an item of `after`."""
    how, colon, job = item.partition(":")
    return (how, job) if colon else (OK, item)


NOTIFY_ON = ("start", "end", "failure")
_MAIL = re.compile(r"[^\s<>@,;:\"()\[\]\\]{1,64}@[A-Za-z0-9.-]{1,190}")
_HOOK = re.compile(r"https?://[!-~]{1,1000}")


def notify_fields(value: Any, where: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Who is told and when: addresses, or a mapping with `to` and `when`."""
    part = value if isinstance(value, Mapping) else {"to": value}
    for key in part:
        if key not in ("to", "when"):
            raise _at(where, unknown("field in 'notify'", str(key), ("to", "when")))
    to, on = (_list(part.get(key, ()), where) for key in ("to", "when"))
    for moment in on:
        if moment not in NOTIFY_ON:
            raise _at(where, unknown("moment in 'notify.when'", moment, NOTIFY_ON))
    found = []
    for address in to:
        mail = _MAIL.fullmatch(address.removeprefix("mailto:"))
        if mail is None and _HOOK.fullmatch(address) is None:
            raise InputError(f"{where}: field 'notify' is '{address}': write https://HOST/PATH or NAME@HOST")
        found.append(address if mail is None else f"mailto:{mail[0]}")
    return tuple(dict.fromkeys(found)), tuple(dict.fromkeys(on))


def _list(value: Any, where: str) -> list[str]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or len(items) > 10 or not all(isinstance(item, str) for item in items):
        raise InputError(f"{where}: field 'notify' must be an address or a list of at most 10")
    return list(items)


_TARGETS = {
    "mem": ("mem_gib",), "gpu_mem": ("gpu_mem_gib",), "gpu_mem_min": ("gpu_mem_min_gib",), "gpus": ("gpus", "gpu_type"),
    "max_runtime": ("max_runtime_s",),
    "deadline": ("deadline_s", "deadline_steps"), "expected": ("expected_s",), "elastic": ("min_gpus", "max_gpus"),
    "batch": ("batch_size", "batch_min", "batch_max"), "checkpoint": ("checkpoint_dir", "checkpoint_interval_s"),
    "array": ("array", "array_most"), "notify": ("notify", "notify_on"),
}  # fmt: skip


def changed_fields(changes: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What some keys of a job file say, as fields of a spec and nothing else."""
    spec = parse_job({"run": "-", **changes}, where)
    return {name: getattr(spec, name) for key in changes for name in _TARGETS.get(key, (key,))}
