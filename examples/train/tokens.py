"""Text for the language models: each token follows from the one before by a fixed rule, or is any, half of the time."""

from __future__ import annotations

import torch


def sequences(generator: torch.Generator, count: int, length: int, vocabulary: int) -> torch.Tensor:
    """So many sequences. Small numbers are more frequent, as frequent words are."""
    shape, device = (count, length), generator.device
    free = (torch.rand(shape, generator=generator, device=device) ** 3 * vocabulary).long()
    follows = torch.rand(shape, generator=generator, device=device) < 0.5
    before = free.roll(1, dims=1)
    return torch.where(follows, (before * 7 + 3) % vocabulary, free)
