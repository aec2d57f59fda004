"""Lightning: a callback that saves, reports and stops at step boundaries. Lightning is imported only when called."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

from ._job import Job

FILE = "lightning.ckpt"


def resume_path(job: Job) -> str | None:
    """The newest checkpoint, for `trainer.fit(model, ckpt_path=resume_path(job))`; None for a fresh start."""
    found: list[str] = []
    job.restore(lambda path: found.append(str(path / FILE)))
    return found[0] if found else None


def callback(job: Job) -> Any:
    """A `lightning.pytorch.Callback` that drives `job.boundary` once per optimizer step.

    Checkpoints are the trainer's own, made atomic by the job's store. A job that should stop leaves `fit` with
    SystemExit after saving; Lightning tears down and lets it pass. Data loaders with `state_dict`, such as
    `cotenant.runtime.torch.Loader`, go on at the right batch; others begin their epoch again. Lightning handles
    SIGTERM itself while it fits, so there only the service's `stop` leads to a checkpoint.
    """

    def on_train_start(self: Any, trainer: Any, module: Any) -> None:
        job.save(lambda path: trainer.save_checkpoint(path / FILE))
        job.ready()

    def on_train_batch_end(self: Any, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step > job.step:
            job.report(**trainer.callback_metrics)
            job.boundary(trainer.global_step, _total(trainer))

    base: Any = _lightning().Callback
    hooks = {"on_train_start": on_train_start, "on_train_batch_end": on_train_batch_end}
    return type("CotenantCallback", (base,), hooks)()


def _lightning() -> Any:
    """`lightning.pytorch`, or the package under its older name."""
    try:
        return import_module("lightning.pytorch")
    except ImportError:
        return import_module("pytorch_lightning")


def _total(trainer: Any) -> int | None:
    steps = trainer.max_steps if trainer.max_steps > 0 else trainer.estimated_stepping_batches
    return int(steps) if math.isfinite(steps) and steps > 0 else None
