"""What an optimizer remembers lies on the host between steps, and nothing else changes."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from cotenant.runtime._offload import HostActivations, HostMemory


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


@pytest.mark.slow
def test_a_job_that_is_granted_more_takes_its_memory_back() -> None:
    torch = pytest.importorskip("torch")
    held = 2 * 4 * (8 * 8 + 8)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    memory = HostMemory(optimizer, 1000.0, lambda: 1000.0, pin=False)
    seen = []
    for limit in (1000.0, 1000.0 + held, 1000.0):
        memory.limit = limit
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        seen.append((memory.active, memory.bytes))
    assert seen == [(True, held), (False, 0), (True, held)]


@pytest.mark.slow
def test_activations_wait_on_the_host_while_a_job_is_squeezed(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from cotenant import runtime
    from cotenant.runtime.torch import saved_on_host

    monkeypatch.setenv("COTENANT_GPU_MEM_PEAK_GIB", "16")
    gradients = []
    for granted, least in (("16", 1), ("12", 1), ("12", 2**40)):
        monkeypatch.setenv("COTENANT_GPU_MEM_GIB", granted)
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
        with runtime.job() as job:
            assert (job.squeezed, job.gpu_mem_missing_gib) == ((True, 4.0) if granted == "12" else (False, 0.0))
            hooks = saved_on_host(job, least=least)
            assert isinstance(hooks, nullcontext) == (granted == "16")
            with hooks:
                loss = model(torch.ones(64, 32)).sum()
        loss.backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    assert all(torch.equal(a, b) for other in gradients[1:] for a, b in zip(gradients[0], other, strict=True))
    moved = HostActivations(torch, pin=False, least=1)
    device, kept = moved.pack(torch.ones(8))
    assert (moved.bytes, moved.unpack((device, kept)).tolist()) == (32, [1.0] * 8)
    assert moved.pack(model[0].weight) == (None, model[0].weight)


def test_no_more_activations_wait_on_the_host_than_are_missing() -> None:
    torch = pytest.importorskip("torch")
    moved = HostActivations(torch, pin=False, least=1, most=48)
    kept = [moved.pack(torch.ones(8)) for _ in range(3)]  # 32 bytes each
    assert [device is None for device, _ in kept] == [False, False, True]
    assert moved.bytes == 64
