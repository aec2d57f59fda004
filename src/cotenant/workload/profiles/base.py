"""What a profile is: the true speed of every kind of job on every GPU type, alone and beside another.

A kind is a (model, GPU count) of the workload: the engine looks speeds up by kind. Speeds are relative to
the reference that the trace's durations refer to: 1 means as long as the trace says, 0 means that the job
cannot run there (it does not fit the memory).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cotenant.core.errors import unknown
from cotenant.core.sensitivity import Sensitivity
from cotenant.core.stages import UNMEASURED
from cotenant.core.together import Together
from cotenant.core.workload import Floats, Ints, Workload
from cotenant.workload.profiles.lifecycle import Lifecycle

Kind = tuple[str, int]
UNNAMED_TYPE = "gpu"  # the type of a cluster that names none: it is the reference


class Pairs:
    """Speeds of two jobs of equal GPU count that share their GPUs.

    Only kinds that can share take room: `table[p, q, type]` is the speed of p packed with q, and `place`
    says which p a kind is (-1: it shares with nobody).
    """

    def __init__(self, place: Ints, table: Floats) -> None:
        self.place, self.table = place, table

    def pair_speed(self, row_a: int, row_b: int, gpu_type: int) -> tuple[float, float]:
        """Speed of each of two kinds when packed together; (0, 0) when they cannot be."""
        a, b = int(self.place[row_a]), int(self.place[row_b])
        if a < 0 or b < 0:
            return 0.0, 0.0
        return float(self.table[a, b, gpu_type]), float(self.table[b, a, gpu_type])

    @cached_property
    def pair(self) -> Floats:
        """The whole table over kinds: `pair[row_a, row_b, type]` = speed of a when packed with b."""
        rows, types = len(self.place), self.table.shape[2]
        dense = np.zeros((rows, rows, types))
        some = np.flatnonzero(self.place >= 0)
        dense[np.ix_(some, some)] = self.table[np.ix_(self.place[some], self.place[some])]
        return dense


@dataclass(frozen=True, slots=True)
class Profile:
    """Speeds of the kinds of one workload on the GPU types of one cluster.

    `kinds[row]` is a (model, GPUs) and `row[job]` the kind of a job. `speed[row, type, 0 | 1]`: consolidated,
    then spread over more nodes than needed; both or none are 0. `steps_per_s[row]`: steps per second of the
    whole gang at speed 1, NaN where the profile does not say. `pairs` (equal GPU counts) and `together`
    (any counts, and memory) are None where nothing is known. `stage_s[row]`: seconds of a step on the reference type in
    storage, CPU, GPU and network, NaN where not known. `contention[k - 1]`: by how much a cycle of k jobs is longer
    than their stages say, as measured.
    """

    name: str
    gpu_types: tuple[str, ...]
    kinds: tuple[Kind, ...]
    row: Ints
    speed: Floats
    steps_per_s: Floats
    pairs: Pairs | None = None
    notes: tuple[str, ...] = ()
    sensitivity: Sensitivity | None = None  # how speed depends on cores and memory, where that is known
    together: Together | None = None
    stage_s: Floats | None = None
    lifecycle: Lifecycle | None = None  # how long jobs take to come and go, where that was measured
    contention: tuple[float, ...] = UNMEASURED
    slice_speeds: tuple[dict[str, float], ...] = ()  # by kind: speed in slices by their names, as far as measured


def kinds_of(work: Workload) -> tuple[tuple[Kind, ...], Ints]:
    """The distinct (model, GPUs) of a workload, by model code and GPUs, and which one each job is."""
    if not len(work):
        return (), np.zeros(0, np.int64)
    base = int(work.gpus.max()) + 1
    codes, row = np.unique(work.model.code * base + work.gpus, return_inverse=True)
    kinds = tuple((work.model.names[code // base], code % base) for code in codes.tolist())
    return kinds, row.reshape(-1).astype(np.int64)


def normal(name: str) -> str:
    """How names of models and types are compared: without case and outer blanks."""
    return name.strip().lower()


def own_types(profile: str, gpu_types: Sequence[str], reference: str, known: Collection[str]) -> list[str]:
    """GPU types of a cluster as a profile names them; the one of a cluster that names none is its reference."""
    types = [reference if normal(kind) == UNNAMED_TYPE else normal(kind) for kind in gpu_types]
    for kind, shown in zip(types, gpu_types, strict=True):
        if kind not in known:
            raise unknown(f"GPU type of profile {profile}", shown, known)
    return types


def unknown_models(profile: str, kinds: Sequence[Kind], known: Sequence[bool]) -> tuple[str, ...]:
    """A note about models that the profile does not have; they run at speed 1 everywhere."""
    strange = list(dict.fromkeys(kind[0] for kind, has in zip(kinds, known, strict=True) if not has))
    if not strange:
        return ()
    count = len({kind[0] for kind in kinds})
    named = ", ".join(f"'{name}'" for name in strange[:3]) + (", ..." if len(strange) > 3 else "")
    return (
        f"profile {profile} does not know {len(strange)} of {count} models ({named}): "
        "they run at speed 1 everywhere; --models NAME gives jobs without a model one that it knows",
    )
