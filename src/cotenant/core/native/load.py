"""Call machine code from Python: load an object file, and hand numbers, arrays and tables over.

A table is laid out once as a record of addresses and lengths; the few that were used last are remembered, with the
tables themselves so that their arrays stay where they are. Calls keep Python's lock, as any call of an extension does.
"""

from __future__ import annotations

import ctypes
import struct
from collections import OrderedDict
from collections.abc import Callable
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
_probe = np.zeros(1)
if _word(id(_probe) + _DATA).value != _probe.__array_interface__["data"][0]:
    raise RuntimeError("NumPy keeps its numbers elsewhere than its C API says: install the one of requirements.lock")
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
    lines, words = [], []
    for at, (name, kind) in enumerate(zip(names, wanted, strict=True)):
        if isinstance(kind, Array):
            lines += _checks(name, kind)
            words += _words(name, kind)
        elif isinstance(kind, Struct):
            layout = _layout(kind)
            known[f"_known_{at}"], known[f"_lay_out_{at}"] = layout.known.get, layout
            lines.append(f"_{at} = _known_{at}(_id({name})) or _lay_out_{at}({name})")  # held until the call is over
            words.append(f"_{at}[2]")
        else:
            words.append(name if kind == FLOAT else f"{name} if _type({name}) is int else _int({name})")
    lines.append(f"return _code({', '.join(words)}){' != 0' if returns is BOOL else ''}")
    call = _written(plain.__name__, names, lines, known)
    call.__doc__ = plain.__doc__
    return call


def _checks(name: str, kind: Array, of: str = "", columns: int = 0) -> list[str]:
    """Lines that refuse an array that a kernel could not read; `of` names the table that it is in."""
    dtype = "_INT" if kind.of == INT else "_FLOAT"
    wrong = f"{name}.dtype != {dtype} or {name}.ndim != {kind.rank} or not {name}.flags.c_contiguous"
    lines = [f"if {wrong}: _refuse({name}, {dtype}, {kind.rank}, {of!r})"]
    return [*lines, f"if {name}.shape[1] != {columns}: _narrow({name}, {columns}, {of!r})"] if columns else lines


def _words(name: str, kind: Array) -> list[str]:
    """What is handed over of an array: its address and its lengths."""
    further = (f"{name}.shape[{axis}]" for axis in range(1, kind.rank))
    return [f"_word(_id({name}) + {_DATA}).value", f"_len({name})", *further]


def _written(name: str, arguments: list[str], lines: list[str], known: dict[str, Any]) -> Callable[..., Any]:
    exec(f"def {name}({', '.join(arguments)}):\n " + "\n ".join(lines), known)
    made: Callable[..., Any] = known[name]
    return made


def _int(value: Any) -> int:
    return int(value) if isinstance(value, (bool, np.bool_)) else value.__index__()


def _bits(value: Any) -> int:
    """A float as the whole number that lies in memory as it does."""
    found: int = struct.unpack("q", struct.pack("d", value))[0]
    return found


def _refuse(value: Any, dtype: np.dtype[Any], rank: int, of: str) -> NoReturn:
    raise TypeError(
        f"{of}a kernel wants a contiguous array of {dtype} with {rank} dimensions, not "
        f"{value.dtype} with {value.ndim}{'' if value.flags.c_contiguous else ', not contiguous'}"
    )


def _narrow(value: Any, columns: int, of: str) -> NoReturn:
    raise TypeError(f"{of}a kernel wants {columns} columns, not {value.shape[1]}")


_Laid = tuple[Any, Any, int]  # a table, its record and all that it points to, and the record's address


class _Layout:
    """How tables of one kind lie in memory, and those that were handed over last."""

    def __init__(self, kind: Struct) -> None:
        self.known: OrderedDict[int, _Laid] = OrderedDict()  # by the table's id
        known: dict[str, Any] = dict(_HELPERS)
        lines, words, inner = [], [], ""
        for (name, of), columns in zip(kind.fields, kind.columns, strict=True):
            if isinstance(of, Array):
                lines += _checks(name, of, f"{kind.name}.{name}: ", columns)
                words += _words(name, of)
            elif isinstance(of, Struct):
                known[f"_lay_out_{name}"] = _layout(of)
                lines.append(f"_{name} = _lay_out_{name}({name})")
                words.append(f"_{name}[2]")
                inner += f", _{name}"
            else:
                words.append(f"_bits({name})" if of == FLOAT else f"_int({name})")
        known["_record"] = ctypes.c_int64 * len(words)
        names = [name for name, _ in kind.fields]
        lines += [f"_made = _record({', '.join(words)})", f"return (_made{inner},), _addressof(_made)"]
        self._write = _written("write", names, lines, known)

    def __call__(self, value: Any) -> _Laid:
        """Lay a table out, unless it is known."""
        found = self.known.get(id(value))
        if found is None:
            found = (value, *self._write(*value))
            if len(self.known) >= _REMEMBERED:
                self.known.popitem(last=False)
            self.known[id(value)] = found
        return found


_layouts: dict[type, _Layout] = {}


def _layout(kind: Struct) -> _Layout:
    if kind.make not in _layouts:
        _layouts[kind.make] = _Layout(kind)
    return _layouts[kind.make]


_HELPERS = {
    "_FLOAT": _DTYPES[FLOAT], "_INT": _DTYPES[INT], "_refuse": _refuse, "_narrow": _narrow, "_int": _int,
    "_bits": _bits, "_word": _word, "_addressof": ctypes.addressof, "_id": id, "_len": len, "_type": type,
}  # fmt: skip
