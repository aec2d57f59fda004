"""Speeds of gangs that are split over nodes, from Chronus' `model_info.json`: model -> GPUs -> nodes -> speed.

Speed 1 is on one node. A gang of a size that is not in the file runs as the nearest one that is; one that is split is
taken to be on two nodes, or on the fewest that were measured.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.workload import Floats
from cotenant.workload.profiles.base import Kind, normal

Splits = dict[str, dict[int, dict[int, float]]]


def load_splits(path: Path) -> Splits | None:
    """What such a file says; None where it is another kind of file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        found = {
            normal(model): {int(gpus): {int(nodes): float(v) for nodes, v in by.items()} for gpus, by in sizes.items()}
            for model, sizes in data.items()
        }
    except (OSError, ValueError, AttributeError, TypeError):
        return None
    whole = all(by_nodes.get(1) == 1.0 for sizes in found.values() for by_nodes in sizes.values())
    return found if found and whole else None


def split_speeds(path: Path, splits: Splits, kinds: tuple[Kind, ...], types: int) -> Floats:
    """Speeds of kinds, consolidated and spread, on all types alike; 1 for models that the file does not name."""
    speed = np.ones((len(kinds), types, 2))
    for row, (model, gpus) in enumerate(kinds):
        sizes = splits.get(normal(model), {})
        if gpus < 2 or not sizes:
            continue
        by_nodes = sizes[min(sizes, key=lambda size: (abs(size - gpus), size))]
        apart = [by_nodes[nodes] for nodes in sorted(by_nodes) if nodes > 1]
        if apart and not 0 < apart[0] < np.inf:
            raise InputError(f"{path}: {model}, {gpus} GPUs: {apart[0]:g} must be a speed above 0")
        speed[row, :, 1] = apart[0] if apart else 1.0
    return speed
