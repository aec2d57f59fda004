"""Call machine code from Python: load an object file, and hand numbers, arrays and tables over.

A table is laid out once as a record of addresses and lengths; the few that were used last are remembered, with the
tables themselves so that their arrays stay where they are. Calls keep Python's lock, as any call of an extension does.
"""

from __future__ import annotations

import ctypes
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from cotenant.core.native.target import machine, symbol
from cotenant.core.native.types import BOOL, FLOAT, INT, Array, Number, Struct, Type, signature

_REMEMBERED = 4  # tables of each kind
_C_TYPES: dict[Any, Any] = {BOOL: ctypes.c_int64, INT: ctypes.c_int64, FLOAT: ctypes.c_double, None: None}
_loaded: list[Library] = []
_byte_of = ctypes.c_char.from_buffer
_DTYPES = {INT: np.dtype(np.int64), FLOAT: np.dtype(np.float64)}


class Library:
    """Machine code of kernels in this process."""

    def __init__(self, code: bytes) -> None:
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine())
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        _loaded.append(self)  # its functions may be called for as long as this process lives

    def __contains__(self, plain: Callable[..., Any]) -> bool:
        """Whether it was compiled; a kernel of somebody else's module was not."""
        return bool(self._engine.get_function_address(symbol(plain)))

    def cells(self, name: str, count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """A table of whole numbers that lies in the code itself, such as clocks."""
        where = self._engine.get_global_value_address(name)
        return np.ctypeslib.as_array((ctypes.c_int64 * count).from_address(where))

    def function(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """The compiled form of a kernel, to be called as the plain one is."""
        wanted, returns = signature(plain)
        kinds: list[Any] = []
        for kind in wanted:
            if isinstance(kind, Array):
                kinds += [ctypes.c_void_p, *[ctypes.c_int64] * kind.rank]
            else:
                kinds.append(_C_TYPES[kind] if isinstance(kind, Number) else ctypes.c_void_p)
        prototype = ctypes.PYFUNCTYPE(_C_TYPES[returns], *kinds)
        code = prototype(self._engine.get_function_address(symbol(plain)))
        return _caller(plain, code, wanted, returns)


def _caller(plain: Callable[..., Any], code: Any, wanted: tuple[Type, ...], returns: Type) -> Callable[..., Any]:
    hands = tuple(_hand(kind) for kind in wanted)
    flat = not any(isinstance(kind, Array) for kind in wanted)  # one value each

    def call(*given: Any) -> Any:
        if len(given) != len(hands):
            raise TypeError(f"{plain.__name__} takes {len(hands)} arguments, not {len(given)}")
        if flat:
            result = code(*[hand(value) for hand, value in zip(hands, given, strict=True)])
        else:
            result = code(*_flat(hands, given))
        return result != 0 if returns is BOOL else result

    call.__name__, call.__doc__ = plain.__name__, plain.__doc__
    return call


def _flat(hands: Iterable[Callable[[Any], Any]], given: Iterable[Any]) -> list[Any]:
    held: list[Any] = []
    for hand, value in zip(hands, given, strict=True):
        handed = hand(value)
        if isinstance(hand, _ArrayHand):
            held += handed
        else:
            held.append(handed)
    return held


def _hand(kind: Type) -> Callable[[Any], Any]:
    """How one argument is handed over: as one value, or for an array as several."""
    if isinstance(kind, Array):
        return _ArrayHand(kind)
    if isinstance(kind, Struct):
        hands = tuple((name, _hand(of), wide) for (name, of), wide in zip(kind.fields, kind.columns, strict=True))
        return partial(_record, kind.name, hands, _records.setdefault(kind.make, OrderedDict()))
    return float if kind == FLOAT else _int


def _int(value: Any) -> int:
    return int(value) if isinstance(value, (bool, np.bool_)) else value.__index__()


class _ArrayHand:
    def __init__(self, kind: Array) -> None:
        self._dtype, self._rank = _DTYPES[kind.of], kind.rank

    def __call__(self, value: Any) -> tuple[int, ...]:
        if value.dtype != self._dtype or value.ndim != self._rank or not value.flags.c_contiguous:
            raise TypeError(
                f"a kernel wants a contiguous array of {self._dtype} with {self._rank} dimensions, not "
                f"{value.dtype} with {value.ndim}{'' if value.flags.c_contiguous else ', not contiguous'}"
            )
        return _address(value), *value.shape


def _address(array: Any) -> int:
    """Where the numbers of an array lie: by the buffer, which is quicker to ask than the array but must be writable."""
    try:
        return ctypes.addressof(_byte_of(array))
    except (TypeError, ValueError):  # it is sealed, or empty
        where: int = array.__array_interface__["data"][0]
        return where


_Records = OrderedDict[int, tuple[Any, Any]]
_records: dict[type, _Records] = {}


def _record(table: str, hands: tuple[tuple[str, Any, int], ...], known: _Records, value: Any) -> Any:
    """A table as it lies in memory; `known` are those of its kind that were handed over last."""
    found = known.get(id(value))
    if found is not None:
        return found[1]
    words: list[Any] = []
    inner: list[Any] = []  # records of tables in this table, which are to stay
    for (name, hand, columns), part in zip(hands, value, strict=True):
        if columns and part.shape[1] != columns:
            raise TypeError(f"{table}.{name}: a kernel wants {columns} columns, not {part.shape[1]}")
        try:
            handed = hand(part)
        except TypeError as error:
            raise TypeError(f"{table}.{name}: {error}") from None
        if isinstance(handed, tuple):
            words += handed
        elif isinstance(handed, ctypes.Array):
            inner.append(handed)
            words.append(ctypes.addressof(handed))
        else:
            words.append(struct.unpack("q", struct.pack("d", handed))[0] if isinstance(handed, float) else handed)
    record = (ctypes.c_int64 * len(words))(*words)
    record.inner = inner  # type: ignore[attr-defined]
    if len(known) >= _REMEMBERED:
        known.popitem(last=False)
    known[id(value)] = (value, record)
    return record
