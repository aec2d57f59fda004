"""Like reinforcement learning: a small policy network drives poles on carts that are computed on the CPU.

    python examples/train/rl.py [--size large] [--steps 200] [--batch 256]

Most of a step is the environment's, so the GPU is nearly idle. `--batch` is the number of carts.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from training import Batch, Size, Task, main

SIZES = {"tiny": Size(6, 4, (8, 16)), "small": Size(140, 256, (64, 256)), "large": Size(200, 1024, (64, 1024))}
GRAVITY, CART, POLE, HALF, FORCE, TAU = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02  # of Barto, Sutton and Anderson 1983


def push(state: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Where the carts and their poles are a moment later."""
    place, speed, angle, turn = state.T
    mass = CART + POLE
    force = np.where(right, FORCE, -FORCE)
    pull = (force + POLE * HALF * turn**2 * np.sin(angle)) / mass
    bend = (GRAVITY * np.sin(angle) - np.cos(angle) * pull) / (HALF * (4 / 3 - POLE * np.cos(angle) ** 2 / mass))
    drive = pull - POLE * HALF * bend * np.cos(angle) / mass
    return np.stack([place + TAU * speed, speed + TAU * drive, angle + TAU * turn, turn + TAU * bend], axis=1)


def build(size: Size, device: torch.device) -> Task:
    """REINFORCE (Williams 1992): what was done while the pole stood, and the rewards that followed, less the mean."""
    moments, width = size.shape
    model = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2))

    def draw(generator: torch.Generator, count: int) -> Batch:
        chance = np.random.default_rng(generator.initial_seed())
        state, upright = chance.uniform(-0.05, 0.05, (count, 4)), np.ones(count, bool)
        seen, done, alive = [], [], []
        for _ in range(moments):
            inputs = torch.as_tensor(state, dtype=torch.float32, device=device)
            with torch.no_grad():
                wish = model(inputs).softmax(dim=1)[:, 1].cpu().numpy()
            right = chance.random(count) < wish
            seen.append(inputs)
            done.append(torch.as_tensor(right, device=device).long())
            alive.append(upright)
            state = np.clip(push(state, right), -10, 10)
            upright = upright & (np.abs(state[:, 2]) < 0.2) & (np.abs(state[:, 0]) < 2.4)
        lived = np.array(alive, np.float32)
        left = lived[::-1].cumsum(axis=0)[::-1]
        worth = (left - left.mean()) * lived / moments
        gains = torch.as_tensor(np.ascontiguousarray(worth.T), device=device)
        return torch.stack(seen, dim=1), torch.stack(done, dim=1), gains

    def loss(batch: Batch) -> torch.Tensor:
        seen, done, gains = batch
        chosen = model(seen).log_softmax(dim=2).gather(2, done[:, :, None]).squeeze(2)
        return -(chosen * gains).mean()

    return Task(model, draw, loss, 0.1)


if __name__ == "__main__":
    main(__doc__, SIZES, build)
