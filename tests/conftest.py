"""What all tests share: where the trace collection lies, and what a quick run leaves out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.core import jit, jit_later

ROOT = Path(__file__).resolve().parents[1]


# Tests that play every policy do so under these in a quick run, one of each kind; `make test` plays all.
QUICK = {"fifo", "srtf", "tiresias-l", "gavel", "chronus", "sjf-bsbf", "ones-goodput", "muri-s"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is said of every policy is slow for most of them."""
    for item in items:
        given = getattr(item, "callspec", None)
        policy = given.params.get("policy") if given else None
        policy = policy or getattr(getattr(item, "cls", None), "policy", None)
        if isinstance(policy, str) and "/" not in policy and policy.split(":")[0] not in QUICK:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The trace collection named by COTENANT_DATA, or a skip that says what is missing."""
    folder = Path(os.environ.get("COTENANT_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no trace collection at {folder}: set COTENANT_DATA")
    return folder


@pytest.fixture(autouse=True, scope="session")
def _plain_kernels() -> Iterator[None]:
    """Large runs stay plain in this process, so that no test waits for the compiler or depends on which ran before it.

    What compiles does so in a process of its own (tests/sim/test_determinism.py).
    """
    enable, jit.enable = jit.enable, lambda folder=None: None
    want, jit_later.Later.want = jit_later.Later.want, lambda self: None
    yield
    jit.enable, jit_later.Later.want = enable, want
