"""ResNet-18 (`--size small`) or ResNet-50 (`large`) on pictures of CIFAR's size.

    python examples/train/resnet.py [--size large] [--steps 300] [--batch 512]

It has batch norm, so its batches must not be cut into sub-batches: its job files say nothing of `batch`.
"""

from __future__ import annotations

import torch
from images import CLASSES, Pictures
from torch import nn
from training import Batch, Size, Task, main
from transformers import ResNetConfig, ResNetForImageClassification

SIDE = 32
SIZES = {  # shape: 1 for bottleneck blocks, then blocks per stage
    "tiny": Size(6, 4, (0, 1, 1)),
    "small": Size(900, 512, (0, 2, 2, 2, 2)),
    "large": Size(350, 1024, (1, 3, 4, 6, 3)),
}


def build(size: Size, device: torch.device) -> Task:
    """The network of the paper (He et al. 2016), with widths from 64 on."""
    bottleneck, *depths = size.shape
    widths = [64 * 2**stage * (4 if bottleneck else 1) for stage in range(len(depths))]
    config = ResNetConfig(
        embedding_size=64, hidden_sizes=widths, depths=depths, layer_type="bottleneck" if bottleneck else "basic",
        num_labels=CLASSES,
    )  # fmt: skip
    model, pictures = ResNetForImageClassification(config), Pictures(SIDE, device)

    def loss(batch: Batch) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch[0]).logits, batch[1])

    return Task(model, pictures.draw, loss, 0.01, cuttable=False)


if __name__ == "__main__":
    main(__doc__, SIZES, build)
