"""What an optimizer remembers lies on the host between steps, and nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.runtime._offload import HostMemory


def train(torch: Any, limit: float, seen: list[int] | None = None) -> tuple[list[float], HostMemory]:
    """Ten steps of AdamW; the peak of a pass is said to be 1,000 bytes."""
    torch.manual_seed(1)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    memory = HostMemory(optimizer, limit, lambda: 1000.0, pin=False)
    losses = []
    for step in range(10):
        optimizer.zero_grad()
        loss = model(torch.full((4, 8), float(step + 1))).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        if seen is not None:
            seen.append(memory.bytes)
    saved = optimizer.state_dict()
    fresh = torch.optim.AdamW(model.parameters(), lr=0.01)
    fresh.load_state_dict(saved)
    assert all(torch.equal(fresh.state[p]["exp_avg"], optimizer.state[p]["exp_avg"]) for p in model.parameters())
    return losses, memory


@pytest.mark.slow
def test_a_job_that_would_pass_its_limit_keeps_the_state_of_its_optimizer_on_the_host() -> None:
    torch = pytest.importorskip("torch")
    held = 2 * 4 * (8 * 8 + 8)  # two moments of 32 bits
    seen: list[int] = []
    plain, memory = train(torch, 1000.0 + held)
    assert (memory.active, memory.bytes) == (False, 0)
    moved, memory = train(torch, 1000.0 + held - 1, seen)
    assert memory.active
    assert seen == [held] * 10, "from the first step on, in buffers that are used again"
    assert moved == plain, "to the last bit"
