"""PyTorch: checkpoints of models, optimizers and random numbers, and a data loader that follows the scheduler.

PyTorch is imported only when a function is called. Under `torchrun` rank 0 alone saves and reports, all ranks restore
from its checkpoint, and settings and stops take hold at the same step everywhere. What is saved must be whole on rank
0, as it is in data parallel training; sharded models (FSDP) need their own checkpoints.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from ._job import Job
from ._offload import HostActivations, HostMemory
from .protocol import Settings

FILE = "state.pt"
HEADROOM = 0.9  # of the limit, for what the allocator cannot use
_MOVED_MORE, _MOVED_MORE_GIB = 1.25, 1.0  # activations: times what is missing, and for what the allocator cannot join
_LONGEST_SUSPENSION = timedelta(days=30)  # ranks wait for each other also while the scheduler has stopped them all


class Stateful(Protocol):
    """Models, optimizers, learning rate schedulers, gradient scalers, `Loader`: all have these two."""

    def state_dict(self) -> Any:
        """What has to be saved."""

    def load_state_dict(self, state_dict: Any, /) -> Any:
        """Take over what was saved."""


def attach(job: Job, **parts: Stateful) -> int:
    """Save and restore these parts and the random numbers: `attach(job, model=model, optimizer=optimizer)`.

    Keeps the job's limit of GPU memory; what optimizers remember goes to host memory between their steps where it would
    pass that limit. A stage `compute` is over when the GPU is done with it. Restores at once, if there is a checkpoint,
    and returns the steps already done. Tensors are read to the CPU and copied by each part to where it lives, so the
    checkpoint may move to other GPUs. Every optimizer among the parts takes its steps with its learning rate times
    `job.learning_rate_scale`. In a job of several ranks all must call it, after `init_process_group`.
    """
    torch: Any = import_module("torch")
    fraction = limit_memory()
    if torch.cuda.is_available():
        job.finish_stage("compute", lambda: torch.cuda.synchronize() if torch.cuda.is_initialized() else None)
    if job.ranks > 1:
        follow_rank_zero(job)
    for part in parts.values():
        if isinstance(part, torch.optim.Optimizer):
            follow_learning_rate(job, part)
            if fraction is not None:
                total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
                memory = HostMemory(part, HEADROOM * fraction * total, torch.cuda.max_memory_allocated)
                follow_memory(job, memory)

    def save(path: Path) -> None:
        state = {name: part.state_dict() for name, part in parts.items()}
        torch.save({"parts": state, "random": random_state()}, path / FILE)

    def load(path: Path) -> None:
        state = torch.load(path / FILE, map_location="cpu", weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(state["parts"][name])
        set_random_state(state["random"])

    job.save(save)
    done = job.restore(load)
    if job.rank and done:
        torch.manual_seed(done * 1_000_003 + job.rank)  # else all ranks would draw what rank 0 draws
    return done


def follow_rank_zero(job: Job) -> None:
    """Have all ranks take over settings and stop at the step where rank 0 does, by a word from it after every step.

    The word goes from CPU to CPU (gloo), so no GPU is waited for. `attach` calls it.
    """
    torch: Any = import_module("torch")
    dist: Any = import_module("torch.distributed")
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError(f"rank {job.rank} of {job.ranks}: call torch.distributed.init_process_group before attach")
    group = dist.new_group(backend="gloo", timeout=_LONGEST_SUSPENSION)

    def leader_says(values: list[float]) -> list[float]:
        word = torch.tensor(values, dtype=torch.float64)
        dist.broadcast(word, src=0, group=group)
        return list(word.tolist())

    job.follow_leader(leader_says)


def follow_learning_rate(job: Job, optimizer: Any) -> None:
    """Have this optimizer take each step with its learning rate times `job.learning_rate_scale`.

    The factor is in the parameter groups only while a step is taken. Whoever looks at them between steps, be it a
    learning rate scheduler or a checkpoint, finds the learning rate of the base size, so that the factor works
    exactly once, under any scheduler and after any number of restarts. `attach` calls it.
    """
    base: list[Any] = []

    def put_back(*_: Any) -> None:
        for group, rate in zip(optimizer.param_groups, base, strict=False):
            group["lr"] = rate
        base.clear()

    def scale(*_: Any) -> None:
        put_back()  # after a step that ended in an error
        factor = job.learning_rate_scale
        if factor != 1:
            base.extend(group["lr"] for group in optimizer.param_groups)
            for group in optimizer.param_groups:
                group["lr"] = group["lr"] * factor

    optimizer.register_step_pre_hook(scale)
    optimizer.register_step_post_hook(put_back)
    optimizer.register_state_dict_pre_hook(put_back)


def follow_memory(job: Job, memory: HostMemory) -> None:
    """Have an optimizer keep on the host what the job is not granted, also when that changes. `attach` calls it."""
    torch: Any = import_module("torch")

    def change(settings: Settings) -> None:
        if settings.gpu_mem_gib is not None and HEADROOM * settings.gpu_mem_gib * 2**30 != memory.limit:
            memory.limit = HEADROOM * settings.gpu_mem_gib * 2**30
            torch.cuda.empty_cache()  # what others are granted must not lie in this process's cache
            limit_memory(settings.gpu_mem_gib)

    job.on_change(change)


def saved_on_host(job: Job, *, least: int = 2**20) -> AbstractContextManager[Any]:
    """Around a forward pass: while the job is granted less than its peak, activations wait in pinned host memory.

    with saved_on_host(job):
        loss = model(batch).mean()
    loss.backward()

    As many as are missing, and somewhat more for what the allocator cannot join. Slower by two copies of them, so only
    for jobs whose memory they are; with all its memory nothing changes.
    """
    torch: Any = import_module("torch")
    if not job.squeezed:
        return nullcontext()
    most = (_MOVED_MORE * job.gpu_mem_missing_gib + _MOVED_MORE_GIB) * 2**30
    moved = HostActivations(torch, torch.cuda.is_available(), least, most)
    hooks: AbstractContextManager[Any] = torch.autograd.graph.saved_tensors_hooks(moved.pack, moved.unpack)
    return hooks


def limit_memory(limit_gib: float | None = None) -> float | None:
    """Keep to the job's limit of GPU memory (COTENANT_GPU_MEM_GIB), where it has one and CUDA is there.

    PyTorch then raises its out-of-memory error in this process, before a co-runner on the same GPU has to. Returns the
    largest fraction of a GPU that was set, or None. `attach` calls it; others call it before their first tensor.
    """
    try:
        limit_gib = float(os.environ.get("COTENANT_GPU_MEM_GIB", "")) if limit_gib is None else limit_gib
    except ValueError:
        return None
    torch: Any = import_module("torch")
    if not limit_gib > 0 or not torch.cuda.is_available():
        return None
    fractions = []
    for device in range(torch.cuda.device_count()):
        total = torch.cuda.get_device_properties(device).total_memory
        fractions.append(min(limit_gib * 2**30 / total, 1.0))
        torch.cuda.set_per_process_memory_fraction(fractions[-1], device)
    return max(fractions, default=None)


def random_state() -> dict[str, Any]:
    """State of the global generators of Python, NumPy (if the script uses it) and PyTorch."""
    torch: Any = import_module("torch")
    state: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state_all()
    if (numpy := sys.modules.get("numpy")) is not None:
        name, keys, *rest = numpy.random.get_state()
        state["numpy"] = (name, keys.tolist(), *rest)
    return state


def set_random_state(state: dict[str, Any]) -> None:
    """Put back what `random_state` returned; generators of GPUs that are no longer there are left out."""
    torch: Any = import_module("torch")
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        for device, cuda_state in list(enumerate(state["cuda"]))[: torch.cuda.device_count()]:
            torch.cuda.set_rng_state(cuda_state, device)
    if "numpy" in state and (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.set_state(tuple(state["numpy"]))


class Loader:
    """A DataLoader over a dataset with a length, whose batch size and workers are those of the job, at any step.

    The order of an epoch depends on seed and epoch alone. `state_dict` knows how many samples the loop has taken, so
    a restored run goes on with the very next one, also under another batch size, worker count or number of ranks. In a
    job of several ranks each takes its part of every global batch. Parts are equal where the batch divides by the
    ranks; where it does not, averaging the ranks' gradients weighs the samples of small parts a little more. Further
    arguments go to `torch.utils.data.DataLoader`.
    """

    def __init__(self, job: Job, dataset: Any, *, shuffle: bool = True, seed: int = 0, **options: Any) -> None:
        self._job = job
        self._dataset = dataset
        self._shuffle = shuffle
        self._seed = seed
        self._options = options
        self._epoch = 0
        self._taken = 0

    def __len__(self) -> int:
        """Batches of a whole epoch at the present batch size."""
        return -(-len(self._dataset) // self._job.global_batch)

    def __iter__(self) -> Iterator[Any]:
        """The rest of this epoch."""
        order = self._order()
        while self._taken < len(order):
            yield from self._with_present_settings(order[self._taken :])
        self._epoch += 1
        self._taken = 0

    def forever(self) -> Iterator[Any]:
        """Epoch after epoch, for `next(batches)` inside `job.steps`."""
        while True:
            yield from self

    def state_dict(self) -> dict[str, int]:
        """Epoch and samples taken in it."""
        return {"epoch": self._epoch, "taken": self._taken}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Go on from there."""
        self._epoch, self._taken = state_dict["epoch"], state_dict["taken"]

    def _order(self) -> list[int]:
        torch: Any = import_module("torch")
        count = len(self._dataset)
        if not self._shuffle:
            return list(range(count))
        order: list[int] = torch.randperm(count, generator=self._generator(torch)).tolist()
        return order

    def _generator(self, torch: Any) -> Any:
        """Its own generator, so that loading data does not disturb the random numbers of the model."""
        return torch.Generator().manual_seed(self._seed * 1_000_003 + self._epoch)

    def _with_present_settings(self, order: list[int]) -> Iterator[Any]:
        """Batches until the epoch ends or the scheduler changes batch size or workers."""
        torch: Any = import_module("torch")
        size, workers = self._job.global_batch, self._job.workers
        batches = [order[at : at + size] for at in range(0, len(order), size)]
        loader = torch.utils.data.DataLoader(
            self._dataset,
            batch_sampler=[self._part(batch) for batch in batches],
            num_workers=workers,
            generator=self._generator(torch),
            **self._options,
        )
        loaded = iter(loader)
        for indices in batches:
            with self._job.waiting():
                batch = next(loaded)
            self._taken += len(indices)
            yield batch
            if (self._job.global_batch, self._job.workers) != (size, workers):
                return

    def _part(self, batch: list[int]) -> list[int]:
        """What this rank takes of a global batch; of one with fewer samples than ranks, at least one all the same."""
        rank, ranks = self._job.rank, self._job.ranks
        each, more = divmod(len(batch), ranks)
        begin = rank * each + min(rank, more)
        return batch[begin : begin + each + (rank < more)] or [batch[rank % len(batch)]]
