"""A progress bar on a terminal, nothing in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

COMPILING = "compiling, once for this version (about 10 s)"


@contextmanager
def progress_bar(label: str, first: str = "") -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function (done, total) that draws, or None where nobody is watching. `first` is said until then."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(first or label, total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, description=label)

        yield advance


def compiling(jobs: int, gpus: int) -> str:
    """What to say before the first large run of a version, whose loops are compiled; '' where they need not be."""
    from cotenant.core import jit

    large = jobs * min(gpus, 200) > 1_500_000
    return COMPILING if large and not jit.is_cached() else ""
