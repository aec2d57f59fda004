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

    from cotenant.report.page import NOT_BUILT, built

    if not built():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(NOT_BUILT)

    book = nbformat.read(ROOT / "examples" / "compare.ipynb", as_version=4)
    nbclient.NotebookClient(
        book, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    shown = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    pages = [output["data"]["text/html"] for output in shown if "text/html" in output.get("data", {})]
    assert any("<table" in page for page in pages)
    assert sum("<iframe" in page for page in pages) == 2, "a figure shows itself"
    assert not [output for output in shown if output.output_type == "error"]
    assert "waiting" in str(book.cells[-1].outputs[-1]["data"]["text/plain"])
