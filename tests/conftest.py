"""What all tests share: where the trace collection lies, and what a quick run leaves out."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import effort
from browser_kit import browser  # noqa: F401
from cotenant.core import jit, jit_later

ROOT = Path(__file__).resolve().parents[1]


def pytest_configure(config: pytest.Config) -> None:
    """Settle what this run may cost. Hundreds of processes are started: let Python keep what it compiles for them."""
    effort.WHOLE[0] = config.option.markexpr != "not slow"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is said of every policy is slow for most of them, and random cases are fewer in a quick run."""
    for item in items:
        given = getattr(item, "callspec", None)
        policy = given.params.get("policy") if given else None
        policy = policy or getattr(getattr(item, "cls", None), "policy", None)
        if not isinstance(policy, str):
            continue
        rare = "/" not in policy and policy.split(":")[0] not in effort.POLICIES
        if rare or (given and given.params.get("placement", effort.PLACEMENT) != effort.PLACEMENT):
            item.add_marker(pytest.mark.slow)
    if not effort.WHOLE[0]:
        for place in {
            place for item in items for place in (getattr(item, "function", None), getattr(item, "cls", None))
        }:
            _fewer_examples(place)


def _fewer_examples(place: Any) -> None:
    """Hypothesis has no public word for the settings of a function. Were the private one to go, runs are longer."""
    for name in ("_hypothesis_internal_use_settings", "settings"):
        if isinstance(found := getattr(place, name, None), settings):
            setattr(place, name, settings(found, max_examples=effort.examples(found.max_examples)))


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
