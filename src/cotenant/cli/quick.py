"""Arguments that are texts and numbers, turned into them here.

Typer takes pydantic for that, and loading it costs every call a quarter of a second. Whatever is less plain, and
whatever is wrong, still goes to Typer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args, get_origin

from typer.core import TyperArgument, TyperOption

_PLAIN = (str, int, float, bool)


@cache
def quicken() -> None:
    """Have Typer ask here first. Versions of it that do not take pydantic are left as they are."""
    kinds: tuple[Any, ...] = (TyperArgument, TyperOption)
    for kind in kinds:
        usual = getattr(kind, "get_runtime_param", None)
        if usual is not None:
            kind.get_runtime_param = lambda param, usual=usual: _Quick(lambda: usual(param))


@dataclass(frozen=True, slots=True)
class _Quick:
    """Turns the text of a parameter into its value; `usual` gives Typer's way."""

    usual: Callable[[], Any]

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value, as Typer would make it."""
        kind, info = param.type_descriptor.annotation, param.type_descriptor.parameter_info
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        try:
            if info.parser is not None and not several:
                return info.parser(value) if isinstance(value, str) else value
            if info.parser is not None or info.clamp:
                raise ValueError
            if not several:
                return _plain(value, kind, info)
            one = get_args(kind)[0] if get_origin(kind) is list else None
            return [_plain(item, one, info) for item in value]
        except ValueError:
            return self.usual().coerce(value, param=param, ctx=ctx)


def _plain(value: Any, kind: Any, info: Any) -> Any:
    """A value that needs no more than its own type; a ValueError where it does."""
    if kind not in _PLAIN or (kind is bool and type(value) is not bool):
        raise ValueError
    made = value if type(value) is kind else kind(value)
    low, high = (None, None) if kind is str else (info.min, info.max)
    if (low is not None and not made >= low) or (high is not None and not made <= high):
        raise ValueError
    return made
