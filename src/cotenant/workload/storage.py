"""What memory is worth to a job that reads a data set: a cache in front of storage.

A cache that keeps a fixed random part of the data set (MinIO of CoorDL) hits with exactly that part in every epoch,
and jobs do not disturb each other. Every byte that it does not hold costs a fetch. So speed at any share of memory is
computed from one measured with everything cached (Synergy, OSDI'22, section 3.1). Sizes in GiB, rates in GiB/s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.core.workload import Floats

MEMORY_GIB_S = 8.0  # one thread reading what is cached


@dataclass(frozen=True, slots=True)
class Storage:
    """Sequential reading from disk, all that one GPU's job may use, and from memory per core."""

    disk_gib_s: float
    memory_gib_s: float = MEMORY_GIB_S


def input_s(data_gib: float, cached: Floats, cpus: Floats, storage: Storage) -> Floats:
    """Seconds to read the data set once: a part `cached` from memory with so many cores, the rest from disk."""
    hit = np.clip(cached, 0.0, 1.0)
    seconds = hit * data_gib / (storage.memory_gib_s * cpus) + (1 - hit) * data_gib / storage.disk_gib_s
    return np.asarray(seconds, np.float64)


def epoch_s(measured_s: Floats, data_gib: float, cached: Floats, cpus: Floats, storage: Storage) -> Floats:
    """An epoch: what was measured at these cores with everything cached, or the input if that takes longer."""
    return np.maximum(measured_s, input_s(data_gib, cached, cpus, storage))


def speeds(
    cpu_axis: Floats, cached_speed: Floats, mem_axis: Floats, data_gib: float, reserve_gib: float, storage: Storage,
    epoch_at_1_s: float,
) -> Floats:  # fmt: skip
    """A matrix over cores and memory from a curve over cores with everything cached.

    `cached_speed` is relative; `epoch_at_1_s` is how long an epoch takes at speed 1. The job itself needs
    `reserve_gib` of its memory, the rest caches.
    """
    cached = np.clip((mem_axis - reserve_gib) / data_gib, 0.0, 1.0)
    measured = epoch_at_1_s / np.maximum(cached_speed, 1e-9)
    return np.asarray(
        epoch_at_1_s / epoch_s(measured[:, None], data_gib, cached[None, :], cpu_axis[:, None], storage), np.float64
    )
