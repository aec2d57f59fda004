"""How far runs are: a bar on a terminal, a line that is updated in a notebook, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Show = Callable[[int, int], None]


@contextmanager
def progress_of(label: str, wanted: bool | None = None) -> Iterator[Show | None]:
    """Yield a function (done, total), or None where nobody is watching (or nobody wants to)."""
    if wanted is False:
        yield None
        return
    notebook = _notebook()
    if notebook is not None:
        with _in_notebook(notebook, label) as show:
            yield show
    elif wanted or sys.stderr.isatty():
        yield _line(label)
        sys.stderr.write("\r\033[K" if sys.stderr.isatty() else "\n")
    else:
        yield None


def _line(label: str) -> Show:
    def show(done: int, total: int) -> None:
        sys.stderr.write(f"\r{label}: {done:,} of {total:,}")
        sys.stderr.flush()

    return show


def _notebook() -> Any:
    """IPython's display module inside a notebook, else None."""
    shell = sys.modules.get("IPython")
    if shell is None or type(shell.get_ipython()).__name__ != "ZMQInteractiveShell":
        return None
    from IPython import display

    return display


@contextmanager
def _in_notebook(display: Any, label: str) -> Iterator[Show]:
    handle = display.display(display.HTML(""), display_id=True)

    def show(done: int, total: int) -> None:
        handle.update(
            display.HTML(f'{label}: <progress value="{done}" max="{total}"></progress> {done:,} of {total:,}')
        )

    yield show
    handle.update(display.HTML(""))
