"""What the scripts of this folder share: options, one training loop, and the result that they print.

The data of a step come from a generator seeded by the step, and a batch that the scheduler has cut into sub-batches is
drawn whole and then cut: an interrupted, moved or sub-batched run sees the very same samples as an undisturbed one.
Kernels are the deterministic ones, products of TF32, sums of 32 bits. Model, optimizer and random numbers are saved.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from cotenant import runtime
from cotenant.runtime import torch as runtime_torch

Batch = tuple[torch.Tensor, ...]
Keep = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Size:
    """How much a script does by default, and how large its model is; `shape` is the script's own."""

    steps: int
    batch: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Task:
    """What is trained: a model, how to draw a batch, and the mean loss of some samples.

    `cuttable` is False for models with batch norm, whose statistics would be those of a sub-batch.
    """

    model: nn.Module
    draw: Callable[[torch.Generator, int], Batch]
    loss: Callable[[Batch], torch.Tensor]
    rate: float = 1e-3
    cuttable: bool = True


def main(about: str | None, sizes: Mapping[str, Size], build: Callable[[Size, torch.device], Task]) -> None:
    """Train, and print the loss of the last step as JSON, with `--times` also when each step was done."""
    args = _parser(about, sizes).parse_args()
    size = sizes[args.size]
    steps, samples = args.steps or size.steps, args.batch or size.batch
    device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    _be_deterministic(device)
    with runtime.job(batch_size=samples) as job:
        torch.manual_seed(1)
        with device:
            task = build(size, device)
        optimizer = torch.optim.SGD(task.model.parameters(), lr=task.rate, momentum=0.9)
        if args.no_save:
            runtime_torch.limit_memory()
        else:
            runtime_torch.attach(job, model=task.model, optimizer=optimizer)
        generator, loss = torch.Generator(device), float("nan")
        times: list[float] = []
        for step in job.steps(steps):
            parts = job.accumulation if task.cuttable else 1
            batch = task.draw(generator.manual_seed(step), job.batch_size * job.accumulation)
            loss = train(task, optimizer, batch, parts, partial(runtime_torch.saved_on_host, job))
            job.report(loss=loss)
            times.append(round(time.time(), 3))
        print(json.dumps({"steps": steps, "loss": loss} | ({"times": times} if args.times else {})), flush=True)


def train(task: Task, optimizer: torch.optim.Optimizer, batch: Batch, parts: int, keep: Keep = nullcontext) -> float:
    """One step; the loss before it. Waits for the GPU, so that the time that a step is seen to take is its own.

    `keep` says where activations wait for the way back: on the host, while a job has less memory than its peak.
    """
    optimizer.zero_grad()
    total = torch.zeros((), device=batch[0].device)
    for part in zip(*(tensor.tensor_split(parts) for tensor in batch), strict=True):
        with keep():
            loss = task.loss(part) * (len(part[0]) / len(batch[0]))
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
    optimizer.step()
    return float(total)


def _parser(about: str | None, sizes: Mapping[str, Size]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(sizes), default="small")
    parser.add_argument("--steps", type=int, default=0, help="else what belongs to the size")
    parser.add_argument("--batch", type=int, default=0, help="samples per step; else what belongs to the size")
    parser.add_argument("--no-save", action="store_true", help="it cannot save, and is suspended instead")
    parser.add_argument("--times", action="store_true", help="print when each step was done, Unix seconds")
    parser.add_argument("--device", default="", help="cuda or cpu; else a GPU if there is one")
    return parser


def _be_deterministic(device: torch.device) -> None:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before the first use of the GPU
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    if device.type == "cpu":
        torch.set_num_threads(1)
