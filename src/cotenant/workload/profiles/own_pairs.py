"""A user's own table of pairs or of models alone, as CSV, imported once into a profile file.

Pairs: `model_a,model_b,a_ratio,b_ratio`. A ratio is the speed of a model beside the other against alone, above 0 and at
most 1 (more is taken as noise). Optional columns: `a_gib`, `b_gib` (GPU memory of each) and `gpu_gib` (memory of the
GPU). Alone: `model,busy` (the share of time in which it keeps a GPU busy) and, if wanted, `gib` and `gpu_gib`; what the
models do to each other then follows from the formula of `together`, and two that do not fit in memory cannot share. The
imported file is JSON and is named by `--profile FILE.json`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.together import CURVE, LEVELS, Together
from cotenant.core.workload import Workload
from cotenant.workload.profiles.base import Profile, kinds_of, normal, unknown_models
from cotenant.workload.profiles.together import fitted, formula, guess_from_busy, memory_curve
from cotenant.workload.readers.table import open_bytes

MARK = "cotenant_pairs"
_NEEDED = ("model_a", "model_b", "a_ratio", "b_ratio")
_ALONE = ("model", "busy")


def read_pairs(path: Path) -> dict[str, Any]:
    """The content of a CSV of pairs, or of models alone, checked."""
    reader = csv.DictReader(io.StringIO(open_bytes(path).decode("utf-8", "replace")))
    if set(_ALONE) <= set(reader.fieldnames or ()):
        return _read_alone(path, reader)
    missing = [name for name in _NEEDED if name not in (reader.fieldnames or ())]
    if missing:
        raise InputError(
            f"{path} line 1: column '{missing[0]}' is missing; the header must be {','.join(_NEEDED)}"
            f", or {','.join(_ALONE)} for models alone"
        )
    pairs, memory, gpu_gib = [], {}, None
    for line, row in enumerate(reader, start=2):
        ratios = [_number(path, line, row, name) for name in ("a_ratio", "b_ratio")]
        if any(not 0 < ratio <= 2 for ratio in ratios):
            raise InputError(f"{path} line {line}: ratios must be above 0 and at most 1 (up to 2 counts as noise)")
        a, b = normal(row["model_a"]), normal(row["model_b"])
        pairs.append([a, b, *(min(ratio, 1.0) for ratio in ratios)])
        for model, name in ((a, "a_gib"), (b, "b_gib")):
            if row.get(name):
                memory[model] = _number(path, line, row, name)
        if row.get("gpu_gib"):
            gpu_gib = _number(path, line, row, "gpu_gib")
    if not pairs:
        raise InputError(f"{path}: no pairs below the header")
    return {MARK: 1, "pairs": pairs, "memory_gib": memory, "gpu_gib": gpu_gib}


def _read_alone(path: Path, reader: csv.DictReader[str]) -> dict[str, Any]:
    """Models alone; their pairs by the formula."""
    busy: dict[str, float] = {}
    memory: dict[str, float] = {}
    gpu_gib = None
    for line, row in enumerate(reader, start=2):
        model = normal(row["model"] or "")
        busy[model] = _number(path, line, row, "busy")
        if not model or not 0 < busy[model] <= 1:
            raise InputError(f"{path} line {line}: a model needs a name and a busy share above 0 and at most 1")
        if row.get("gib"):
            memory[model] = _number(path, line, row, "gib")
        if row.get("gpu_gib"):
            gpu_gib = _number(path, line, row, "gpu_gib")
    if not busy:
        raise InputError(f"{path}: no models below the header")
    factors = fitted("mps")
    pairs = [
        [a, b, *(float(1 / formula(u, v, factors)) for u, v in ((busy[a], busy[b]), (busy[b], busy[a])))]
        for a in busy
        for b in busy
        if a <= b and memory.get(a, 0.0) + memory.get(b, 0.0) <= (np.inf if gpu_gib is None else gpu_gib)
    ]
    return {MARK: 1, "pairs": pairs, "memory_gib": memory, "gpu_gib": gpu_gib, "busy": busy}


def _number(path: Path, line: int, row: dict[str, str], name: str) -> float:
    try:
        return float(row[name])
    except (TypeError, ValueError):
        raise InputError(f"{path} line {line}: {name} is '{row.get(name)}', not a number") from None


def is_pairs(path: Path) -> bool:
    """Whether a file is an imported table of pairs."""
    return path.suffix == ".json" and path.is_file() and f'"{MARK}"' in path.read_text(encoding="utf-8")[:200]


def pairs_profile(path: Path, work: Workload, gpu_types: Sequence[str]) -> Profile:
    """A profile in which every job runs at speed 1 alone and by the table in company."""
    data = json.loads(path.read_text(encoding="utf-8"))
    kinds, row = kinds_of(work)
    ratio = np.zeros((len(kinds), len(kinds), len(gpu_types)))
    table = {(a, b): value for a, b, one, two in data["pairs"] for a, b, value in ((a, b, one), (b, a, two))}
    alone: dict[str, float] = data.get("busy", {})
    known = {name for pair in table for name in pair} | set(alone)
    for at, (one, _) in enumerate(kinds):
        for to, (two, _) in enumerate(kinds):
            ratio[at, to] = table.get((normal(one), normal(two)), 0.0)
    memory = np.zeros((len(kinds), LEVELS))
    memory[:, 0] = [data["memory_gib"].get(normal(model), 0.0) for model, _ in kinds]
    busy = np.array([alone.get(normal(model), 1.0) for model, _ in kinds])
    models = list(dict.fromkeys(model for model, _ in kinds))
    together = Together.of_ratio(
        ratio,
        np.array([memory_curve(model) for model, _ in kinds]).reshape(-1, len(CURVE)),
        memory_gib=memory,
        busy=busy,
        gpu_gib=np.full(len(gpu_types), np.inf if data["gpu_gib"] is None else float(data["gpu_gib"])),
        guess=guess_from_busy(ratio, busy),
        alike=np.array([models.index(model) for model, _ in kinds], np.int64),
    )
    notes = unknown_models(str(path), kinds, [normal(model) in known for model, _ in kinds])
    speed = np.ones((len(kinds), len(gpu_types), 2))
    steps = np.full(len(kinds), np.nan)
    return Profile(str(path), tuple(gpu_types), kinds, row, speed, steps, None, notes, together=together)
