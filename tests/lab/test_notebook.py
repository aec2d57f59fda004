"""The example notebook runs from top to bottom, and ten lines repeat the comparison of the README."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


def test_the_notebook_runs(tmp_path: Path) -> None:
    if not os.environ.get("CI"):
        pytest.importorskip("nbclient", reason="pip install -r requirements-notebook.txt")
        pytest.importorskip("ipykernel", reason="pip install -r requirements-notebook.txt")
    import nbclient
    import nbformat

    book = nbformat.read(ROOT / "examples" / "compare.ipynb", as_version=4)
    nbclient.NotebookClient(
        book, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    shown = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    kinds = {kind for output in shown for kind in output.get("data", {})}
    assert "text/html" in kinds
    assert "application/vnd.plotly.v1+json" in kinds
    assert not [output for output in shown if output.output_type == "error"]
    assert "waiting" in str(book.cells[-1].outputs[-1]["data"]["text/plain"])
