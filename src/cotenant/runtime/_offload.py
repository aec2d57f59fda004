"""Memory beyond the job's limit: what an optimizer remembers, or activations, lie in host memory meanwhile.

The peak of a step is in its backward pass, where activations and what the optimizer remembers are there together. A job
that would pass its limit (COTENANT_GPU_MEM_GIB) moves the latter to pinned host memory after every optimizer step and
back before the next one, when activations are gone: it gets slower instead of failing. Plain copies, never the
driver's managed memory, whose pages come and go at any time and slow down everybody on the GPU. The limit may change
while the job runs: what a job is granted depends on who is beside it. Activations, which a forward pass keeps for the
backward pass, are for scripts that ask for it (`HostActivations`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any


class HostMemory:
    """Watches the first steps of an optimizer, and begins to move what it remembers when that is needed.

    `limit` are bytes that the job may use of its GPU, `peak()` those that it has used at most so far, of all that the
    allocator counts. `pin` copies go faster, and are possible where there is CUDA.
    """

    def __init__(self, optimizer: Any, limit: float, peak: Callable[[], float], pin: bool = True) -> None:
        self._optimizer, self.limit, self._peak, self._pin = optimizer, limit, peak, pin
        self._before = 0.0  # the peak of a pass without anything that the optimizer remembers
        self._kept: dict[tuple[int, str], Any] = {}  # buffers on the host, used again and again
        self.active = False
        optimizer.register_step_pre_hook(self._come)
        optimizer.register_step_post_hook(self._go)

    @property
    def bytes(self) -> int:
        """What lies on the host between steps."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self._kept.values()) if self.active else 0

    def _tensors(self) -> list[tuple[Any, str, Any]]:
        """What the optimizer remembers, as parameter, name and tensor; counters of steps stay where they are."""
        found = []
        for parameter, state in self._optimizer.state.items():
            found += [(parameter, name, value) for name, value in state.items() if getattr(value, "ndim", 0)]
        return found

    def _come(self, *_: Any) -> None:
        tensors = self._tensors()
        if not tensors:
            self._before = self._peak()
        for parameter, name, value in tensors if self.active else ():
            self._optimizer.state[parameter][name] = value.to(parameter.device, non_blocking=True, copy=True)

    def _go(self, *_: Any) -> None:
        tensors = self._tensors()
        held = sum(value.numel() * value.element_size() for _, _, value in tensors)
        whole = self._before + held  # a peak that was seen tells nothing any more once something lay on the host
        needed = whole if self._kept else max(whole, self._peak())
        self.active = needed > self.limit
        if not self.active:
            return
        for parameter, name, value in tensors:
            at = id(parameter), name
            if at not in self._kept:
                self._kept[at] = value.new_empty(value.shape, device="cpu", pin_memory=self._pin)
            self._kept[at].copy_(value)  # waits for the step, so that the memory is free when the next pass begins
            self._optimizer.state[parameter][name] = self._kept[at]


class HostActivations:
    """Hooks for `torch.autograd.graph.saved_tensors_hooks`: large tensors that a forward pass keeps wait on the host.

    Parameters stay, for they are on the GPU anyhow. `least` are the bytes from which on a copy is worth it, `most` how
    many are to be moved: the first ones, which the backward pass needs last.
    """

    def __init__(self, torch: Any, pin: bool = True, least: int = 2**20, most: float = math.inf) -> None:
        self._torch, self._pin, self._least, self._most = torch, pin, least, most
        self.bytes = 0  # moved so far

    def pack(self, tensor: Any) -> tuple[Any, Any]:
        """To the host, with where it belongs; small ones and parameters stay."""
        size = tensor.numel() * tensor.element_size()
        enough = self.bytes >= self._most
        if enough or size < self._least or (tensor.is_leaf and tensor.requires_grad) or tensor.is_sparse:
            return None, tensor
        held = self._torch.empty(tensor.size(), dtype=tensor.dtype, layout=tensor.layout, pin_memory=self._pin)
        held.copy_(tensor, non_blocking=self._pin)
        self.bytes += size
        return tensor.device, held

    def unpack(self, packed: tuple[Any, Any]) -> Any:
        """Back to where it was."""
        device, held = packed
        return held if device is None else held.to(device, non_blocking=self._pin)
