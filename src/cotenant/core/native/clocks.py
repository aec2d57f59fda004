"""Clocks in machine code, for whoever asks where the time goes: cycles, calls and turns of loops, kernel by kernel.

A kernel that has a clock is not merged into its callers. Time belongs to the innermost kernel that has one, and so do
the turns of all loops. Machine code for everyday use has none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

NAME = "clocks"
CYCLES, CALLS, TURNS = range(3)
_WHOLE = ir.IntType(64)


class Clocks:
    """Writes clocks into a module. The last row is of whatever calls the first kernel with a clock; two more cells
    hold whose time it is, and since which cycle."""

    def __init__(self, module: ir.Module, kernels: Sequence[Callable[..., Any]]) -> None:
        self._rows = {plain: row for row, plain in enumerate(kernels)}
        cells = ir.ArrayType(_WHOLE, size(len(kernels)))
        self._cells = ir.GlobalVariable(module, cells, NAME)
        self._cells.initializer = ir.Constant(cells, [0] * (3 * len(kernels) + 3) + [len(kernels), 0])
        self._cells.type = ir.PointerType()
        self._whose, self._since = size(len(kernels)) - 2, size(len(kernels)) - 1
        self._counter = ir.Function(module, ir.FunctionType(_WHOLE, []), "llvm.readcyclecounter")

    def __contains__(self, plain: Callable[..., Any]) -> bool:
        """Whether a kernel has one."""
        return plain in self._rows

    def enter(self, b: ir.IRBuilder, plain: Callable[..., Any]) -> Any:
        """Before a call of it; whose time it was."""
        before = self._load(b, self._whose)
        row = ir.Constant(_WHOLE, self._rows[plain])
        self._switch(b, before, row)
        self._add(b, row, CALLS, ir.Constant(_WHOLE, 1))
        return before

    def leave(self, b: ir.IRBuilder, before: Any) -> None:
        """Behind the call."""
        self._switch(b, self._load(b, self._whose), before)

    def turns(self, b: ir.IRBuilder, count: Any) -> None:
        """A loop of so many turns begins, or of none if that is negative."""
        zero = ir.Constant(_WHOLE, 0)
        self._add(b, self._load(b, self._whose), TURNS, b.select(b.icmp_signed(">", count, zero), count, zero))

    def _switch(self, b: ir.IRBuilder, before: Any, after: Any) -> None:
        now, since = b.call(self._counter, []), self._load(b, self._since)
        started = b.icmp_unsigned("!=", since, ir.Constant(_WHOLE, 0))
        self._add(b, before, CYCLES, b.select(started, b.sub(now, since), ir.Constant(_WHOLE, 0)))
        b.store(now, self._at(b, ir.Constant(_WHOLE, self._since)))
        b.store(after, self._at(b, ir.Constant(_WHOLE, self._whose)))

    def _add(self, b: ir.IRBuilder, row: Any, what: int, value: Any) -> None:
        at = self._at(b, b.add(b.mul(row, ir.Constant(_WHOLE, 3)), ir.Constant(_WHOLE, what)))
        b.store(b.add(b.load(at, typ=_WHOLE), value), at)

    def _load(self, b: ir.IRBuilder, cell: int) -> Any:
        return b.load(self._at(b, ir.Constant(_WHOLE, cell)), typ=_WHOLE)

    def _at(self, b: ir.IRBuilder, cell: Any) -> Any:
        return b.gep(self._cells, [cell], inbounds=True, source_etype=_WHOLE)


def size(kernels: int) -> int:
    """Cells for so many kernels."""
    return 3 * (kernels + 1) + 2
