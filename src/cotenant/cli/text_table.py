"""Tables as plain text. Rich makes the same, but loading it costs a short verb a third of its time."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

_GAP = "  "
_LEAST = 8  # cells that a column keeps when others need room


@dataclass(frozen=True, slots=True)
class TextTable:
    """Columns with their heads; those of `right` end where their heads end."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[str] = ()

    def text(self, width: int | None = None) -> str:
        """All lines, each at most `width` cells wide as far as the columns can be folded."""
        return "\n".join(self._lines(width))

    def _lines(self, width: int | None) -> Iterator[str]:
        widths = self._widths(width)
        yield from self._row(self.columns, widths)
        yield "─" * (sum(widths) + len(_GAP) * (len(widths) - 1))
        for row in self.rows:
            yield from self._row(row, widths)

    def _widths(self, width: int | None) -> list[int]:
        widths = [max(map(cells, column)) for column in zip(self.columns, *self.rows, strict=True)]
        while width is not None and (over := sum(widths) + len(_GAP) * (len(widths) - 1) - width) > 0:
            second, widest = sorted(widths)[-2:] if len(widths) > 1 else (_LEAST, widths[0])
            if widest <= _LEAST:
                break
            widths[widths.index(widest)] = max(_LEAST, widest - over, min(second, widest - 1))
        return widths

    def _row(self, row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
        parts = [list(fold(cell, wide)) for cell, wide in zip(row, widths, strict=True)]
        for line in zip_longest(*parts, fillvalue=""):
            made = []
            for name, part, wide in zip(self.columns, line, widths, strict=True):
                space = " " * (wide - cells(part))
                made.append(space + part if name in self.right else part + space)
            yield _GAP.join(made).rstrip()


def cells(text: str) -> int:
    """How wide a text is on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def fold(text: str, width: int) -> Iterator[str]:
    """The text in pieces of at most so many cells, cut between words where that is possible."""
    while cells(text) > width:
        cut = next(at for at in range(len(text), 0, -1) if cells(text[:at]) <= width or at == 1)
        space = text.rfind(" ", 0, cut + 1)
        yield text[: space if space > 0 else cut].rstrip()
        text = text[space + 1 if space > 0 else cut :]
    yield text
