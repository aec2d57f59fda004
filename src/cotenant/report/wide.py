"""Wide tables on a screen: as few below each other as its width allows; a pipe gets the full width."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_FULL_WIDTH = 1000
_C = TypeVar("_C")


def print_in_parts(columns: Sequence[_C], make: Callable[[Sequence[_C]], Table], console: Console) -> None:
    """Print a table of these columns; `make` makes one of some of them."""
    from rich.measure import Measurement

    wide, rest = console.options.update(width=_FULL_WIDTH), list(columns)
    while rest:
        take, table = len(rest), make(rest)
        while console.is_terminal and take > 1 and Measurement.get(console, wide, table).maximum > console.width:
            take -= 1
            table = make(rest[:take])
        show(table, console)
        rest = rest[take:]


def show(table: Table, console: Console) -> None:
    """Print a table; where nobody looks at a screen, at its full width instead of the default 80 columns."""
    width = console.width
    console.width = width if console.is_terminal else _FULL_WIDTH
    try:
        console.print(table, highlight=False)
    finally:
        console.width = width
