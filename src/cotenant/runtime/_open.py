"""How a script becomes a job: its own wishes, and what the environment says on top."""

from __future__ import annotations

import math
import os

from ._environment import first_settings, number, visible_gpus
from ._job import Job
from ._scaling import Keeps, LrScaling, ScalingRule
from .protocol import Settings


def job(
    *,
    batch_size: int = 1,
    accumulation: int = 1,
    workers: int = 0,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    checkpoint_interval_s: float = 300.0,
    keeps: Keeps = "global",
    lr_scaling: LrScaling = "none",
    base_gpus: int | None = None,
    max_lr_scale: float = math.inf,
    lr_ramp_steps: int = 0,
) -> Job:
    """The job this process is, to be used as `with runtime.job() as job`.

    The arguments are the script's own wishes: they hold outside Cotenant and wherever the scheduler says nothing.

    For elastic jobs: `keeps` says whether `batch_size` is the batch of the whole job, kept at any number of GPUs, or
    that of one GPU. In the latter case `lr_scaling` says how `learning_rate_scale` follows the global batch (linear or
    sqrt), against `base_gpus` (else the GPUs that the job was submitted with), up to `max_lr_scale`, beyond which the
    global batch stays too, and over how many steps a change is spread (`lr_ramp_steps`).
    """
    env = os.environ
    wishes = Settings(batch_size, accumulation, workers, visible_gpus(), 0.0, 1.0)
    directory = env.get("COTENANT_CHECKPOINT_DIR") or checkpoint_dir
    interval_s = number(env.get("COTENANT_CHECKPOINT_INTERVAL_S"), checkpoint_interval_s)
    settings = wishes.updated(first_settings())
    asked = int(number(env.get("COTENANT_GPUS_ASKED"), settings.gpus or 1))
    rule = ScalingRule(
        keeps,
        lr_scaling,
        max(asked, 1) if base_gpus is None else base_gpus,
        max_lr_scale,
        lr_ramp_steps,
        int(number(env.get("COTENANT_BATCH_MIN"), 0)),
        int(number(env.get("COTENANT_BATCH_MAX"), 0)),
    )
    return Job(settings, directory, interval_s, rule)
