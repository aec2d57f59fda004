"""Call machine code from Python: load an object file, and hand numbers, arrays and tables over.

A table is laid out once as a record of addresses and lengths; the few that were used last are remembered, with the
tables themselves so that their arrays stay where they are. Calls keep Python's lock, as any call of an extension does.
"""

from __future__ import annotations

import ctypes
import struct
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import llvmlite.binding as llvm
import numpy as np

from cotenant.core.native.target import machine, symbol
from cotenant.core.native.types import BOOL, FLOAT, INT, Array, Struct, Type, signature

_REMEMBERED = 4  # tables of each kind
_RETURNED: dict[Any, Any] = {BOOL: ctypes.c_int64, INT: ctypes.c_int64, FLOAT: ctypes.c_double, None: None}
_loaded: list[Library] = []
_word = ctypes.c_int64.from_address
_DATA = object.__basicsize__  # where an array of NumPy's C API keeps the address of its numbers: right after its head
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
        for kind in wanted:  # whole numbers go as addresses do: ctypes takes half as long over one
            words = 1 + kind.rank if isinstance(kind, Array) else 1
            kinds += [ctypes.c_double if kind == FLOAT else ctypes.c_void_p] * words
        prototype = ctypes.PYFUNCTYPE(_RETURNED[returns], *kinds)
        code = prototype(self._engine.get_function_address(symbol(plain)))
        return _caller(plain, code, wanted, returns)


def _caller(plain: Callable[..., Any], code: Any, wanted: tuple[Type, ...], returns: Type) -> Callable[..., Any]:
    """Hands arguments of just these types over, written out for them: a loop would take twice as long."""
    names = [name for name in plain.__annotations__ if name != "return"]
    known: dict[str, Any] = dict(_HELPERS, _code=code)
    checks, handed = [], []
    for at, (name, kind) in enumerate(zip(names, wanted, strict=True)):
        if isinstance(kind, Array):
            of = "_INT" if kind.of == INT else "_FLOAT"
            checks.append(
                f"if {name}.dtype != {of} or {name}.ndim != {kind.rank} or not {name}.flags.c_contiguous:"
                f" _refuse({name}, {of}, {kind.rank})"
            )
            handed += [f"_word(_id({name}) + {_DATA}).value", f"_len({name})"]
            handed += [f"{name}.shape[{axis}]" for axis in range(1, kind.rank)]
        elif isinstance(kind, Struct):
            lay_out = _hand(kind)
            known[f"_known_{at}"], known[f"_lay_out_{at}"] = lay_out.known.get, lay_out
            checks.append(f"_{at} = _known_{at}(_id({name})) or _lay_out_{at}({name})")  # held until the call is over
            handed.append(f"_{at}[2]")
        else:
            handed.append(name if kind == FLOAT else f"{name} if _type({name}) is int else _int({name})")
    given = f"_code({', '.join(handed)})"
    lines = [*checks, f"return {given} != 0" if returns is BOOL else f"return {given}"]
    exec(f"def {plain.__name__}({', '.join(names)}):\n " + "\n ".join(lines), known)
    call: Callable[..., Any] = known[plain.__name__]
    call.__doc__ = plain.__doc__
    return call


def _hand(kind: Type) -> Any:
    """How a field of a table is laid out: as one word, or for an array as several."""
    if isinstance(kind, Array):
        return partial(_array, _DTYPES[kind.of], kind.rank)
    if isinstance(kind, Struct):
        return _Layout(kind)
    return float if kind == FLOAT else _int


def _int(value: Any) -> int:
    return int(value) if isinstance(value, (bool, np.bool_)) else value.__index__()


def _array(dtype: np.dtype[Any], rank: int, value: Any) -> tuple[int, ...]:
    if value.dtype != dtype or value.ndim != rank or not value.flags.c_contiguous:
        _refuse(value, dtype, rank)
    return _word(id(value) + _DATA).value, *value.shape


def _refuse(value: Any, dtype: np.dtype[Any], rank: int) -> NoReturn:
    raise TypeError(
        f"a kernel wants a contiguous array of {dtype} with {rank} dimensions, not "
        f"{value.dtype} with {value.ndim}{'' if value.flags.c_contiguous else ', not contiguous'}"
    )


class _Layout:
    """Tables of one kind as they lie in memory: each with its record and that record's address."""

    def __init__(self, kind: Struct) -> None:
        self._table = kind.name
        self._hands = [(name, _hand(of), wide) for (name, of), wide in zip(kind.fields, kind.columns, strict=True)]
        self.known = _records.setdefault(kind.make, OrderedDict())  # those that were handed over last, by their id

    def __call__(self, value: Any) -> _Laid:
        """Lay a table out, unless it is known."""
        found = self.known.get(id(value))
        if found is not None:
            return found
        words: list[Any] = []
        inner: list[_Laid] = []  # records of tables in this table, which are to stay
        for (name, hand, columns), part in zip(self._hands, value, strict=True):
            if columns and part.shape[1] != columns:
                raise TypeError(f"{self._table}.{name}: a kernel wants {columns} columns, not {part.shape[1]}")
            try:
                handed = hand(part)
            except TypeError as error:
                raise TypeError(f"{self._table}.{name}: {error}") from None
            if isinstance(hand, _Layout):
                inner.append(handed)
                words.append(handed[2])
            elif isinstance(handed, tuple):
                words += handed
            else:
                words.append(struct.unpack("q", struct.pack("d", handed))[0] if isinstance(handed, float) else handed)
        record = (ctypes.c_int64 * len(words))(*words)
        laid = value, (record, inner), ctypes.addressof(record)
        if len(self.known) >= _REMEMBERED:
            self.known.popitem(last=False)
        self.known[id(value)] = laid
        return laid


_Laid = tuple[Any, Any, int]
_records: dict[type, OrderedDict[int, _Laid]] = {}
_HELPERS = {
    "_FLOAT": _DTYPES[FLOAT], "_INT": _DTYPES[INT], "_refuse": _refuse, "_int": _int, "_word": _word,
    "_id": id, "_len": len, "_type": type,
}  # fmt: skip
