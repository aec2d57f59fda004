"""What all tests share: where the trace collection lies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The trace collection named by COTENANT_DATA, or a skip that says what is missing."""
    folder = Path(os.environ.get("COTENANT_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no trace collection at {folder}: set COTENANT_DATA")
    return folder
