"""Numbers as people read them: seconds, minutes, hours or days, three significant digits, no false precision.

Values in one column are compared with each other, so a column gets one unit where its range allows it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Number = int | float

ABSENT = "–"
_MIXED_RANGE = 300.0


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of time: its short name and its length in seconds."""

    name: str
    seconds: float


SECOND = Unit("s", 1.0)
MINUTE = Unit("min", 60.0)
HOUR = Unit("h", 3600.0)
DAY = Unit("d", 86400.0)


def number(value: object) -> float | None:
    """The value as a finite float, or None for what is absent, text, NaN or infinite."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return None
    try:
        result = float(value)  # type: ignore[arg-type]  # numpy scalars convert, the rest is caught
    except (TypeError, ValueError):
        return None
    return result if math.isfinite(result) else None


def unit_for(seconds: float) -> Unit:
    """The unit in which a length of time reads best: two minutes and more in min, two hours in h, ..."""
    size = abs(seconds)
    if size < 2 * MINUTE.seconds:
        return SECOND
    if size < 2 * HOUR.seconds:
        return MINUTE
    return HOUR if size < 2 * DAY.seconds else DAY


def significant(value: float, digits: int = 3) -> str:
    """A number with that many significant digits, never in scientific notation, zeros kept: 0.0500, 12.3."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else ABSENT
    return f"{value:,.{decimals_for(value, digits)}f}"


def decimals_for(value: float, digits: int = 3) -> int:
    """Decimals needed to show `value` with that many significant digits (after rounding; at most 8)."""
    if value == 0 or not math.isfinite(value):
        return 0
    rounded = float(f"{abs(value):.{digits - 1}e}")
    return min(8, max(0, digits - 1 - math.floor(math.log10(rounded))))


def duration(seconds: object, digits: int = 3) -> str:
    """A length of time in the unit that suits it: `42.0 s`, `3.40 min`, `2.46 h`, `5.31 d`."""
    value = number(seconds)
    if value is None:
        return ABSENT
    unit = unit_for(value)
    return f"{significant(value / unit.seconds, digits)} {unit.name}"


def count(value: object) -> str:
    """A whole number with thousands separators."""
    size = number(value)
    return ABSENT if size is None else f"{size:,.0f}"


def percent(value: object) -> str:
    """A fraction of one as a percentage."""
    size = number(value)
    return ABSENT if size is None else f"{100 * size:.1f} %"


def common_unit(seconds: Iterable[float]) -> Unit | None:
    """One unit for a column of times; None where they differ so much that each needs its own."""
    sizes = sorted(abs(value) for value in seconds if value)
    if not sizes:
        return SECOND
    if sizes[-1] / sizes[0] > _MIXED_RANGE:
        return None
    return unit_for(math.sqrt(sizes[0] * sizes[-1]))


def duration_column(seconds: Sequence[object]) -> tuple[str, list[str]]:
    """Texts for a column of times, and the unit for its heading ('' where each cell names its own)."""
    values = [number(value) for value in seconds]
    known = [value for value in values if value is not None]
    unit = common_unit(known)
    if unit is None:
        return "", [duration(value) for value in values]
    smallest = min((abs(value) for value in known if value), default=0.0)
    places = decimals_for(smallest / unit.seconds)
    return unit.name, [ABSENT if v is None else f"{v / unit.seconds:,.{places}f}" for v in values]
