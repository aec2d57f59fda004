"""What jobs declare of their GPU memory, and profiles for memory that gives (`core.memory`).

A log may say per job how much memory it needs at its peak (`gpu_mem`, GiB), at least (`gpu_mem_min`), and how fast it
is in between (`gpu_mem_speeds`: pairs of GiB and speed). What it does not say is the profile's; without any least a
job gives nothing. Of a job whose speed over memory nobody has measured it is computed from the bus: a step takes longer
by what is missing, out and back, without any overlap.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cotenant.core.declared import DECLARED, Oversubscription, Speeds
from cotenant.core.errors import InputError
from cotenant.core.together import CURVE, SoftMemory, Together
from cotenant.core.workload import Floats, Ints, Workload
from cotenant.workload.profiles.base import Pairs, Profile


def curve_of(speeds: Speeds, peak_gib: float) -> Floats:
    """Speeds at the points of a curve, from pairs of GiB and speed; with the whole peak it is 1."""
    gib, speed = zip(*speeds, (peak_gib, 1.0), strict=True)
    return np.asarray(np.interp(CURVE * peak_gib, gib, speed), np.float64)


def bus_curve(missing_gib: Floats, steps_per_s: float, bus_gib_s: float) -> Floats:
    """Speed when so much goes out and comes back in every step, and nothing else happens meanwhile."""
    return np.asarray(1.0 / (1.0 + 2.0 * missing_gib * steps_per_s / bus_gib_s), np.float64)


def declare(profile: Profile, work: Workload, soft: bool) -> Profile:
    """The profile with kinds of their own for jobs that declare their memory; the same where none does.

    Unless memory is `soft`, who needs more than a GPU has does not run there, nor do two beside each other.
    """
    if profile.together is None or not work.extra.keys() & set(DECLARED):
        return profile
    nothing = np.full(len(work), np.nan)
    peak, least = (np.asarray(work.extra.get(name, nothing), np.float64) for name in DECLARED[:2])
    speeds: list[Speeds] = list(work.extra.get(DECLARED[2], [()] * len(work)))
    keys = list(
        zip(profile.row.tolist(), np.nan_to_num(peak).tolist(), np.nan_to_num(least).tolist(), speeds, strict=True)
    )
    found = {key: at for at, key in enumerate(sorted(set(keys)))}
    row = np.array([found[key] for key in keys], np.int64)
    profile = _take(profile, np.array([key[0] for key in found], np.int64), row)
    together = profile.together
    assert together is not None
    memory, curve = together.memory_gib.copy(), together.curve.copy()
    leasts = np.ones(len(found)) if together.least is None else together.least.copy()
    told = np.zeros(len(found), bool) if together.told is None else together.told.copy()
    for at, (_, peak_gib, least_gib, pairs) in enumerate(found):
        if peak_gib > 0:
            memory[at] *= peak_gib / memory[at, 0] if memory[at, 0] > 0 else 0.0
            memory[at, 0] = peak_gib
        if least_gib > memory[at, 0]:
            model = profile.kinds[at][0]
            raise InputError(f"gpu_mem_min is {least_gib:g}, more than the {memory[at, 0]:g} GiB of model '{model}'")
        leasts[at] = least_gib / memory[at, 0] if least_gib > 0 else leasts[at]
        if pairs:
            curve[at], told[at] = curve_of(pairs, memory[at, 0]), True
    together = replace(together, memory_gib=memory, curve=curve, least=leasts, told=told)
    return replace(profile, together=together) if soft else _hard(replace(profile, together=together))


def _take(profile: Profile, of: Ints, row: Ints) -> Profile:
    """Other kinds, each like one of the profile's."""
    known = profile.together
    assert known is not None
    every: dict[str, Any] = {
        name: None if (value := getattr(known, name)) is None else value[of]
        for name in ("pace", "memory_gib", "busy", "curve", "alike", "eased", "least", "told")
    }
    every |= {
        name: None if (value := getattr(known, name)) is None else value[np.ix_(of, of)]
        for name in ("ratio", "guess", "nearby")
    }
    return replace(
        profile,
        kinds=tuple(profile.kinds[at] for at in of.tolist()),
        row=row,
        speed=profile.speed[of],
        steps_per_s=profile.steps_per_s[of],
        pairs=None if profile.pairs is None else Pairs(profile.pairs.place[of], profile.pairs.table),
        sensitivity=None if profile.sensitivity is None else profile.sensitivity.take(of),
        together=replace(known, **every),
        stage_s=None if profile.stage_s is None else profile.stage_s[of],
        lifecycle=None if profile.lifecycle is None else profile.lifecycle.take(of),
    )


def _hard(profile: Profile) -> Profile:
    """Peaks must fit: alone and in pairs."""
    together = profile.together
    assert together is not None
    need, room = together.memory_gib[:, 0], together.gpu_gib
    fits = need[:, None, None] + need[None, :, None] <= room
    ratio = np.where(fits, together.ratio, 0.0)
    guess = None if together.guess is None else np.where(fits, together.guess, 0.0)
    speed = np.where((need[:, None] <= room)[:, :, None], profile.speed, 0.0)
    return replace(
        profile,
        speed=speed,
        together=replace(together, ratio=ratio, guess=guess),
        pairs=_paired(profile, fits.astype(np.float64)),
    )


def soften(profile: Profile, rule: Oversubscription, *, placed: bool) -> Profile:
    """The profile of a cluster whose GPU memory gives.

    Who cannot do with what a GPU has, or passes the cap by itself, does not run there. `placed`: what jobs are granted
    is worked out as they sit on their GPUs; else speeds already say what a whole GPU costs who needs more, and what
    pairs cost each other.
    """
    known = profile.together
    if known is None:
        raise InputError(
            f"--oversubscribe: profile '{profile.name}' does not say what memory jobs need; use --profile h200 or a"
            " file of `cotenant profile`"
        )
    steps = np.nan_to_num(profile.steps_per_s * profile.speed[:, :, 0].max(axis=1))
    least = np.ones(len(steps)) if known.least is None else np.where(known.memory_gib[:, 0] > 0, known.least, 1.0)
    curve = known.curve.copy()
    for at in np.flatnonzero(steps > 0).tolist():
        if known.told is None or not known.told[at]:
            curve[at] = bus_curve((1 - CURVE) * known.memory_gib[at, 0], float(steps[at]), rule.bus_gib_s)
    together = replace(known, curve=curve, soft=SoftMemory(rule, least, steps))
    alone = np.stack([together.alone_parts(kind) for kind in range(len(known.gpu_gib))], axis=1)
    holds = together.claimed_gib()[:, :1] <= known.gpu_gib
    holds &= known.memory_gib[:, :1] <= rule.cap * known.gpu_gib
    speed, pace = np.where(holds[:, :, None], profile.speed, 0.0), squeezed(together)
    guess = None if known.guess is None else np.where(pace > 0, known.guess, 0.0)
    together = replace(together, ratio=np.where(pace > 0, known.ratio, 0.0), guess=guess)
    if placed:
        return replace(profile, speed=speed, together=together)
    at_best = np.array([[together.speed_at(kind, part) for part in parts] for kind, parts in enumerate(alone.tolist())])
    return replace(profile, speed=speed * at_best[:, :, None], together=together, pairs=_paired(profile, pace))


def squeezed(together: Together) -> Floats:
    """`[kind, other, GPU type]`: speed of a kind with the memory that it is granted beside another; 0 where refused.

    `grant` for all pairs of whole batches at once.
    """
    soft, peak, least = together.soft, together.memory_gib[:, 0], together.claimed_gib()[:, 0]
    assert soft is not None
    both, need, gives = (column[:, None] + column[None, :] for column in (peak, least, peak - least))
    found = np.zeros((len(peak), len(peak), len(together.gpu_gib)))
    for column, room in enumerate(together.gpu_gib.tolist()):
        short = np.clip(np.divide(both - room, gives, out=np.zeros(both.shape), where=gives > 0), 0.0, 1.0)
        missing = short * (peak - least)[:, None]
        sent = 2 * missing * soft.steps_per_s[:, None]
        bears = (need <= room) & (both <= soft.rule.cap * room) & (sent + sent.T <= soft.rule.bus_gib_s)
        parts = 1 - missing / np.maximum(peak, 1e-9)[:, None]
        for kind in range(len(peak)):
            found[kind, :, column] = np.interp(parts[kind], CURVE, together.curve[kind])
        found[:, :, column] = np.where((both <= room) | bears, found[:, :, column], 0.0)
    return found


def _paired(profile: Profile, factor: Floats) -> Pairs | None:
    """The profile's pairs, each speed times a factor by kinds and GPU type."""
    if profile.pairs is None:
        return None
    dense = profile.pairs.pair * factor
    some = np.flatnonzero(profile.pairs.place >= 0)
    place = np.full(len(profile.kinds), -1, np.int64)
    place[some] = np.arange(len(some))
    return Pairs(place, dense[np.ix_(some, some)])
