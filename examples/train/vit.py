"""A vision transformer: ViT-S/4 on pictures of CIFAR's size (`--size small`) or ViT-B/16 on 224 pixels (`large`).

python examples/train/vit.py [--size large] [--steps 300] [--batch 256]
"""

from __future__ import annotations

import torch
from images import CLASSES, Pictures
from torch import nn
from training import Batch, Size, Task, main
from transformers import ViTConfig, ViTForImageClassification

SIZES = {  # shape: side of the picture, of a patch, width, layers, heads
    "tiny": Size(6, 4, (8, 4, 32, 1, 2)),
    "small": Size(170, 256, (32, 4, 384, 12, 6)),
    "large": Size(100, 128, (224, 16, 768, 12, 12)),
}


def build(size: Size, device: torch.device) -> Task:
    """The network of the paper (Dosovitskiy et al. 2021), without dropout."""
    side, patch, width, layers, heads = size.shape
    config = ViTConfig(
        image_size=side, patch_size=patch, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=4 * width, num_labels=CLASSES, attn_implementation="eager",
    )  # fmt: skip
    model, pictures = ViTForImageClassification(config), Pictures(side, device)

    def loss(batch: Batch) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch[0]).logits, batch[1])

    return Task(model, pictures.draw, loss, 0.003)


if __name__ == "__main__":
    main(__doc__, SIZES, build)
