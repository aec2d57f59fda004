"""Hugging Face Trainer: a callback that asks the trainer to save and stop. Imported only when called.

The trainer keeps its own checkpoints (`output_dir/checkpoint-N`), which it writes in place. A mark is put into each
one after it is complete and on disk, and only marked ones are resumed from.
"""

from __future__ import annotations

import json
import os
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from ._checkpoint import _sync, _sync_tree, _write_synced
from ._job import Job

MARK = "cotenant-complete.json"


def resume_path(job: Job, output_dir: str | os.PathLike[str]) -> str | None:
    """The newest complete checkpoint, for `trainer.train(resume_from_checkpoint=...)`; None for a fresh start."""
    steps = []
    for mark in Path(output_dir).glob(f"checkpoint-*/{MARK}"):
        number = mark.parent.name.removeprefix("checkpoint-")
        if number.isdigit():
            steps.append((int(number), mark.parent))
    if not steps:
        return None
    step, path = max(steps)
    job.resumed(step, path)
    return str(path)


def callback(job: Job) -> Any:
    """A `transformers.TrainerCallback` for `Trainer(..., callbacks=[callback(job)])`.

    When the job should stop, the trainer saves, ends its loop, and `train()` leaves with SystemExit. Set
    `save_total_limit` in the arguments of the trainer to bound the disk. Batch size and workers are fixed for the
    time of a `train()`; take them from the job when building the arguments.
    """
    began = 0.0

    def on_train_begin(self: Any, args: Any, state: Any, control: Any, **rest: Any) -> None:
        job.ready()

    def on_step_end(self: Any, args: Any, state: Any, control: Any, **rest: Any) -> Any:
        nonlocal began
        job.tick(state.global_step, state.max_steps if state.max_steps > 0 else None, saves=True)
        began = time.monotonic()
        if job.should_stop and state.global_step < state.max_steps:
            control.should_save = control.should_training_stop = True
        elif job.checkpoint_due:
            control.should_save = True
        return control

    def on_save(self: Any, args: Any, state: Any, control: Any, **rest: Any) -> None:
        path = Path(args.output_dir, f"checkpoint-{state.global_step}").absolute()
        if not state.is_world_process_zero or not path.is_dir():
            return
        _sync_tree(path)
        _write_synced(path / MARK, json.dumps({"step": state.global_step, "wall_time": time.time()}).encode())
        _sync(path)
        _sync(path.parent)
        job.checkpointed(path, time.monotonic() - began)

    def on_log(self: Any, args: Any, state: Any, control: Any, logs: Any = None, **rest: Any) -> None:
        job.report(**(logs or {}))

    def on_train_end(self: Any, args: Any, state: Any, control: Any, **rest: Any) -> None:
        if job.should_stop and state.global_step < state.max_steps and job.saved:
            job.preempted()

    ends = {"on_train_begin": on_train_begin, "on_train_end": on_train_end}
    hooks = {**ends, "on_step_end": on_step_end, "on_save": on_save, "on_log": on_log}
    base: Any = import_module("transformers").TrainerCallback
    return type("CotenantCallback", (base,), hooks)()
