"""Values of mappings that people wrote: each is checked, and a complaint names its place and the fix."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from cotenant.core.errors import InputError, unknown


def known(where: str, data: Mapping[Any, Any], keys: Iterable[str]) -> None:
    """Refuse fields that do not exist."""
    keys = tuple(keys)
    for key in data:
        if key not in keys:
            raise InputError(f"{where}: {unknown('field', str(key), keys)}")


def mapping(where: str, value: Any, example: str) -> Mapping[Any, Any]:
    """A mapping, or a complaint with an example of one."""
    if not isinstance(value, Mapping):
        raise InputError(f"{where}: must be a mapping such as {example}")
    return value


def whole(where: str, value: Any, low: int) -> int:
    """A whole number."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise InputError(f"{where} is {value!r}; it must be a whole number of at least {low}")
    return value


def amount(where: str, value: Any, of: str = "", most: float = math.inf) -> float:
    """A positive number; `most`: the largest that makes sense."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        limit = f", at most {most:g}" if most < math.inf else ""
        raise InputError(f"{where} is {value!r}; it must be a positive number{of}{limit}")
    return float(value)


def text(where: str, value: Any) -> str:
    """A name; a number is taken for one."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InputError(f"{where} is {value!r}; it must be a name")
    return str(value)


def names(where: str, value: Any) -> tuple[str, ...]:
    """A list of names; one name may stand alone."""
    if not isinstance(value, list | tuple):
        value = [value]
    return tuple(text(f"{where}[{at}]", item) for at, item in enumerate(value))


def yes(where: str, value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise InputError(f"{where} is {value!r}; write true or false")
    return value
