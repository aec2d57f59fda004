"""A recommender: large tables of embeddings, looked up a few rows at a time, and a small network on top.

python examples/train/recommender.py [--size large] [--steps 1000] [--batch 4096]
"""

from __future__ import annotations

import torch
from torch import nn
from training import Batch, Size, Task, main

SIZES = {  # shape: tables, rows of each, width
    "tiny": Size(6, 8, (2, 50, 4)),
    "small": Size(2800, 4096, (8, 100_000, 32)),
    "large": Size(500, 16384, (26, 200_000, 64)),
}
DENSE = 13  # plain numbers per sample


class Recommender(nn.Module):
    """The tables are one, each with its part of the rows."""

    def __init__(self, tables: int, rows: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tables * rows, width)
        self.register_buffer("first", torch.arange(tables) * rows)
        inputs = tables * width + DENSE
        self.net = nn.Sequential(nn.Linear(inputs, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, plain: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        found = self.embedding(chosen + self.first).flatten(1)
        return self.net(torch.cat([plain, found], dim=1)).squeeze(1)


def build(size: Size, device: torch.device) -> Task:
    """As in Naumov et al. 2019 (DLRM), less the products between tables."""
    tables, rows, width = size.shape
    model = Recommender(tables, rows, width)

    def draw(generator: torch.Generator, count: int) -> Batch:
        plain = torch.randn((count, DENSE), generator=generator, device=device)
        chosen = (torch.rand((count, tables), generator=generator, device=device) ** 4 * rows).long()
        clicked = (plain[:, :4].sum(dim=1) + (chosen % 3 - 1).sum(dim=1) > 0).float()
        return plain, chosen, clicked

    def loss(batch: Batch) -> torch.Tensor:
        plain, chosen, clicked = batch
        return nn.functional.binary_cross_entropy_with_logits(model(plain, chosen), clicked)

    return Task(model, draw, loss, 0.05)


if __name__ == "__main__":
    main(__doc__, SIZES, build)
