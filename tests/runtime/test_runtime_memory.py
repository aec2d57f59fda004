"""The limit of GPU memory reaches PyTorch. A stand-in takes its place, for tests run without GPUs."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from cotenant.runtime import torch as runtime_torch


def fake_torch(calls: list[tuple[float, int]], sizes_gib: tuple[int, ...]) -> SimpleNamespace:
    cuda = SimpleNamespace(
        is_available=lambda: bool(sizes_gib),
        device_count=lambda: len(sizes_gib),
        get_device_properties=lambda device: SimpleNamespace(total_memory=sizes_gib[device] * 2**30),
        set_per_process_memory_fraction=lambda fraction, device: calls.append((fraction, device)),
    )
    return SimpleNamespace(cuda=cuda)


@pytest.mark.parametrize(
    ("limit", "sizes", "expected"),
    [
        ("20", (80, 40), [(0.25, 0), (0.5, 1)]),
        ("99", (80,), [(1.0, 0)]),
        ("20", (), []),
        ("", (80,), []),
        ("x", (80,), []),
    ],
)
def test_the_limit_becomes_a_fraction_of_each_gpu(
    monkeypatch: pytest.MonkeyPatch, limit: str, sizes: tuple[int, ...], expected: list[tuple[float, int]]
) -> None:
    calls: list[tuple[float, int]] = []
    monkeypatch.setitem(sys.modules, "torch", fake_torch(calls, sizes))  # type: ignore[arg-type]
    monkeypatch.setenv("COTENANT_GPU_MEM_GIB", limit)
    assert runtime_torch.limit_memory() == (max(fraction for fraction, _ in expected) if expected else None)
    assert calls == expected
