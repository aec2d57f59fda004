"""Claims in documents: where they stand, what they say, and whether a command still prints it.

A claim is a comment before a table, a block or a paragraph of Markdown, which readers of the page do not see:

    <!-- claim exact: python -m bench.helios -->

Its kinds: `exact` (deterministic and cheap, rerun by a test), `slow` (deterministic, minutes), `timed` (differs between
machines) and `device` (needs a GPU). Options stand after the kind: `needs=data` (the public logs), `within=5%` (what
may differ), `figures=5,6` (of each row these only, the first is 1). In tables and blocks every row with figures is
checked: they must stand, in this order, on the printed lines that begin with the row's words (if there are several, one
after the other; without words on one line); what is said may be rounded. In paragraphs the comment names the figures
itself, one a line, as the words of the page, which may be wrapped, and a pattern whose groups are the figures as
printed:

    <!-- claim exact: cotenant simulate ...
    30 % utilisation = utilisation +([0-9.]+)
    -->
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

KINDS = ("exact", "slow", "timed", "device")
_OPTIONS = ("needs", "within", "figures")
_MARK = re.compile(r"<!-- claim (?P<head>[^:]*?): (?P<body>.*?)-->", re.DOTALL)
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")
_DRESS = "|`*()[]%x~±;"  # around figures and words, without meaning of their own


@dataclass(frozen=True, slots=True)
class Figure:
    """A number as it is written: 46,278 or -0.001."""

    text: str

    @property
    def value(self) -> float:
        """As a number."""
        return float(self.text.replace(",", ""))

    def holds(self, printed: float, within: float) -> bool:
        """Whether this is the printed number, rounded to as many places as are said."""
        places = len(self.text.partition(".")[2])
        half = 0.5 * 10.0**-places
        return abs(printed - self.value) <= max(half * (1 + 1e-9), within * abs(self.value))


@dataclass(frozen=True, slots=True)
class Row:
    """A line with figures, and the words before the first of them."""

    line: int
    words: tuple[str, ...]
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """What a page says that a command prints."""

    page: str
    line: int
    kind: str
    command: str
    options: dict[str, str] = field(default_factory=dict)
    patterns: tuple[tuple[str, str], ...] = ()  # words of the page, pattern of what is printed
    block: tuple[tuple[int, str], ...] = ()  # numbered lines under the comment

    @property
    def within(self) -> float:
        """Relative difference that is allowed."""
        return float(self.options.get("within", "0%").rstrip("%")) / 100


@dataclass(frozen=True, slots=True)
class Stale:
    """A place where a page says otherwise than the command."""

    page: str
    line: int
    said: str
    printed: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: said {self.said}\n    printed {self.printed}"


def claims_of(root: Path, path: Path) -> Iterator[Claim]:
    """The claims of one page."""
    text, page = path.read_text(encoding="utf-8"), path.relative_to(root).as_posix()
    for found in _MARK.finditer(text):
        kind, *options = found["head"].split()
        line = text.count("\n", 0, found.start()) + 1
        command, *named = (part.strip() for part in found["body"].strip().split("\n"))
        given = dict(option.partition("=")[::2] for option in options)
        if kind not in KINDS or not command or not given.keys() <= set(_OPTIONS):
            raise ValueError(f"{page}:{line}: a claim is '<!-- claim KIND [needs=data] [within=P%]: COMMAND -->'")
        patterns = tuple((said.strip(), regex.strip()) for said, _, regex in (one.partition(" = ") for one in named))
        first = text.count("\n", 0, found.end()) + 1
        block = tuple(_block(text.split("\n"), first))
        yield Claim(page, line, kind, command, given, patterns, block)


def _block(lines: list[str], at: int) -> Iterator[tuple[int, str]]:
    """The numbered lines of the table, block or paragraph that begins after line `at` (the first is 1)."""
    while at < len(lines) and not lines[at].strip():
        at += 1
    fenced = at < len(lines) and lines[at].startswith("```")
    yield at + 1, lines[at]
    for k in range(at + 1, len(lines)):
        if not fenced and not lines[k].strip():
            return
        yield k + 1, lines[k]
        if fenced and lines[k].startswith("```"):
            return


def row_of(number: int, line: str) -> Row:
    """Words and figures of a line. Figures stand by themselves, so `noise=0.2` is a word."""
    tokens = [
        token for part in line.replace("|", " ").replace("/", " ").split() if (token := part.strip(_DRESS + ",:"))
    ]
    figures = tuple(Figure(token.rstrip("%x")) for token in tokens if _NUMBER.fullmatch(token.rstrip("%x")))
    words: list[str] = []
    for token in tokens:
        if _NUMBER.fullmatch(token.rstrip("%x")):
            break
        words.append(token)
    return Row(number, tuple(words), figures)


def stale(claim: Claim, printed: str) -> Iterator[Stale]:
    """Where the page says otherwise than what was printed."""
    if claim.patterns:
        yield from _stale_words(claim, printed)
        return
    rows = [row for k, line in enumerate(printed.splitlines()) if (row := row_of(k, line)).figures]
    places = [int(place) - 1 for place in claim.options.get("figures", "").split(",") if place]
    checked = 0
    for number, line in claim.block:
        said = row_of(number, line)
        if not said.figures or line.lstrip().startswith("$"):
            continue
        checked += 1
        wanted = [said.figures[k] for k in places if k < len(said.figures)] if places else list(said.figures)
        alike = [row for row in rows if _alike(said.words, row.words)]
        lines = [alike] if said.words else [[row] for row in alike]
        shown_values = [[one.value for row in some for one in row.figures] for some in lines]
        if not any(_in_order(wanted, values, claim.within) for values in shown_values):
            shown = "; ".join(" ".join([*row.words, *(one.text for one in row.figures)]) for row in alike[:4])
            yield Stale(claim.page, number, line.strip(), shown or f"nothing on '{' '.join(said.words)}'")
    if not checked:
        yield Stale(claim.page, claim.line, "nothing: no figure stands under this comment", "")


def _stale_words(claim: Claim, printed: str) -> Iterator[Stale]:
    text = " ".join(line.strip() for _, line in claim.block)
    for said, pattern in claim.patterns:
        if said not in text:
            yield Stale(claim.page, claim.line, f"no longer '{said}' under this comment", "")
            continue
        found = re.search(pattern, printed, re.MULTILINE)
        figures = [Figure(one) for one in _NUMBER.findall(said)]
        shown = [float(group.replace(",", "")) for group in found.groups()] if found else []
        if found is None or not shown or not _in_order(figures, shown, claim.within):
            line = next((number for number, line in claim.block if said.split()[0] in line), claim.line)
            yield Stale(claim.page, line, f"'{said}'", found[0] if found else f"nothing like {pattern}")


def _alike(said: tuple[str, ...], printed: tuple[str, ...]) -> bool:
    """Whether the one begins with the other, word for word."""
    least = min(len(said), len(printed))
    return said[:least] == printed[:least] and (least > 0 or not said)


def _in_order(said: list[Figure], printed: list[float], within: float) -> bool:
    """Whether all are among the printed ones, in this order."""
    rest = iter(printed)
    return all(any(figure.holds(one, within) for one in rest) for figure in said)
