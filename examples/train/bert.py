"""BERT that learns to fill in masked words: half of BERT-base (`--size small`) or all of it (`large`).

python examples/train/bert.py [--size large] [--steps 300] [--batch 64]
"""

from __future__ import annotations

import torch
from tokens import sequences
from torch import nn
from training import Batch, Size, Task, main
from transformers import BertConfig, BertForMaskedLM

SIZES = {  # shape: words, length, width, layers
    "tiny": Size(6, 4, (64, 16, 32, 1)),
    "small": Size(320, 64, (8192, 128, 512, 6)),
    "large": Size(150, 64, (30522, 128, 768, 12)),
}
MASK = 0  # the token that stands for a masked one
MASKED = 0.15


def build(size: Size, device: torch.device) -> Task:
    """The network of the paper (Devlin et al. 2019), without dropout; the loss is that of the masked words."""
    words, length, width, layers = size.shape
    config = BertConfig(
        vocab_size=words, hidden_size=width, num_hidden_layers=layers, num_attention_heads=max(width // 64, 1),
        intermediate_size=4 * width, max_position_embeddings=length, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, attn_implementation="eager",
    )  # fmt: skip
    model = BertForMaskedLM(config)
    hidden = int(length * MASKED)

    def draw(generator: torch.Generator, count: int) -> Batch:
        text = sequences(generator, count, length, words)
        order = torch.rand((count, length), generator=generator, device=device).argsort(dim=1)
        return text.scatter(1, order[:, :hidden], MASK), text, order[:, :hidden]

    def loss(batch: Batch) -> torch.Tensor:
        seen, text, where = batch
        guessed = model(seen).logits.gather(1, where[:, :, None].expand(-1, -1, words))
        return nn.functional.cross_entropy(guessed.flatten(0, 1), text.gather(1, where).flatten())

    return Task(model, draw, loss, 0.01)


if __name__ == "__main__":
    main(__doc__, SIZES, build)
