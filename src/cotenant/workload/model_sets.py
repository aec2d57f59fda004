"""Named sets of models, and how jobs of a log without models get one.

A job takes a model of the set that runs on as many GPUs as it asks for, by a seeded hash of its id: every
policy, every window and every order of the log then sees the same assignment. Nothing here depends on
Python's own `hash` or on a random stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

import numpy as np

from cotenant.core.errors import InputError, unknown
from cotenant.core.spec import Spec, typed_params
from cotenant.core.workload import Codes, Ints, Workload
from cotenant.workload.model_facts import FACTS
from cotenant.workload.readers.throughputs import find_throughputs

_BATCHES = {
    "ResNet-18": (16, 32, 64, 128, 256),
    "ResNet-50": (16, 32, 64, 128),
    "Transformer": (16, 32, 64, 128, 256),
    "LM": (5, 10, 20, 40, 80),
    "Recommendation": (512, 1024, 2048, 4096, 8192),
}
GAVEL_TYPES = (
    *(f"{model} (batch size {size})" for model, sizes in _BATCHES.items() for size in sizes),
    "A3C",
    "CycleGAN",
)
"""Gavel's 26 job types in the order of the authors' table: the distributed-capable ones come first."""
GAVEL_DISTRIBUTED = 19
H200_MODELS = ("resnet50", "resnet18_cifar", "vit_b_16", "gpt2", "bert", "lstm", "recsys", "mlp_rl")
"""The models measured on an H200 at the batch size at which they were also paired (see `profiles.h200`)."""
_H200_BATCHES = {
    "resnet50": (16, 32, 64, 128, 256),
    "resnet18_cifar": (32, 128, 512),
    "vit_b_16": (16, 64, 128),
    "gpt2": (2, 4, 8, 16),
    "bert": (8, 32, 128),
    "lstm": (20, 80, 320),
    "recsys": (512, 2048, 8192),
    "mlp_rl": (64, 1024),
}
H200_TYPES = tuple(f"{model} (batch size {size})" for model, sizes in _H200_BATCHES.items() for size in sizes)
"""All that was measured on an H200: small batches wait for the host, so they lose less on slow GPUs."""


@dataclass(frozen=True, slots=True)
class ModelSet:
    """Models to choose from. `by_gpus` maps a GPU count to the models that run on as many."""

    name: str
    about: str
    by_gpus: Mapping[int, tuple[str, ...]]

    def at(self, gpus: int) -> tuple[str, ...]:
        """The models for a job of `gpus`: those of the nearest count in log2."""
        return self.by_gpus[min(self.by_gpus, key=lambda count: abs(np.log2(count) - np.log2(gpus)))]


MODEL_SETS: dict[str, ModelSet] = {
    models.name: models
    for models in (
        ModelSet("tiresias", "the ten models of the Tiresias paper", {1: tuple(FACTS)}),
        ModelSet(
            "gavel",
            "the 26 job types of Gavel; gangs take the 19 that can be distributed",
            {1: GAVEL_TYPES, 2: GAVEL_TYPES[:GAVEL_DISTRIBUTED]},
        ),
        ModelSet("h200", "the eight models measured on an H200", {1: H200_MODELS}),
        ModelSet("h200-batches", "the eight models of the H200 at 26 batch sizes", {1: H200_TYPES}),
    )
}
"""Every named set."""
_OF_PROFILE = "profile"


def model_set(name: str, profile: str | Path | None = None) -> ModelSet:
    """A named set; `profile` is the set of models of the Gavel throughput file given as profile."""
    if name == _OF_PROFILE:
        throughputs = find_throughputs(profile)
        if throughputs is None:
            raise InputError(f"models '{name}' are those of a Gavel throughput file: give it with --profile FILE.json")
        by_gpus: dict[int, list[str]] = {}
        for (model, gpus), rate in throughputs.reference.items():
            if rate > 0:
                by_gpus.setdefault(gpus, []).append(model)
        return ModelSet(name, f"the models of {profile}", {gpus: tuple(names) for gpus, names in by_gpus.items()})
    if name not in MODEL_SETS:
        raise unknown("set of models", name, (*MODEL_SETS, _OF_PROFILE))
    return MODEL_SETS[name]


def assign_models(work: Workload, models: str, profile: str | Path | None = None) -> Workload:
    """Give every job without a model one of the set `NAME[:seed=S]`; jobs that have one keep it."""
    spec = Spec.parse(models)
    chosen = model_set(spec.name, profile)
    seed = int(typed_params(spec, {"seed": 0}, "models")["seed"])  # type: ignore[arg-type]
    without = np.array([not name.strip() for name in work.model.names], np.bool_)[work.model.code]
    if not without.any():
        return replace(work, notes=(*work.notes, f"every job has a model already: --models {models} changes nothing"))
    names = list(work.model.names)
    code = work.model.code.copy()
    hashed = _hashes(work, np.flatnonzero(without), seed)
    for gpus in np.unique(work.gpus[without]).tolist():
        rows = without & (work.gpus == gpus)
        candidates = sorted(chosen.at(gpus))
        known = {name: at for at, name in enumerate(names)}
        names += [name for name in candidates if name not in known]
        place = np.array([known.get(name, names.index(name)) for name in candidates], np.int64)
        code[rows] = place[hashed[rows] % len(candidates)]
    note = (
        f"{int(without.sum())} jobs have no model: each got one of set '{chosen.name}' ({chosen.about}) "
        f"by a hash of its id, seed {seed}"
    )
    return replace(work, model=Codes(code, tuple(names)), notes=(*work.notes, note))


def _hashes(work: Workload, rows: Ints, seed: int) -> Ints:
    """53 bits of BLAKE2b over "seed:job id" for these rows; 0 for the others."""
    hashed = np.zeros(len(work), np.int64)
    prefix = f"{seed}:".encode()
    hashed[rows] = [
        int.from_bytes(blake2b(prefix + str(job_id).encode(), digest_size=7).digest(), "big") >> 3
        for job_id in work.job_id[rows]
    ]
    return hashed
