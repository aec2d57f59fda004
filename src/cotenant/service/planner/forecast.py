"""When jobs will end: the live state played forward often enough in the simulator, with what is not known drawn anew.

The first play takes beliefs at their word, so that an answer is there at once. In the others what jobs have left to
do, their start-ups and what company costs them are drawn from the doubt about each (logarithms are normal), and once
for all of them how fast the machine is: in a line of jobs their own errors cancel, and those of a machine do not. Draws
are spread evenly over the distribution of each job (a Latin hypercube) and depend on the job's name alone: policies
are compared by the same luck.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np

from cotenant.beliefs.company import SharedSpeeds
from cotenant.core import columns as col
from cotenant.core.jit_later import LATER
from cotenant.core.workload import Floats
from cotenant.engine.rates import RateModel
from cotenant.service.forecasts.foretold import HIGH, LOW, Foretold
from cotenant.service.planner.play import Drawn, Player
from cotenant.service.planner.scene import ForecastScene

LEAST_PLAYS, MOST_PLAYS = 8, 40  # beside the first one, for an interval
_MOST_OVER = 10.0  # times the given time that the least number of plays may take
_LONG_S = 2.0  # from then on compiled kernels pay
_LEAST_LEFT = 1e-3  # of the whole work
PAIR_SPREAD = 0.2  # of what company costs
_cdf, _inverse = np.vectorize(NormalDist().cdf, [float]), np.vectorize(NormalDist().inv_cdf, [float])


@dataclass(slots=True)
class Patience:
    """How long a forecast may take: its first play, and all the others together. `told` hears how far it has come.

    `answers` is what the policy told jobs with deadlines at its first decision.
    """

    first_s: float = 30.0
    rest_s: float = 3.0
    told: Callable[[int], object] = lambda done: None
    answers: dict[str, Any] = field(default_factory=dict)


def forecast(scene: ForecastScene, patience: Patience) -> tuple[dict[str, Foretold | None], bool]:
    """What is foretold of each job of a scene, None where it is not known; whether there was time for all of them."""
    if not scene.jobs:
        return {}, True
    limit_s, began_s = patience.first_s, time.monotonic()

    def told(done: int) -> bool:
        if time.monotonic() - began_s > _LONG_S:
            LATER.want()
        patience.told(done)
        return time.monotonic() - began_s <= limit_s

    player = Player(scene, told)
    middle = np.zeros((1, len(scene.jobs)))
    plain, whole = player.play(Drawn(*(part[0] for part in _at_pace(scene, middle, middle, np.zeros((1, 1))))))
    starts, patience.answers = player.first_s, player.answers or {}
    limit_s = player.took_s + _MOST_OVER * patience.rest_s
    count = _plays(patience.rest_s, player.took_s) if whole else 0
    drawn = _ends(scene, player, count)
    found = dict(zip(scene.jobs, _summed_up(plain, drawn, starts), strict=True))
    return found | dict.fromkeys(scene.endless), whole


def _plays(rest_s: float, took_s: float) -> int:
    """An even number of further plays for which there is time after one that took so long; 0: for too few."""
    count = min(int(rest_s / max(took_s, 1e-6)), MOST_PLAYS) // 2 * 2
    if count < LEAST_PLAYS:
        return LEAST_PLAYS if LEAST_PLAYS * took_s <= _MOST_OVER * rest_s else 0
    return count


def _ends(scene: ForecastScene, player: Player, count: int) -> Floats:
    """Play x job: when each ends, as far as there was time."""
    draws = _normal(scene.jobs, count, "work"), _normal(scene.jobs, count, "start"), _normal([""], count, "machine")
    left_s, start = _at_pace(scene, *draws)
    found = []
    for k in range(count):
        ends_s, whole = player.play(Drawn(left_s[k], start[k], _doubted(scene.rates, k)))
        if not whole:
            break
        found.append(ends_s)
    return np.array(found).reshape(len(found), len(scene.jobs))


def _at_pace(scene: ForecastScene, work: Floats, start: Floats, host: Floats) -> tuple[Floats, Floats]:
    """Play x job: what is left to do, and factors of start-ups, by normal numbers; the host's are the same for all."""
    pace = scene.pace.spread * host
    starts = scene.start_shift + scene.start_spread * start + pace
    return _left_s(scene, work) * np.exp(scene.work_shift + scene.bound * pace), np.exp(starts)


def _left_s(scene: ForecastScene, normal: Floats) -> Floats:
    """Play x job: what is left to do, by normal numbers.

    Of a job of which only its whole length is believed it is known that it is longer than what was done already.
    """
    found = scene.left_s * np.exp(scene.spread * normal)
    some = scene.whole & (scene.done_s > 0) & (scene.spread > 0)
    if some.any():
        done_s, spread = scene.done_s[some], scene.spread[some]
        all_s = scene.state.f[scene.rows[some], col.BELIEF]
        over = _cdf(np.log(done_s / all_s) / spread)
        level = np.minimum(over + _cdf(normal[:, some]) * (1.0 - over), 1.0 - 1e-9)
        found[:, some] = np.maximum(all_s * np.exp(spread * _inverse(level)) - done_s, _LEAST_LEFT * all_s)
    return np.asarray(found)


def _normal(jobs: list[str], count: int, what: str) -> Floats:
    """Play x job: normal numbers, for each job one of each `count`-th part of the distribution in an order of its own.

    What is too much in one play is too little in another: medians need few plays so.
    """
    levels = np.array([NormalDist().inv_cdf(0.5 + (k + 0.5) / count) for k in range(count // 2)])
    found = np.empty((count, len(jobs)))
    for at, job in enumerate(jobs):
        draw = np.random.default_rng(zlib.crc32(f"{what} {job}".encode()))
        half = draw.permutation(levels) * draw.choice((-1.0, 1.0), len(levels))
        found[:, at] = np.stack((half, -half), axis=1).ravel()
    return found


def _doubted(rates: RateModel | None, play: int) -> RateModel | None:
    """The same with other slowdowns in company, where those are believed and not only looked up."""
    if not isinstance(rates, SharedSpeeds):
        return None
    made = deepcopy(rates)
    known = made.ratio > 0
    luck = np.exp(PAIR_SPREAD * np.random.default_rng([play, 7]).standard_normal(made.ratio.shape))
    slower = 1.0 / np.where(known, made.ratio, 1.0) - 1.0
    made.ratio = np.where(known, 1.0 / (1.0 + slower * luck), 0.0)
    return made


def _summed_up(plain: Floats, drawn: Floats, starts: Floats) -> list[Foretold | None]:
    """What the first play says of each job, and between which limits the others lie, where there were enough.

    The middle is not that of the others: a line of jobs whose doubts are large, as those of the first ones always are,
    would seem longer the less is known of them.
    """
    known = np.isfinite(plain) & np.isfinite(drawn).all(axis=0) & (len(drawn) >= LEAST_PLAYS)
    limits = np.tile(plain, (2, 1))
    if known.any():
        limits[:, known] = np.quantile(drawn[:, known], (LOW, HIGH), axis=0, method="hazen")
    found: list[Foretold | None] = []
    for end_s, sure, low_s, high_s, start_s in zip(
        plain.tolist(), known, *limits.tolist(), starts.tolist(), strict=True
    ):
        low, high = (min(low_s, end_s), max(high_s, end_s)) if sure else (None, None)
        began_s = start_s if np.isfinite(start_s) else None
        found.append(Foretold(end_s, low, high, start_s=began_s) if np.isfinite(end_s) else None)
    return found
