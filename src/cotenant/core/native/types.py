"""The types of kernels, read from their annotations: numbers, arrays of them, and named tuples of both."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ForwardRef


class KernelError(Exception):
    """A kernel says something that cannot be compiled; names the kernel and the line."""


@dataclass(frozen=True, slots=True)
class Number:
    """`int`, `float` or `bool`; `width` orders them: a wider one can hold a narrower one."""

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Array:
    """A C-contiguous array of 64-bit numbers."""

    of: Number
    rank: int


@dataclass(frozen=True, slots=True)
class Struct:
    """A named tuple of numbers, arrays and tables; in memory one record, passed by its address and never changed.

    `columns`: of each field how many columns its matrix has, where that is known when it is compiled; else 0.
    """

    name: str
    make: type
    fields: tuple[tuple[str, Any], ...]
    columns: tuple[int, ...]

    def place(self, field: str) -> int:
        """Which field it is."""
        return next(at for at, (name, _) in enumerate(self.fields) if name == field)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Several numbers that a kernel returns at once."""

    of: tuple[Number, ...]


BOOL, INT, FLOAT = Number("bool", 0), Number("int", 1), Number("float", 2)
Type = Number | Array | Struct | Numbers | None
_NAMED: dict[str, Type] = {
    "bool": BOOL, "int": INT, "float": FLOAT, "None": None,
    "Ints": Array(INT, 1), "IntMatrix": Array(INT, 2), "IntCube": Array(INT, 3),
    "Floats": Array(FLOAT, 1), "Matrix": Array(FLOAT, 2), "Cube": Array(FLOAT, 3),
}  # fmt: skip
_tables: dict[type, Struct] = {}
_nested: dict[tuple[str, str], type] = {}
_columns: dict[tuple[str, str], int] = {}


def nested(outer: type, **inner: type) -> None:
    """Say what tables a table holds in fields whose annotation cannot name them."""
    for field, kind in inner.items():
        _nested[outer.__name__, field] = kind


def columned(outer: type, **counts: int) -> None:
    """Say how many columns matrices of a table have, always: then an element is found without a multiplication."""
    for field, count in counts.items():
        _columns[outer.__name__, field] = count


def signature(plain: Callable[..., Any]) -> tuple[tuple[Type, ...], Type]:
    """Types of a kernel's arguments and of what it returns."""
    notes = dict(plain.__annotations__)
    returns = notes.pop("return", "None")
    try:
        types = tuple(read(note, plain.__globals__) for note in notes.values())
        return types, read(returns, plain.__globals__)
    except KernelError as error:
        raise KernelError(f"{plain.__module__}.{plain.__name__}: {error}") from None


def read(note: Any, names: Mapping[str, Any]) -> Type:
    """The type that an annotation means. Arrays go by the names that say how many dimensions they have."""
    text = note.__forward_arg__ if isinstance(note, ForwardRef) else str(note)
    if text in _NAMED:
        return _NAMED[text]
    if text.startswith("tuple["):
        parts = tuple(read(part.strip(), names) for part in text[6:-1].split(","))
        return Numbers(tuple(part for part in parts if isinstance(part, Number)))
    kind = names.get(text)
    if isinstance(kind, type) and hasattr(kind, "_fields"):
        return table(kind)
    raise KernelError(f"no type for '{text}': use int, float, bool, {', '.join(list(_NAMED)[4:])} or a named tuple")


def table(kind: type) -> Struct:
    """A named tuple as a type."""
    if kind not in _tables:
        names = vars(sys.modules[kind.__module__])
        notes = {name: kind.__annotations__[name] for name in kind._fields}  # type: ignore[attr-defined]
        fields = (
            (name, table(_nested[key]) if (key := (kind.__name__, name)) in _nested else read(note, names))
            for name, note in notes.items()
        )
        columns = tuple(_columns.get((kind.__name__, name), 0) for name in notes)
        _tables[kind] = Struct(kind.__name__, kind, tuple(fields), columns)
    return _tables[kind]
