"""A language model of LSTM layers: many small kernels, so the GPU is idle for much of the time.

python examples/train/lstm.py [--size large] [--steps 500] [--batch 32]
"""

from __future__ import annotations

import torch
from tokens import sequences
from torch import nn
from training import Batch, Size, Task, main

SIZES = {  # shape: words, length, width, layers
    "tiny": Size(6, 4, (64, 16, 32, 1)),
    "small": Size(700, 32, (8192, 128, 512, 2)),
    "large": Size(200, 64, (32768, 256, 1024, 3)),
}


class Lstm(nn.Module):
    """Embedding, LSTM layers, and a guess of the next word."""

    def __init__(self, words: int, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layers = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embedding(text))[0])


def build(size: Size, device: torch.device) -> Task:
    """As in Merity et al. 2018, without their regularisation."""
    words, length, width, layers = size.shape
    model = Lstm(words, width, layers)

    def draw(generator: torch.Generator, count: int) -> Batch:
        return (sequences(generator, count, length, words),)

    def loss(batch: Batch) -> torch.Tensor:
        (text,) = batch
        return nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())

    return Task(model, draw, loss, 0.1)


if __name__ == "__main__":
    main(__doc__, SIZES, build)
