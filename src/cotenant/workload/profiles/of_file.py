"""A profile out of a profile file: speeds, memory, company, cores and the costs of coming and going.

A model is named as in the file, at its own batch, or `gpt2 (batch size 16)` at another one within its batch curve.
Speed 1 is the file's reference GPU type. A pair that was not measured follows the formula of `together` from the shares
of time in which both keep the GPU busy, fitted to the file's own pairs where there are enough. GPU types that nobody
measured, and gangs of another size than the measured one, run at speed 1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cotenant.core.bound import bound_to_gpu
from cotenant.core.errors import unknown
from cotenant.core.together import CURVE, LEVELS, Together
from cotenant.core.workload import Floats, Workload
from cotenant.workload.profiles.base import UNNAMED_TYPE, Kind, Pairs, Profile, kinds_of, normal, unknown_models
from cotenant.workload.profiles.curves import curves_of, sensitivity_of
from cotenant.workload.profiles.lifecycle import UNKNOWN, Lifecycle
from cotenant.workload.profiles.profile_file import (
    SHARES,
    Measured,
    MeasuredModel,
    MeasuredPair,
    ProfileFile,
    SpeedPoint,
    is_profile_file,
    load_profile_file,
)
from cotenant.workload.profiles.together import fit_formula, fitted, formula, memory_curve

_NAME = re.compile(r"(?P<model>.+?)\s*\(batch size (?P<batch>\d+)\)")
_OPTION = ":sharing="
_WORDS = {"time": "time", "time-sliced": "time", "mps": "mps"}
_ENOUGH = 6  # speeds in company, two of each pair of different models, to fit the formula to


def split_sharing(name: str) -> tuple[Path, str]:
    """`FILE:sharing=mps` as a path and a way of sharing; '' where the name does not say."""
    path, option, word = name.partition(_OPTION)
    if option and word not in _WORDS:
        raise unknown(f"sharing of profile '{path}'", word, _WORDS)
    return Path(path), _WORDS.get(word, "")


def as_shared(name: str, share: str) -> str:
    """The profile with the pairs that were measured as jobs share GPUs here: `time` or `mps`."""
    if name == "h200":
        return f"h200:sharing={'mps' if share == 'mps' else 'time-sliced'}"
    if _OPTION not in name and is_profile_file(Path(name)):
        return f"{name}{_OPTION}{share}"
    return name


@dataclass(frozen=True, slots=True)
class _Known:
    """One kind of a workload, as the file knows it: the model's name in the file, and the batch that is meant."""

    name: str
    model: MeasuredModel
    main: Measured
    batch: int
    point: SpeedPoint

    @property
    def usual(self) -> bool:
        """Whether it is at the batch at which pairs are measured."""
        return self.batch == self.main.batch

    def at(self, gpu_type: str) -> SpeedPoint | None:
        """Its speed on a type; None where nobody measured it there."""
        one = self.model.on.get(gpu_type)
        return None if one is None else _at_batch(one, self.batch)


def file_profile(name: str, work: Workload, gpu_types: Sequence[str], soft: bool = False) -> Profile:
    """The profile of a workload's kinds on these types; with `soft` two may share though memory does not hold both."""
    path, asked = split_sharing(name)
    file = load_profile_file(path)
    share = asked or next((one for one in SHARES if any(pair.share == one for pair in file.pairs)), "time")
    kinds, row = kinds_of(work)
    types = [file.reference if normal(kind) == UNNAMED_TYPE else normal(kind) for kind in gpu_types]
    known = [_find(file, model) for model, _ in kinds]
    speed, steps = _speeds(known, kinds, types)
    together = _together(file, share, known, kinds, types, soft)
    curves = curves_of(file)
    names = ["" if one is None else one.name for one in known]
    return Profile(
        name, tuple(gpu_types), kinds, row, speed, steps,
        pairs=_pairs(kinds, together, speed),
        notes=(*unknown_models(name, kinds, [one is not None for one in known]), *_strange_types(name, file, types)),
        sensitivity=sensitivity_of(names, curves) if curves else None,
        together=together,
        stage_s=np.array([_stages(one) for one in known]).reshape(-1, 4),
        lifecycle=Lifecycle.of_rows([UNKNOWN if one is None else one.main.lifecycle for one in known]),
        slice_speeds=tuple({} if one is None else dict(one.main.slices) for one in known),
    )  # fmt: skip


def _strange_types(name: str, file: ProfileFile, types: Sequence[str]) -> tuple[str, ...]:
    measured = {kind for model in file.models.values() for kind in model.on}
    strange = ", ".join(f"'{kind}'" for kind in dict.fromkeys(types) if kind not in measured)
    return (f"profile {name} was not measured on {strange}: every job runs at speed 1 there",) if strange else ()


def _find(file: ProfileFile, text: str) -> _Known | None:
    name, batch = normal(text), 0
    if match := _NAME.fullmatch(name):
        name, batch = match["model"], int(match["batch"])
    model = file.model(name)
    for main in [] if model is None else file.by_preference(model):
        point = _at_batch(main, batch or main.batch)
        if point is not None and model is not None:
            return _Known(name, model, main, batch or main.batch, point)
    return None


def _at_batch(one: Measured, batch: int) -> SpeedPoint | None:
    """Speed at a batch: as measured, or between two measured ones."""
    if batch == one.batch:
        return SpeedPoint(batch, one.steps_per_s, one.spread, one.gpu_gib, one.busy) if one.steps_per_s > 0 else None
    points = one.points()
    if not points or not points[0].at <= batch <= points[-1].at:
        return None
    sizes = [point.at for point in points]
    step_s = float(np.interp(batch, sizes, [1 / point.steps_per_s for point in points]))
    gib, busy = (float(np.interp(batch, sizes, [getattr(p, name) for p in points])) for name in ("gpu_gib", "busy"))
    return SpeedPoint(batch, 1 / step_s, one.spread, gib, busy)


def _speeds(known: Sequence[_Known | None], kinds: Sequence[Kind], types: Sequence[str]) -> tuple[Floats, Floats]:
    speed = np.ones((len(kinds), len(types), 2))
    steps = np.full(len(kinds), np.nan)
    for at, (one, (_, gpus)) in enumerate(zip(known, kinds, strict=True)):
        if one is None or one.model.gpus != gpus:
            continue
        steps[at] = one.point.steps_per_s
        for column, kind in enumerate(types):
            here = one.at(kind)
            speed[at, column] = 1.0 if here is None else here.steps_per_s / one.point.steps_per_s
    return speed, steps


def _stages(one: _Known | None) -> tuple[float, float, float, float]:
    """As the file says, else GPU and CPU by the share of time in which the GPU is busy."""
    if one is not None and one.usual and one.main.stage_s is not None:
        return one.main.stage_s
    if one is None or math.isnan(one.point.busy):
        return (math.nan,) * 4
    step_s, busy = 1 / one.point.steps_per_s, min(one.point.busy, 1.0)
    return 0.0, (1 - busy) * step_s, busy * step_s, 0.0


def _together(
    file: ProfileFile, share: str, known: Sequence[_Known | None], kinds: Sequence[Kind], types: Sequence[str],
    soft: bool = False,
) -> Together:  # fmt: skip
    """Company of all kinds. What is not known of a kind: it shares with nobody, is always busy, and needs no memory."""
    size = len(kinds)
    gib = np.array([file.gpu_gib.get(kind, np.inf) for kind in types])
    ratio, guess = _ratios(file, share, known, types, np.full(len(types), np.inf) if soft else gib)
    pace, memory = np.zeros((size, LEVELS)), np.zeros((size, LEVELS))
    pace[:, 0] = 1.0
    for at, one in enumerate(known):
        if one is not None:
            pace[at], memory[at] = _levels(one)
    busy = np.array([1.0 if one is None or math.isnan(one.point.busy) else min(one.point.busy, 1.0) for one in known])
    names = [normal(model) if one is None else one.name for one, (model, _) in zip(known, kinds, strict=True)]
    first = {name: at for at, name in reversed(list(enumerate(names)))}
    alike = np.array([first[name] for name in names], np.int64)
    curve = np.array([memory_curve(model) for model, _ in kinds]).reshape(-1, len(CURVE))
    return Together(ratio, pace, memory, busy, gib, curve, guess=guess, alike=alike)


def _ratios(
    file: ProfileFile, share: str, known: Sequence[_Known | None], types: Sequence[str], gib: Floats
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Speeds beside each other, 0 where two cannot share; and as somebody would guess who has not seen the pairs."""
    factors, table = _factors(file, share), _measured_speeds(file, share)
    distinct = {(one.name, one.batch): one for one in known if one is not None}
    place = {key: number for number, key in enumerate(distinct)}
    some = np.array([at for at, one in enumerate(known) if one is not None], np.int64)
    of = np.array([place[one.name, one.batch] for one in known if one is not None], np.int64)
    small = np.zeros((2, len(distinct), len(distinct), len(types)))
    for a, one in enumerate(distinct.values()):
        for b, two in enumerate(distinct.values()):
            guess = _guess(one, two, factors)
            for column, kind in enumerate(types):
                if not _fits(one, two, gib[column]):
                    continue
                seen = table.get((kind, one.name, two.name), table.get((file.reference, one.name, two.name)))
                small[:, a, b, column] = (seen if one.usual and two.usual and seen else guess), guess
    ratio, guesses = np.zeros((2, len(known), len(known), len(types)))
    ratio[np.ix_(some, some)], guesses[np.ix_(some, some)] = small[0][np.ix_(of, of)], small[1][np.ix_(of, of)]
    ratio[(ratio <= 0) | (ratio.transpose(1, 0, 2) <= 0)] = 0.0
    return ratio, np.where(ratio > 0, np.where(guesses > 0, guesses, ratio), 0.0)


def _measured_speeds(file: ProfileFile, share: str) -> dict[tuple[str, str, str], float]:
    """(GPU type, model, model beside it) -> speed of the first against alone; two of one model are as fast."""
    found: dict[tuple[str, str, str], float] = {}
    for pair in file.pairs:
        if pair.share == share:
            a, b, speeds = normal(pair.a), normal(pair.b), against_alone(file, pair)
            one, two = (sum(speeds) / 2,) * 2 if a == b else speeds
            found[pair.gpu_type, a, b], found[pair.gpu_type, b, a] = min(one, 1.0), min(two, 1.0)
    return found


def against_alone(file: ProfileFile, pair: MeasuredPair) -> tuple[float, float]:
    """Speeds of a pair against what its models do alone by the file, which may be from another time than the pair.

    Where one of the two keeps the GPU busy, both wait for the GPU, and what they do beside each other stays the same
    when the host becomes slower: steps per second count. Else both go with the host, and what counts is their speed
    against alone at the same time.
    """
    known = [file.model(name) for name in (pair.a, pair.b)]
    here = [one.on.get(pair.gpu_type) if one is not None else None for one in known]
    then = pair.a_alone, pair.b_alone
    if not any(one is not None and bound_to_gpu(one.busy) for one in here):
        return pair.a_speed, pair.b_speed
    a, b = (
        was / one.steps_per_s if one is not None and was > 0 and one.steps_per_s > 0 else 1.0
        for one, was in zip(here, then, strict=True)
    )
    return pair.a_speed * a, pair.b_speed * b


def _fits(one: _Known, two: _Known, room_gib: float) -> bool:
    return float(np.nan_to_num(one.point.gpu_gib) + np.nan_to_num(two.point.gpu_gib)) <= room_gib


def _guess(one: _Known, two: _Known, factors: tuple[float, float]) -> float:
    """Speed of the first beside the second by the formula; 0 where it is not known how busy they are."""
    u, v = min(one.point.busy, 1.0), min(two.point.busy, 1.0)
    return 0.0 if math.isnan(u + v) else float(1 / formula(u, v, factors))


def _factors(file: ProfileFile, share: str) -> tuple[float, float]:
    """Of the formula: from the pairs of the file, or from those of an H200 where it has few."""
    rows = []
    for pair in file.pairs:
        u, v = (one.point.busy if (one := _find(file, name)) is not None else math.nan for name in (pair.a, pair.b))
        if pair.share == share and pair.gpu_type == file.reference and not math.isnan(u + v):
            rows += [(u, v, 1 / min(pair.a_speed, 1.0)), (v, u, 1 / min(pair.b_speed, 1.0))]
    if len(rows) < _ENOUGH:
        return fitted("mps" if share == "mps" else "time-sliced")
    table = np.array(rows)
    return fit_formula(table[:, 0], table[:, 1], table[:, 2])


def _levels(one: _Known) -> tuple[Floats, Floats]:
    """Speed and GiB with 1, 2, 4, ... sub-batches: as measured, else as the batch curve says of smaller batches."""
    pace, memory = np.zeros(LEVELS), np.zeros(LEVELS)
    measured = {point.at: point for point in one.main.sub_batches} if one.usual else {}
    for level in range(LEVELS):
        parts = 2**level
        if parts in measured:
            part: SpeedPoint | None = measured[parts]
            rate = measured[parts].steps_per_s
        else:
            part = one.point if level == 0 else _at_batch(one.main, one.batch // parts) if _cuts(one, parts) else None
            rate = 0.0 if part is None else part.steps_per_s / parts
        if part is None:
            break
        pace[level] = min(rate / one.point.steps_per_s, 1.0)
        memory[level] = np.nan_to_num(part.gpu_gib if not math.isnan(part.gpu_gib) else one.point.gpu_gib)
    return pace, memory


def _cuts(one: _Known, parts: int) -> bool:
    """Whether the batch may be cut at all: it was seen to be, and into so many equal parts."""
    return bool(one.main.sub_batches) and one.batch >= parts and one.batch % parts == 0


def _pairs(kinds: Sequence[Kind], together: Together, speed: Floats) -> Pairs | None:
    """Pairs of equal GPU count: every member of a gang is slowed like one GPU."""
    some = np.flatnonzero((together.ratio > 0).any(axis=(1, 2)))
    if not len(some):
        return None
    place = np.full(len(kinds), -1, np.int64)
    place[some] = np.arange(len(some))
    gpus = np.array([gpus for _, gpus in kinds])[some]
    beside: NDArray[np.float64] = together.ratio[np.ix_(some, some)] * speed[some][:, None, :, 0]
    return Pairs(place, np.where((gpus[:, None] == gpus[None, :])[:, :, None], beside, 0.0))
