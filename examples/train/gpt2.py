"""GPT-2 that learns the next token: a third of the smallest one (`--size small`) or all of it (`large`).

python examples/train/gpt2.py [--size large] [--steps 200] [--batch 32]
"""

from __future__ import annotations

import torch
from tokens import sequences
from torch import nn
from training import Batch, Size, Task, main
from transformers import GPT2Config, GPT2LMHeadModel

SIZES = {  # shape: words, length, width, layers
    "tiny": Size(6, 4, (64, 16, 32, 1)),
    "small": Size(350, 32, (8192, 256, 512, 8)),
    "large": Size(120, 32, (50257, 256, 768, 12)),
}


def build(size: Size, device: torch.device) -> Task:
    """The network of the paper (Radford et al. 2019), without dropout."""
    words, length, width, layers = size.shape
    config = GPT2Config(
        vocab_size=words, n_positions=length, n_embd=width, n_layer=layers, n_head=max(width // 64, 1),
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=0, eos_token_id=0, use_cache=False, attn_implementation="eager",
    )  # fmt: skip
    model = GPT2LMHeadModel(config)

    def draw(generator: torch.Generator, count: int) -> Batch:
        return (sequences(generator, count, length, words),)

    def loss(batch: Batch) -> torch.Tensor:
        (text,) = batch
        return nn.functional.cross_entropy(model(text).logits[:, :-1].flatten(0, 1), text[:, 1:].flatten())

    return Task(model, draw, loss, 0.01)


if __name__ == "__main__":
    main(__doc__, SIZES, build)
