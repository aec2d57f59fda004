"""How the batch and the learning rate of a job follow its number of GPUs.

A job either keeps its *global* batch, whatever its size, and then trains as if nothing had happened; or it keeps the
batch *per GPU*, and then the global batch and, as the job asks, the learning rate grow and shrink with the size: in
proportion to the global batch (linear) or to its root (sqrt). As in ONES (SC'21) growth ends at the largest learning
rate that the job allows: beyond it learning rate and global batch stay, and each GPU takes a smaller part. Also as
there, the learning rate moves from the old to the new value in a straight line over the next steps (an epoch, say)
rather than at once.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

Keeps: TypeAlias = Literal["global", "per-gpu"]
LrScaling: TypeAlias = Literal["none", "linear", "sqrt"]
FILE = "cotenant-learning-rate.json"
_POWER = {"none": 0.0, "linear": 1.0, "sqrt": 0.5}


@dataclass(frozen=True, slots=True)
class ScalingRule:
    """What the job asks for. `base_gpus` is the size that its batch and learning rate were chosen for."""

    keeps: Keeps = "global"
    lr_scaling: LrScaling = "none"
    base_gpus: int = 1
    max_lr_scale: float = math.inf
    ramp_steps: int = 0
    batch_min: int = 0  # samples of the global batch; 0 for no limit
    batch_max: int = 0

    def __post_init__(self) -> None:
        for name, value, known in (("keeps", self.keeps, Keeps), ("lr_scaling", self.lr_scaling, LrScaling)):
            if value not in get_args(known):
                raise ValueError(f"{name} is {value!r}: write one of {', '.join(map(repr, get_args(known)))}")
        if self.base_gpus < 1:
            raise ValueError(f"base_gpus is {self.base_gpus}: write the GPUs that the batch was chosen for, at least 1")
        if not self.max_lr_scale >= 1:
            raise ValueError(f"max_lr_scale is {self.max_lr_scale}: write a factor of at least 1")
        if self.ramp_steps < 0:
            raise ValueError(f"lr_ramp_steps is {self.ramp_steps}: write a number of steps, 0 for at once")

    @property
    def scales(self) -> bool:
        """Whether the learning rate depends on the size at all."""
        return self.keeps == "per-gpu" and self.lr_scaling != "none"

    def global_batch(self, batch: int, gpus: int) -> int:
        """Samples per step of the whole job, which has so many GPUs and asks for this batch (see `keeps`)."""
        if self.keeps == "global":
            return batch
        wanted = batch * max(gpus, 1)
        if self.scales and math.isfinite(self.max_lr_scale):
            most = batch * self.base_gpus * self.max_lr_scale ** (1 / _POWER[self.lr_scaling])
            wanted = min(wanted, math.floor(most * (1 + 1e-12)))
        if self.batch_max:
            wanted = min(wanted, self.batch_max)
        return max(wanted, self.batch_min, 1)

    def lr_scale(self, batch: int, gpus: int) -> float:
        """The factor of the learning rate at this size, against that at the base size."""
        if not self.scales:
            return 1.0
        ratio = self.global_batch(batch, gpus) / (batch * self.base_gpus)
        return float(min(ratio ** _POWER[self.lr_scaling], self.max_lr_scale))


class LrScale:
    """The factor as it moves. A change begins at a step and takes `ramp_steps`; another change starts from there."""

    def __init__(self, ramp_steps: int) -> None:
        self._ramp_steps = ramp_steps
        self._old = self._new = 1.0
        self._since = 0

    def at(self, step: int) -> float:
        """The factor for the step after so many finished ones."""
        share = (step - self._since) / self._ramp_steps if self._ramp_steps else 1.0
        return self._new if share >= 1 else self._old + (self._new - self._old) * max(share, 0.0)

    def jump(self, scale: float) -> None:
        """Start with this factor."""
        self._old = self._new = scale

    def aim(self, scale: float, step: int) -> None:
        """Move to this factor from now on."""
        if scale != self._new:
            self._old, self._new, self._since = self.at(step), scale, step

    def write(self, folder: Path) -> None:
        """Keep it with a checkpoint."""
        (folder / FILE).write_text(json.dumps({"old": self._old, "new": self._new, "since": self._since}))

    def read(self, folder: Path) -> None:
        """Go on from a checkpoint; one that holds none leaves everything as it is."""
        try:
            kept = json.loads((folder / FILE).read_text())
            self._old, self._new, self._since = float(kept["old"]), float(kept["new"]), int(kept["since"])
        except FileNotFoundError:
            return
