"""Pictures for the scripts that classify: a pattern per class under noise, made where the model is."""

from __future__ import annotations

import torch

CLASSES = 10


class Pictures:
    """Pictures of one side length with their classes."""

    def __init__(self, side: int, device: torch.device) -> None:
        shape = (CLASSES, 3, side, side)
        self.patterns = torch.randn(shape, generator=torch.Generator(device).manual_seed(7), device=device)

    def draw(self, generator: torch.Generator, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """So many of them."""
        device = self.patterns.device
        kinds = torch.randint(CLASSES, (count,), generator=generator, device=device)
        noise = torch.randn((count, *self.patterns.shape[1:]), generator=generator, device=device)
        return self.patterns[kinds] + 2 * noise, kinds
