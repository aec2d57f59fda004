"""One tree of errors. Everything a user can cause is an `InputError`: one line, exit code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MOST_NAMED = 24


class CotenantError(Exception):
    """Base of every error that Cotenant raises on purpose."""


class InputError(CotenantError):
    """Something the user gave is wrong. The text is one line that names the place and the fix."""


class InvariantError(CotenantError):
    """The engine broke one of its own rules; always a bug of ours, never of the input."""


def nearest(given: str, known: Iterable[str], cutoff: float = 0.75) -> str:
    """The known name that was probably meant, or ''."""
    return next(iter(difflib.get_close_matches(given, list(known), n=1, cutoff=cutoff)), "")


def unknown(what: str, given: str, known: Iterable[str]) -> InputError:
    """The error for a name that does not exist, with the nearest one that does."""
    names = sorted(known)
    near = difflib.get_close_matches(given, names, n=1, cutoff=0.5)
    shown = ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")
    hint = f"did you mean '{near[0]}'?" if near else f"known: {shown}"
    return InputError(f"unknown {what} '{given}': {hint}")
