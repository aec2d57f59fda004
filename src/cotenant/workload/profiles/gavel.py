"""A profile out of a Gavel throughput file: exact rates per model, GPU count and type, against the V100.

A GPU count that the file lacks takes the nearest one in log2. Pairs need exactly the file's GPU count.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cotenant.core.workload import Floats, Workload
from cotenant.workload.profiles.base import Kind, Pairs, Profile, kinds_of, own_types, unknown_models
from cotenant.workload.profiles.together import of_pairs
from cotenant.workload.readers.throughputs import REFERENCE, Key, Throughputs


def gavel_profile(name: str, rates: Throughputs, work: Workload, gpu_types: Sequence[str]) -> Profile:
    """Speeds of a workload's kinds; models that the file does not have run at 1 everywhere."""
    types = own_types(name, gpu_types, REFERENCE, rates.gpu_types)
    kinds, row = kinds_of(work)
    keys = [rates.nearest(model, gpus) for model, gpus in kinds]
    speed = np.ones((len(kinds), len(types), 2))
    steps_per_s = np.full(len(kinds), np.nan)
    for at, key in enumerate(keys):
        if key is None:
            continue
        steps_per_s[at] = base = rates.reference[key]
        for column, kind in enumerate(types):
            speed[at, column] = rates.alone[kind].get(key, 0.0) / base, rates.spread_rate(kind, key) / base
    notes = unknown_models(name, kinds, [key is not None for key in keys])
    pairs = _pairs(rates, kinds, keys, types, steps_per_s)
    together = None if pairs is None else of_pairs(pairs, speed, kinds)
    return Profile(name, tuple(gpu_types), kinds, row, speed, steps_per_s, pairs, notes, together=together)


def _pairs(
    rates: Throughputs, kinds: Sequence[Kind], keys: Sequence[Key | None], types: Sequence[str], base: Floats
) -> Pairs | None:
    """The speeds of all pairs that the file has, of kinds with exactly its GPU counts."""
    exact = [at for at, key in enumerate(keys) if key is not None and key[1] == kinds[at][1]]
    some = [at for at in exact if any(rates.together[kind].get(keys[at]) for kind in types)]  # type: ignore[arg-type]
    if not some:
        return None
    place = np.full(len(kinds), -1, np.int64)
    place[some] = np.arange(len(some))
    table = np.zeros((len(some), len(some), len(types)))
    for column, kind in enumerate(types):
        for a, row_a in enumerate(some):
            beside = rates.together[kind].get(keys[row_a], {})  # type: ignore[arg-type]
            for b, row_b in enumerate(some):
                table[a, b, column] = beside.get(keys[row_b], 0.0) / base[row_a]  # type: ignore[arg-type]
    return Pairs(place, table)
