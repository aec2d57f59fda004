"""How fast live jobs run on which GPU type, from the same profiles that the simulator loads.

Looked up once per kind of job (model and GPU count). A job that names a GPU type runs at 0 on all others, and so does
one on types whose GPUs have less memory than it needs. Two kinds share GPUs as the profile says, unless their memory
does not fit, one of them may not be stopped (nobody could undo it), or it was seen not to pay.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from cotenant.beliefs.live_pairs import completed, completes
from cotenant.beliefs.type_rates import TypeRates
from cotenant.core.declared import Oversubscription, Speeds
from cotenant.core.errors import InputError
from cotenant.core.jobspec import JobSpec
from cotenant.core.stages import UNMEASURED, Stages
from cotenant.core.together import CURVE, LEVELS, SoftMemory, Together
from cotenant.core.workload import Codes, Floats, Ints, make_workload
from cotenant.workload.profiles import Kind, Profile, load_profile
from cotenant.workload.profiles.lifecycle import UNKNOWN, LifecycleRow
from cotenant.workload.profiles.softening import bus_curve, curve_of

UNSEEN_BUSY = 0.5  # of a kind that has not run yet
HEADROOM = 0.9  # of a GPU's memory that two may take together who are tried
Veto = tuple[Kind, Kind, str]
"""Two kinds, in order, that do not gain from sharing GPUs of a type."""


def veto(one: Kind, two: Kind, gpu_type: str) -> Veto:
    """The veto of a pair, whichever is named first."""
    return (one, two, gpu_type) if one <= two else (two, one, gpu_type)


@dataclass(frozen=True, slots=True)
class Use:
    """What a kind of job keeps of a GPU alone: its share of the time, and GiB of its memory."""

    busy: float
    gib: float


@dataclass(slots=True)
class Seen:
    """What was measured of pairs: those that do not pay, and speeds against alone of the first beside the second.

    `uses` is what kinds use on a GPU type; `guesses` are the same speeds of pairs that may be tried; `stages` are
    seconds per step in each stage, as jobs of a kind have told; `rates` are speeds on one GPU type against another.
    """

    vetoes: frozenset[Veto] = frozenset()
    ratios: dict[tuple[Kind, Kind, str], float] = field(default_factory=dict)
    changes: int = 0
    uses: dict[tuple[Kind, str], Use] = field(default_factory=dict)
    guesses: dict[tuple[Kind, Kind, str], float] = field(default_factory=dict)
    stages: dict[tuple[Kind, str], tuple[float, ...]] = field(default_factory=dict)
    rates: TypeRates = field(default_factory=TypeRates)

    def copy(self) -> Seen:
        """As it is now."""
        parts = dict(self.uses), dict(self.guesses), dict(self.stages), self.rates.copy()
        return Seen(self.vetoes, dict(self.ratios), self.changes, *parts)


@dataclass(frozen=True, slots=True)
class LiveKind:
    """What jobs have in common that run alike here: `only` on that GPU type, `mem_gib` per GPU, `alone` on GPUs.

    Their `batch` per GPU may be cut into smaller ones whose gradients they add up; 0: it may not. `program` is what
    they are known by to whoever learns from them, where they name no model.
    """

    kind: Kind
    only: str = ""
    mem_gib: float = 0.0
    alone: bool = False
    batch: int = 0
    program: str = ""
    least_gib: float = 0.0  # of `mem_gib`, with which they can do; 0: with all of it
    speeds: Speeds = ()  # with less than that

    @property
    def learned(self) -> Kind:
        """What is learned of them is kept by this."""
        return self.kind[0] or self.program, self.kind[1]

    def runs_on(self, gpu_type: str, room_gib: float) -> bool:
        """Whether it may have GPUs of this type and size (0: nobody knows)."""
        return self.only in ("", gpu_type) and (not room_gib or self.mem_gib <= room_gib)

    def fits(self, other: LiveKind, room_gib: float) -> bool:
        """Whether both may sit on a GPU of this size; memory that nobody states is believed to fit."""
        fit = not room_gib or self.mem_gib + other.mem_gib <= room_gib
        return fit and not (self.alone or other.alone)


_NOTABLE = 0.1  # of a speed


class LiveProfiles:
    """Speeds of the kinds seen so far on the GPU types of the backend. A kind keeps its number for ever."""

    def __init__(
        self, profile: str, types: Iterable[str], gpu_gib: Mapping[str, float], rule: Oversubscription | None = None
    ) -> None:
        self.rule = rule  # None: peaks must fit
        self.profile, self.types, self.gpu_gib = profile, tuple(dict.fromkeys(types)), dict(gpu_gib)
        self.kinds: list[LiveKind] = []
        self._numbers: dict[LiveKind, int] = {}
        self._speed = np.ones((0, len(self.types), 2))
        self._rates, self._learned, self._even = TypeRates(), 0, np.ones((len(self.types), 2))
        self._known: dict[Kind, Floats] = {}
        self._steps: dict[Kind, float] = {}
        self._lifecycle: dict[Kind, LifecycleRow] = {}
        self._busy: dict[Kind, float] = {}
        self._paired: tuple[object, NDArray[np.float64] | None] = None, None
        self._beside: tuple[object, Together | None] = None, None
        self._raw: tuple[frozenset[Kind], Profile | None] = frozenset(), None
        self._load([("", 1)])  # a profile that cannot be read, or lacks a type, is refused at the start

    @property
    def speed(self) -> NDArray[np.float64]:
        """Kind x type x (consolidated, spread); 0 where a kind does not run."""
        return self._speed

    def kind_of(self, kind: LiveKind) -> int:
        """The number of a kind, known or new."""
        number = self._numbers.get(kind)
        if number is None:
            number = self._numbers[kind] = len(self.kinds)
            self.kinds.append(kind)
            self._speed = np.concatenate([self._speed, self._row(kind)[None]])
        return number

    def squeezes(self, spec: JobSpec) -> tuple[float, Speeds]:
        """What a job can do with of its memory, and how fast it is then; nothing of it where peaks must fit."""
        return (0.0, ()) if self.rule is None else (spec.gpu_mem_min_gib, spec.gpu_mem_speeds)

    def learn(self, rates: TypeRates) -> bool:
        """Believe what was measured of types before the profile; whether speeds have changed by that notably.

        Policies solve anew for other speeds, so those that were only confirmed stay as they are.
        """
        if rates is self._rates and rates.changes == self._learned:
            return False
        self._rates, self._learned = rates, rates.changes
        fresh = np.array([self._row(kind) for kind in self.kinds]).reshape(self._speed.shape)
        if np.allclose(fresh, self._speed, rtol=_NOTABLE, atol=0.0):
            return False
        self._speed = fresh
        return True

    def _row(self, kind: LiveKind) -> Floats:
        """Type x (consolidated, spread)."""
        own = self._even if self.profile == "none" else self._of(kind.kind)
        runs = [kind.runs_on(name, self.gpu_gib.get(name, 0.0)) for name in self.types]
        return np.where(np.array(runs)[:, None], self._rates.speeds(kind.learned, self.types, own), 0.0)

    def steps_per_s(self, kind: LiveKind) -> float:
        """Steps per second of work of such jobs, NaN where nobody knows."""
        return self._steps.get(kind.kind, np.nan)

    def lifecycle_of(self, kind: LiveKind) -> LifecycleRow:
        """How long such jobs take to come and go by the profile, NaN where it does not say."""
        if self.profile != "none":
            self._of(kind.kind)
        return self._lifecycle.get(kind.kind, UNKNOWN)

    def busy(self, kind: LiveKind) -> float:
        """Share of the time in which such jobs keep GPUs busy alone, by the profile; NaN where it does not say.

        A share of 1 is what profiles have that never measured it.
        """
        known = self._busy.get(kind.kind, 1.0)
        return known if known < 1.0 else np.nan

    @property
    def knows_nothing(self) -> bool:
        """Whether all kinds are believed to be alike on all types: there is no profile, and nothing was measured."""
        return self.profile == "none" and not self._learned

    def of(self, kind: LiveKind, gpu_type: str) -> float:
        """Seconds of work per second of such a job; 1 on types that nobody knew at the start."""
        if gpu_type not in self.types or self.knows_nothing:
            return 1.0
        own = self._even if self.profile == "none" else self._of(kind.kind)
        return float(self._rates.speeds(kind.learned, self.types, own)[self.types.index(gpu_type), 0])

    def pairs(self, seen: Seen, belief: str = "oracle") -> NDArray[np.float64] | None:
        """Kind x kind x type: speed of the first beside the second; None where the profile knows no pairs.

        What was measured of a pair goes before the profile; `belief` says whether others are completed from these. The
        same object for the same question: policies solve anew when they see another one.
        """
        asked = len(self.kinds), seen.vetoes, len(seen.ratios), seen.changes, self._learned, belief
        if self._paired[0] != asked:
            self._paired = asked, self._pairs(seen, belief)
        return self._paired[1]

    def _pairs(self, seen: Seen, belief: str) -> NDArray[np.float64] | None:
        kinds, wants = self.kinds, completes(belief)
        profiled, place = self._profiled()
        known = profiled.pairs if profiled is not None else None
        if known is None:
            return None
        ratio = np.full((len(kinds), len(kinds), len(self.types)), np.nan)
        able = np.zeros(ratio.shape, bool)
        for a, one in enumerate(kinds):
            for b, two in enumerate(kinds[: a + 1]):
                if one.kind[1] != two.kind[1]:
                    continue
                rows = place[one.kind], place[two.kind]
                strange = min(int(known.place[row]) for row in rows) < 0
                for column, name in enumerate(self.types):
                    told = known.pair_speed(*rows, column)
                    if not (min(told) > 0 or (wants and strange)):
                        continue
                    for x, y, speed in ((a, b, told[0]), (b, a, told[1])):
                        pair = kinds[x].learned, kinds[y].learned, name
                        otherwise = np.nan if strange else speed / self._of(kinds[x].kind)[column, 0]
                        ratio[x, y, column] = seen.ratios.get(pair, otherwise)
                    tried = not strange or self._may_try(one, two, name, seen)
                    able[a, b, column] = able[b, a, column] = tried and self._may_share(one, two, name, seen)
        if wants:
            ratio = completed(ratio, np.array([kind.kind[1] for kind in kinds], np.int64), belief)
        return np.where(able, np.nan_to_num(ratio) * self._speed[:, None, :, 0], 0.0)

    def _may_share(self, one: LiveKind, two: LiveKind, gpu_type: str, seen: Seen) -> bool:
        """Whether nothing forbids that two of one GPU count share GPUs of a type."""
        apart = veto(one.learned, two.learned, gpu_type) in seen.vetoes or {one.only, two.only} - {"", gpu_type}
        return not apart and one.fits(two, self.gpu_gib.get(gpu_type, 0.0))

    def together(self, seen: Seen) -> Together:
        """What is believed of these kinds in company; the same object for the same question.

        What was seen of a pair, and how busy a kind was seen to keep its GPUs, goes before the profile; a pair that
        does not pay counts as impossible; one that the profile does not know is as guessed. Memory is what jobs ask
        for, else what they were seen to use. Nothing of it can lie on the host, so a job that has less than it needs
        does not run at all.
        """
        asked = len(self.kinds), seen.vetoes, len(seen.ratios), seen.changes
        if self._beside[0] != asked or self._beside[1] is None:
            self._beside = asked, self._together(seen)
        found = self._beside[1]
        assert found is not None
        return found

    def _together(self, seen: Seen) -> Together:
        kinds, types = self.kinds, self.types
        profiled, place = self._profiled()
        known = profiled.together if profiled is not None else None
        ratio, guess = np.zeros((2, len(kinds), len(kinds), len(types)))
        pace, memory = np.zeros((len(kinds), LEVELS)), np.zeros((len(kinds), LEVELS))
        eased = np.ones((len(kinds), LEVELS))
        busy, curve = np.ones(len(kinds)), np.zeros((len(kinds), len(CURVE)))
        curve[:, -1] = pace[:, 0] = 1.0

        knows = [known is not None and bool((known.ratio[place[kind.kind]] > 0).any()) for kind in kinds]
        for a, one in enumerate(kinds):
            used = [use for name in types if (use := seen.uses.get((one.learned, name))) is not None]
            memory[a] = self._needs_gib(one, types, seen)
            own = place.get(one.kind, -1)
            if used:
                busy[a] = max(use.busy for use in used)
            elif known is not None and own >= 0:
                busy[a] = known.busy[own]
            if known is not None and own >= 0 and one.batch > 0 and (knows[a] or not used):
                cut = np.array([one.batch % 2**level == 0 for level in range(LEVELS)])
                pace[a] = np.where(cut, known.pace[own], 0.0)
                whole, eased[a] = known.memory_gib[own, 0], known.easing()[own]
                memory[a] = one.mem_gib * (known.memory_gib[own] / whole if whole > 0 else 1.0)
            for b, two in enumerate(kinds):
                for column, name in enumerate(types):
                    if one.alone or two.alone or {one.only, two.only} - {"", name}:
                        continue
                    if veto(one.learned, two.learned, name) in seen.vetoes:
                        continue
                    pair = one.learned, two.learned, name
                    guessed = seen.guesses.get(pair, 0.0) if not (knows[a] and knows[b]) else 0.0
                    believed = guessed if guessed and self._may_try(one, two, name, seen) else 0.0
                    if known is not None and min(own, place.get(two.kind, -1)) >= 0:
                        at = own, place[two.kind], column
                        believed = float(known.ratio[at]) or believed
                        guess[a, b, column] = believed if known.guess is None else known.guess[at]
                    ratio[a, b, column] = seen.ratios.get(pair, believed)
        ratio[(ratio <= 0) | (ratio.transpose(1, 0, 2) <= 0)] = 0.0
        room = np.array([self.gpu_gib.get(name, 0.0) or np.inf for name in types])
        guess = np.where((ratio > 0) & (guess > 0), guess, ratio)  # what nobody can guess is believed as it is known
        found = Together(
            np.minimum(ratio, 1.0), pace, memory, busy, room, curve, guess=np.minimum(guess, 1.0), eased=eased
        )
        return found if self.rule is None else self._softened(found, self.rule)

    def _softened(self, found: Together, rule: Oversubscription) -> Together:
        """With what jobs say that they can do with. Of one that does not say how fast, the bus tells; where nobody
        knows its steps either, it is as fast as the part of its memory is large."""
        least = np.array([kind.least_gib / kind.mem_gib if kind.least_gib > 0 else 1.0 for kind in self.kinds])
        steps = np.array([self.steps_per_s(kind) for kind in self.kinds])
        steps *= np.max(self._speed[:, :, 0], axis=1, initial=0.0)
        curve = found.curve.copy()
        for at, kind in enumerate(self.kinds):
            if kind.speeds:
                curve[at] = curve_of(kind.speeds, kind.mem_gib)
            elif kind.least_gib > 0:
                missing_gib = (1 - CURVE) * kind.mem_gib
                curve[at] = CURVE if np.isnan(steps[at]) else bus_curve(missing_gib, float(steps[at]), rule.bus_gib_s)
        return replace(found, curve=curve, soft=SoftMemory(rule, least, np.nan_to_num(steps)))

    def _may_try(self, one: LiveKind, two: LiveKind, gpu_type: str, seen: Seen) -> bool:
        """Whether a GPU holds two that nobody has seen together, with some to spare: all of it has to be known."""
        uses = (seen.uses.get((kind.learned, gpu_type)) for kind in (one, two))
        used_gib = [use.gib if use is not None else 0.0 for use in uses]
        needs_gib = [max(kind.mem_gib, gib) for kind, gib in zip((one, two), used_gib, strict=True)]
        return min(needs_gib) > 0 and sum(needs_gib) <= HEADROOM * self.gpu_gib.get(gpu_type, 0.0)

    def stages(self, of: Ints, nominal_s: Floats, seen: Seen) -> Stages | None:
        """Stage times of the jobs' steps; `of` is the kind of each row.

        What jobs of a kind have told of their stages goes before the profile; of several GPU types the slowest counts.
        Of kinds that the profile does not know, those that may be tried have two stages: computing on the GPU while
        they were seen to keep it busy, and on the host the rest of the time.
        """
        kinds, types = self.kinds, self.types
        profiled, place = self._profiled()
        times = np.full((len(kinds), 4), np.nan)
        if profiled is not None and profiled.stage_s is not None:
            times = np.array([profiled.stage_s[place[kind.kind]] for kind in kinds]).reshape(-1, 4)
        for number, kind in enumerate(kinds):
            heard = [seen.stages[key] for name in types if (key := (kind.learned, name)) in seen.stages]
            if heard:
                times[number] = max(heard, key=sum)
        told = np.isfinite(times).all(axis=1)
        usual_s = float(np.median(times[told].sum(axis=1))) if told.any() else 1.0
        uses = [max((use.busy for name in types if (use := seen.uses.get((kind.learned, name)))), default=UNSEEN_BUSY)
                for kind in kinds]  # fmt: skip
        tried = {one for one, _, _ in seen.guesses}
        new = np.array([kind.learned in tried for kind in kinds], bool) & ~told
        for number in np.flatnonzero(new).tolist():
            times[number] = 0.0, usual_s * (1.0 - uses[number]), usual_s * uses[number], 0.0
        known = np.isfinite(times).all(axis=1) & ~np.array([kind.alone for kind in kinds], bool)
        if not known.any():
            return None
        times = np.where(known[:, None], times, 0.0)
        apart = frozenset(
            (a, b)
            for a, one in enumerate(kinds)
            for b, two in enumerate(kinds[a:], a)
            if known[a] and known[b] and not self._may_group(one, two, bool(told[a] and told[b]), seen)
        )
        return Stages(
            of=np.where(known[of], of, -1).astype(np.int64),
            gpus=np.array([kind.kind[1] for kind in kinds], np.int64),
            times=times,
            alone_s=times.sum(axis=1),
            start_s=np.zeros(len(kinds)),
            gpu_gib=np.array([self._needs_gib(kind, types, seen) for kind in kinds]),
            nominal_s=nominal_s,
            contention=UNMEASURED if profiled is None else profiled.contention,
            apart=apart,
        )

    def _may_group(self, one: LiveKind, two: LiveKind, told: bool, seen: Seen) -> bool:
        """Whether two may interleave on every GPU type: the profile says how (`told`), or they may be tried there."""
        pairs = [veto(one.learned, two.learned, name) for name in self.types]
        if told or any(pair in seen.vetoes for pair in pairs):
            return not any(pair in seen.vetoes for pair in pairs)
        return all(
            (pair in seen.guesses or pair in seen.ratios) and self._may_try(one, two, pair[2], seen) for pair in pairs
        )

    @staticmethod
    def _needs_gib(kind: LiveKind, types: Iterable[str], seen: Seen) -> float:
        """What it asks for, else what such jobs were seen to use; 0 where nobody knows."""
        used = (seen.uses.get((kind.learned, name)) for name in types)
        return kind.mem_gib or max((use.gib for use in used if use is not None), default=0.0)

    def _profiled(self) -> tuple[Profile | None, dict[Kind, int]]:
        """What the profile says of the kinds seen so far (None where there is none), and their numbers in it."""
        kinds = frozenset(kind.kind for kind in self.kinds)
        if kinds != self._raw[0]:
            found = None
            if self.profile != "none" and kinds:
                try:
                    found = self._profile(sorted(kinds))
                except (InputError, OSError) as error:  # it could be read at the start: go on without
                    sys.stderr.write(f"cotenant: profile {self.profile}: {error}; nothing is shared\n")
            self._raw = kinds, found
        profile = self._raw[1]
        return profile, {} if profile is None else {kind: number for number, kind in enumerate(profile.kinds)}

    def _of(self, kind: Kind) -> Floats:
        if kind not in self._known:
            try:
                self._load([kind])
            except (InputError, OSError) as error:  # it could be read at the start: go on without
                sys.stderr.write(f"cotenant: profile {self.profile}: {error}; model '{kind[0]}' runs at speed 1\n")
                self._known[kind], self._steps[kind] = np.ones((len(self.types), 2)), np.nan
        return self._known[kind]

    def _load(self, kinds: Sequence[Kind]) -> None:
        if self.profile == "none":
            return
        found = self._profile(kinds)
        for kind, speed, steps in zip(found.kinds, found.speed, found.steps_per_s.tolist(), strict=True):
            self._steps[kind] = steps
            self._known[kind] = speed
        if found.lifecycle is not None:
            self._lifecycle |= {kind: found.lifecycle.row(number) for number, kind in enumerate(found.kinds)}
        if found.together is not None:
            self._busy |= dict(zip(found.kinds, found.together.busy.tolist(), strict=True))

    def _profile(self, kinds: Sequence[Kind]) -> Profile:
        models = Codes(np.arange(len(kinds)), tuple(model for model, _ in kinds))
        gpus, one = np.array([count for _, count in kinds], np.int64), np.ones(len(kinds))
        work = make_workload("live", 0 * one, gpus, one, model=models)
        return load_profile(self.profile, work, self.types, self.rule is not None)
