"""The collection's golden instances."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cotenant.solvers import Instance, instance

TYPES = ("k80", "p100", "v100")


@pytest.fixture(scope="session")
def golden(data_dir: Path) -> Any:
    file = data_dir / "gavel" / "golden_vectors.json"
    if not file.is_file():
        pytest.skip(f"no golden vectors at {file}")
    return json.loads(file.read_text())


@dataclass
class Golden:
    """One instance of the authors' generator."""

    entry: Any
    inst: Instance
    kind: np.ndarray
    pair: np.ndarray
    scale: np.ndarray


@pytest.fixture(scope="session")
def golden_las(golden: Any, data_dir: Path) -> list[Golden]:
    with gzip.open(data_dir / "gavel" / "simulation_throughputs.json.gz") as file:
        table = json.load(file)
    return [_golden(entry, table) for entry in golden["las"]]


def _golden(entry: Any, table: Any) -> Golden:
    keys = [(model, gang) for model, gang, _ in entry["instance"]]
    rates = np.array([[table[t][str(key)]["null"] for t in TYPES] for key in keys])
    pair = np.zeros((len(keys), len(keys), len(TYPES)))
    for k, name in enumerate(TYPES):
        for a, key in enumerate(keys):
            row = table[name][str(key)]
            for b, other in enumerate(keys):
                pair[a, b, k] = row[str(other)][0] if str(other) in row else 0.0
    kind = np.repeat(np.arange(len(keys)), [count for *_, count in entry["instance"]])
    gangs = np.array([float(gang) for _, gang in keys])
    capacity = np.full(len(TYPES), float(entry["gpus_per_type"]))
    scale = gangs / (rates @ capacity / capacity.sum())
    return Golden(entry, instance(rates[kind], gangs[kind], capacity), kind, pair, scale[kind])
