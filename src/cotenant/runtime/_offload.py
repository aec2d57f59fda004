"""Memory beyond the job's limit: what an optimizer remembers lies in host memory between its steps.

The peak of a step is in its backward pass, where activations and what the optimizer remembers are there together. A job
that would pass its limit (COTENANT_GPU_MEM_GIB) moves the latter to pinned host memory after every optimizer step and
back before the next one, when activations are gone: it gets slower instead of failing. Plain copies, never the
driver's managed memory, whose pages come and go at any time and slow down everybody on the GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class HostMemory:
    """Watches the first steps of an optimizer, and begins to move what it remembers when that is needed.

    `limit` are bytes that the job may use of its GPU, `peak()` those that it has used at most so far, of all that the
    allocator counts. `pin` copies go faster, and are possible where there is CUDA.
    """

    def __init__(self, optimizer: Any, limit: float, peak: Callable[[], float], pin: bool = True) -> None:
        self._optimizer, self._limit, self._peak, self._pin = optimizer, limit, peak, pin
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
        if not self.active and max(self._before + held, self._peak()) <= self._limit:
            return
        self.active = True
        for parameter, name, value in tensors:
            at = id(parameter), name
            if at not in self._kept:
                self._kept[at] = value.new_empty(value.shape, device="cpu", pin_memory=self._pin)
            self._kept[at].copy_(value)  # waits for the step, so that the memory is free when the next pass begins
            self._optimizer.state[parameter][name] = self._kept[at]
