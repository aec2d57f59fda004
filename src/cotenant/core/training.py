"""What elastic jobs have told of their training: the columns that elastic policies decide on. Beliefs, never truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.core.workload import Floats, Ints


@dataclass(slots=True)
class Training:
    """Per row of the workload; whoever drives the engine keeps it up to date.

    `seen[row, n]` is the throughput observed on n GPUs in samples per second, NaN where never.
    `samples` counts what was processed, whatever it was worth.
    """

    kind: Ints  # jobs of one kind train alike
    asked: Ints  # GPUs asked for
    epoch_size: Floats
    batch: Floats  # base samples per GPU
    base_lr: Floats
    max_lr: Floats
    samples: Floats
    first_loss: Floats
    loss: Floats
    accuracy: Floats
    noise: Floats  # gradient noise as measured or estimated, samples
    seen: np.ndarray
    resize_s: float = 2.0  # pause of a change of size: two groups are built, parameters sent
    load_s: float = 10.0  # until new workers are ready; the old ones train on
    total: Floats | None = None  # samples in all, where jobs say so; NaN elsewhere

    def left(self, rows: Ints) -> Floats:
        """Samples that these jobs say are left; NaN where they do not."""
        if self.total is None:
            return np.full(len(rows), np.nan)
        return np.maximum(self.total[rows] - self.samples[rows], 0.0)

    @property
    def epochs(self) -> Floats:
        """Epochs processed."""
        return np.asarray(self.samples / self.epoch_size)
