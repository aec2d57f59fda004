"""The profile file: what `cotenant profile` has measured of commands, by model and GPU type, and of pairs of them.

One JSON document with the key `cotenant_profile`, its version; `docs/profiles.md` describes all fields. What was not
measured is left out. Profiling another command, or the same one again, adds to the file.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from cotenant.core.errors import InputError
from cotenant.workload.profiles.base import normal
from cotenant.workload.profiles.lifecycle import NAMES, UNKNOWN, LifecycleRow

MARK = "cotenant_profile"
VERSION = 1
SHARES = ("time", "mps")
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class SpeedPoint:
    """Speed, and what it takes, at one batch size or with so many sub-batches (`at`); NaN where not measured.

    `spread` is the standard deviation of the logarithm of repeated measurements.
    """

    at: int
    steps_per_s: float
    spread: float = math.nan
    gpu_gib: float = math.nan
    busy: float = math.nan


@dataclass(frozen=True, slots=True)
class Measured:
    """One command on one GPU type. NaN, 0 for the batch, or nothing: not measured.

    `gpu_gib` is per GPU, `busy` the share of time in which its GPUs have work, `cores` and `mem_gib` what it uses of
    the host, `cold_start_s` what the first start took, with files that were not in memory. `by_cores` holds (cores,
    steps per second), `stage_s` the seconds of a step in storage, CPU, GPU and network, `slices` (name, speed against a
    whole GPU).
    """

    batch: int = 0
    steps_per_s: float = math.nan
    spread: float = math.nan
    gpu_gib: float = math.nan
    busy: float = math.nan
    cores: float = math.nan
    mem_gib: float = math.nan
    cold_start_s: float = math.nan
    lifecycle: LifecycleRow = UNKNOWN
    batches: tuple[SpeedPoint, ...] = ()
    sub_batches: tuple[SpeedPoint, ...] = ()
    by_cores: tuple[tuple[float, float], ...] = ()
    stage_s: tuple[float, float, float, float] | None = None
    slices: tuple[tuple[str, float], ...] = ()

    def over(self, old: Measured) -> Measured:
        """This, and what only an older measurement of the same batch knows."""
        if old.batch != self.batch:
            return self
        kept = {name: getattr(old, name) for name in _NUMBERS if math.isnan(getattr(self, name))}
        kept |= {
            name: getattr(old, name)
            for name in ("batches", "sub_batches", "by_cores", "slices")
            if not getattr(self, name)
        }
        cycle = {name: getattr(old.lifecycle, name) for name in NAMES if math.isnan(getattr(self.lifecycle, name))}
        return replace(
            self, **kept, lifecycle=replace(self.lifecycle, **cycle), stage_s=self.stage_s or old.stage_s
        )  # fmt: skip

    def points(self) -> tuple[SpeedPoint, ...]:
        """The batch curve with the batch itself, by batch size; nothing where the batch is not known."""
        own = SpeedPoint(self.batch, self.steps_per_s, self.spread, self.gpu_gib, self.busy)
        known = {point.at: point for point in (*self.batches, own) if point.at > 0 and point.steps_per_s > 0}
        return tuple(known[at] for at in sorted(known))


_NUMBERS = tuple(one.name for one in fields(Measured) if one.type == "float")
_OF_EACH = ("speed", "spread", "alone")  # what is known of each of a pair
_POINT = tuple(one.name for one in fields(SpeedPoint) if one.name != "at")


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    """A command, on how many GPUs it runs, and what was measured of it by GPU type. Paths are those of its machine."""

    command: tuple[str, ...] = ()
    workdir: str = ""
    gpus: int = 1
    on: Mapping[str, Measured] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """Speeds of two models beside each other against alone, on one GPU type and by one way of sharing (`SHARES`).

    `a_alone` and `b_alone`: steps per second alone at that time, which may differ from those of another time.
    """

    gpu_type: str
    share: str
    a: str
    b: str
    a_speed: float
    b_speed: float
    a_spread: float = math.nan
    b_spread: float = math.nan
    a_alone: float = math.nan
    b_alone: float = math.nan

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What it is a measurement of, whichever of the two is named first."""
        return self.gpu_type, self.share, *sorted((normal(self.a), normal(self.b)))  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class ProfileFile:
    """All of a file. Speeds refer to `reference`, the GPU type that was measured first."""

    reference: str = ""
    gpu_gib: Mapping[str, float] = field(default_factory=dict)
    models: Mapping[str, MeasuredModel] = field(default_factory=dict)
    pairs: tuple[MeasuredPair, ...] = ()

    def model(self, name: str) -> MeasuredModel | None:
        """A model by its name, without regard to case."""
        return next((one for key, one in self.models.items() if normal(key) == normal(name)), None)

    def by_preference(self, model: MeasuredModel) -> list[Measured]:
        """What was measured of a model, on the reference type first."""
        return [model.on[kind] for kind in sorted(model.on, key=lambda kind: kind != self.reference)]

    def pair(self, gpu_type: str, share: str, a: str, b: str) -> MeasuredPair | None:
        """A pair, `a` first."""
        wanted = MeasuredPair(gpu_type, share, a, b, 0.0, 0.0).key
        found = next((one for one in self.pairs if one.key == wanted), None)
        if found is None or normal(found.a) == normal(a):
            return found
        swapped = {f"{one}_{what}": getattr(found, f"{other}_{what}")
                   for one, other in ("ab", "ba") for what in _OF_EACH}  # fmt: skip
        return MeasuredPair(gpu_type, share, found.b, found.a, **swapped)

    def with_model(self, name: str, model: MeasuredModel, gpu_gib: Mapping[str, float]) -> ProfileFile:
        """The file with what was measured of a model; older facts that were not measured again stay."""
        old = self.model(name)
        on = dict(old.on) if old is not None else {}
        for kind, new in model.on.items():
            on[kind] = new.over(on[kind]) if kind in on and old is not None and old.gpus == model.gpus else new
        kept = {key: one for key, one in self.models.items() if normal(key) != normal(name)}
        sizes = {**self.gpu_gib, **{kind: gib for kind, gib in gpu_gib.items() if gib > 0}}
        reference = self.reference or next(iter(model.on), "")
        return replace(self, reference=reference, gpu_gib=sizes, models=kept | {name: replace(model, on=on)})

    def with_pair(self, pair: MeasuredPair) -> ProfileFile:
        """The file with a pair, in the place of an older measurement of it."""
        return replace(self, pairs=(*(one for one in self.pairs if one.key != pair.key), pair))

    def save(self, path: Path) -> None:
        """Write it in one move, so that whoever reads it finds the old or the new one."""
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.write_text(json.dumps(as_data(self), indent=1) + "\n", encoding="utf-8")
        fresh.replace(path)


def is_profile_file(path: Path) -> bool:
    """Whether a file is one, by its first characters."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return f'"{MARK}"' in file.read(200)
    except OSError:
        return False


def load_profile_file(path: Path) -> ProfileFile:
    """Read and check a file; whatever is wrong is one line."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path}: broken JSON ({error})") from None
    if not isinstance(data, dict) or MARK not in data:
        raise InputError(f"{path}: not a profile file: it has no '{MARK}'; `cotenant profile` writes one")
    if data[MARK] != VERSION:
        raise InputError(f"{path}: version {data[MARK]!r} of profile files; this program reads {VERSION}")
    reader = _Reader(str(path))
    models = {name: reader.model(name, entry) for name, entry in reader.mapping(data, "models").items()}
    pairs = tuple(reader.pair(number, entry) for number, entry in enumerate(reader.items(data, "pairs"), 1))
    sizes = {kind: reader.number({"gib": gib}, "gib", f"gpu_gib of '{kind}'")
             for kind, gib in reader.mapping(data, "gpu_gib").items()}  # fmt: skip
    return ProfileFile(str(data.get("reference", "")), sizes, models, pairs)


class _Reader:
    """Fields of a document, checked; errors name the file and the field."""

    def __init__(self, where: str) -> None:
        self.where = where

    def model(self, name: str, entry: Any) -> MeasuredModel:
        where = f"model '{name}'"
        body = self.mapping({"model": entry}, "model", where)
        command = self.items(body, "command", where)
        if not all(isinstance(word, str) for word in command):
            raise InputError(f"{self.where}: {where}: command must be a list of words")
        on = {
            kind: self.measured(self.mapping({kind: one}, kind, where), f"{where} on '{kind}'")
            for kind, one in self.mapping(body, "on", where).items()
        }
        gpus = int(self.number(body, "gpus", where, 1.0))
        return MeasuredModel(tuple(command), str(body.get("workdir", "")), max(gpus, 1), on)

    def measured(self, body: Mapping[str, Any], where: str) -> Measured:
        numbers = {name: self.number(body, name, where) for name in _NUMBERS}
        cycle = LifecycleRow(**{name: self.number(body, name, where) for name in NAMES})
        points = {
            name: tuple(self.point(one, key, f"{where}, {name}") for one in self.items(body, name, where))
            for name, key in (("batches", "batch"), ("sub_batches", "parts"))
        }
        by_cores = tuple(
            (self.number(one, "cores", where), self.number(one, "steps_per_s", where))
            for one in self.items(body, "by_cores", where)
        )
        if any(not low < high for (low, _), (high, _) in pairwise(by_cores)):
            raise InputError(f"{self.where}: {where}: the cores of by_cores must rise")
        stages = self.mapping(body, "stage_s", where)
        names = ("storage", "cpu", "gpu", "network")
        stage_s = tuple(self.number(stages, name, f"{where}, stage_s", 0.0) for name in names) if stages else None
        batch = int(self.number(body, "batch", where, 0.0))
        more = {"stage_s": stage_s, "slices": self.slices(body, where), **points, **numbers}
        return Measured(batch=batch, lifecycle=cycle, by_cores=by_cores, **more)  # type: ignore[arg-type]

    def slices(self, body: Mapping[str, Any], where: str) -> tuple[tuple[str, float], ...]:
        given = self.mapping(body, "slices", where)
        found = tuple((str(name), self.number(given, name, f"{where}, slices")) for name in given)
        if not all(0 < speed <= 1 for _, speed in found):
            raise InputError(f"{self.where}: {where}: slices: a speed is above 0 and at most 1 (a whole GPU)")
        return found

    def point(self, body: Any, key: str, where: str) -> SpeedPoint:
        entry = self.mapping({where: body}, where, where)
        numbers = {name: self.number(entry, name, where) for name in _POINT}
        at = self.number(entry, key, where, 0.0)
        if at < 1 or not numbers["steps_per_s"] > 0:
            raise InputError(f"{self.where}: {where}: needs '{key}', at least 1, and 'steps_per_s' above 0")
        return SpeedPoint(int(at), **numbers)

    def pair(self, number: int, entry: Any) -> MeasuredPair:
        where = f"pair {number}"
        body = self.mapping({where: entry}, where, where)
        texts = {name: str(body.get(name, "")) for name in ("gpu_type", "share", "a", "b")}
        if not all(texts.values()) or texts["share"] not in SHARES:
            raise InputError(f"{self.where}: {where} needs gpu_type, a, b and share, which is time or mps")
        numbers = {f"{one}_{what}": self.number(body, f"{one}_{what}", where) for one in "ab" for what in _OF_EACH}
        if not (numbers["a_speed"] > 0 and numbers["b_speed"] > 0):
            raise InputError(f"{self.where}: {where}: a_speed and b_speed must be above 0 (1: as fast as alone)")
        kind, share, a, b = texts.values()
        return MeasuredPair(kind, share, a, b, **numbers)

    def number(self, body: Mapping[str, Any], name: str, where: str, absent: float = math.nan) -> float:
        value = body.get(name, absent) if isinstance(body, Mapping) else None
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or math.isinf(value):
            raise InputError(
                f"{self.where}: {where}: {name} is {value!r}: write a number of at least 0, or leave it out"
            )
        return float(value)

    def mapping(self, body: Mapping[str, Any], name: str, where: str = "") -> Mapping[str, Any]:
        value = body.get(name, {})
        if not isinstance(value, Mapping):
            raise InputError(f"{self.where}: {f'{where}: ' if where else ''}{name} must be an object")
        return value

    def items(self, body: Mapping[str, Any], name: str, where: str = "") -> list[Any]:
        value = body.get(name, [])
        if not isinstance(value, list):
            raise InputError(f"{self.where}: {f'{where}: ' if where else ''}{name} must be a list")
        return value


def as_data(file: ProfileFile) -> dict[str, Any]:
    """A file as JSON has it, without what is not known."""
    return {
        MARK: VERSION,
        "reference": file.reference,
        "gpu_gib": {kind: _short(gib) for kind, gib in file.gpu_gib.items()},
        "models": {name: model_data(model) for name, model in file.models.items()},
        "pairs": [pair_data(pair) for pair in file.pairs],
    }


def model_data(model: MeasuredModel) -> dict[str, Any]:
    """One model as JSON has it."""
    on = {kind: _measured_data(one) for kind, one in model.on.items()}
    return {"command": list(model.command), "workdir": model.workdir, "gpus": model.gpus, "on": on}


def pair_data(pair: MeasuredPair) -> dict[str, Any]:
    """One pair as JSON has it."""
    return _known({one.name: getattr(pair, one.name) for one in fields(MeasuredPair)})


def _measured_data(one: Measured) -> dict[str, Any]:
    numbers = {name: getattr(one, name) for name in _NUMBERS} | {name: getattr(one.lifecycle, name) for name in NAMES}
    data: dict[str, Any] = {"batch": one.batch} if one.batch else {}
    data |= _known(numbers)
    for name, key in (("batches", "batch"), ("sub_batches", "parts")):
        points: tuple[SpeedPoint, ...] = getattr(one, name)
        if points:
            data[name] = [_known({key: p.at} | {field: getattr(p, field) for field in _POINT}) for p in points]
    if one.by_cores:
        data["by_cores"] = [{"cores": _short(cores), "steps_per_s": _short(rate)} for cores, rate in one.by_cores]
    if one.stage_s is not None:
        data["stage_s"] = dict(zip(("storage", "cpu", "gpu", "network"), map(_short, one.stage_s), strict=True))
    if one.slices:
        data["slices"] = {name: _short(speed) for name, speed in one.slices}
    return data


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    pairs = ((name, _short(value) if isinstance(value, float) else value) for name, value in values.items())
    return {name: value for name, value in pairs if not (isinstance(value, float) and math.isnan(value))}


def _short(value: float) -> float:
    """Six digits: more is noise, and hard to read."""
    return float(f"{value:.{_DIGITS}g}")
