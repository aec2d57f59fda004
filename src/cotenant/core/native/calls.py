"""Calls in kernels: of other kernels, and of the little that they may use of Python and NumPy."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from cotenant.core.native import builtins
from cotenant.core.native.expressions import Expressions, Value, i32
from cotenant.core.native.types import BOOL, FLOAT, INT, KernelError, Number, Struct, table


class Calls(Expressions):
    """Expressions with calls."""

    def on_Call(self, node: ast.Call) -> Value:
        """Another kernel, a new table, or what kernels may use of Python and NumPy."""
        name = ast.unparse(node.func)
        if isinstance(node.func, ast.Name) and name in self.names:
            called = self.names[name]
            if isinstance(called, type) and hasattr(called, "_fields"):
                return self._make(table(called), node)
            return self.call(called, [self.value(part) for part in node.args])
        if name == "np.searchsorted":
            right = len(node.args) == 3 and ast.literal_eval(node.args[2]) == "right"
            found = builtins.search_right if right else builtins.search_left
            return self.call(found, [self.value(part) for part in node.args[:2]])
        known: Callable[[list[Value]], Value] | None = getattr(self, f"call_{name.replace('.', '_')}", None)
        if known is None:
            raise KernelError(f"line {node.lineno}: cannot call {name}")
        return known([self.value(part) for part in node.args])

    def call(self, plain: Callable[..., Any], given: list[Value]) -> Value:
        """Another kernel."""
        function, wanted, returns = self.into.callee(plain)
        if len(given) != len(wanted):
            raise KernelError(f"line {self.line}: {plain.__name__} takes {len(wanted)} arguments")
        held = []
        for value, kind in zip(given, wanted, strict=True):
            if not isinstance(kind, Number) and value[1] != kind:
                raise KernelError(f"line {self.line}: {plain.__name__} wants {kind}, not {value[1]}")
            held.append(self.as_number(value, kind) if isinstance(kind, Number) else value[0])
        clocks = self.into.clocks
        if clocks is None or plain not in clocks:
            return self.b.call(function, held), returns
        before = clocks.enter(self.b, plain)
        result = self.b.call(function, held)
        clocks.leave(self.b, before)
        return result, returns

    def _make(self, kind: Struct, node: ast.Call) -> Value:
        """A new table, on the stack."""
        at = self.allocas.alloca(self.into.record(kind))
        at.type = self.into.kind(kind)
        for place, ((_, of), part) in enumerate(zip(kind.fields, node.args, strict=True)):
            value = self.value(part)
            where = self.b.gep(at, [i32(0), i32(place)], inbounds=True, source_etype=self.into.record(kind))
            held = self.as_number(value, of) if isinstance(of, Number) else value[0]
            self.b.store(held, where)
        return at, kind

    def call_len(self, given: list[Value]) -> Value:
        """Of the first dimension."""
        return self.b.extract_value(given[0][0], 1), INT

    def call_int(self, given: list[Value]) -> Value:
        """Towards zero."""
        return self.as_number(given[0], INT, truncate=True), INT

    def call_float(self, given: list[Value]) -> Value:
        """As a float."""
        return self.as_number(given[0], FLOAT), FLOAT

    def call_bool(self, given: list[Value]) -> Value:
        """As a truth value."""
        return self.as_number(given[0], BOOL), BOOL

    def call_min(self, given: list[Value]) -> Value:
        """The first of the smallest."""
        return self._first_by(ast.Lt(), given)

    def call_max(self, given: list[Value]) -> Value:
        """The first of the largest."""
        return self._first_by(ast.Gt(), given)

    def _first_by(self, op: ast.cmpop, given: list[Value]) -> Value:
        kind = self.wider(*given)
        best = self.as_number(given[0], kind)
        for value in given[1:]:
            other = self.as_number(value, kind)
            best = self.b.select(self.compare(op, (other, kind), (best, kind)), other, best)
        return best, kind

    def call_abs(self, given: list[Value]) -> Value:
        """Without its sign."""
        if given[0][1] == FLOAT:
            return self._of_float("llvm.fabs", given[0]), FLOAT
        held = self.as_number(given[0], INT)
        return self.b.select(self.b.icmp_signed("<", held, self.whole(0)), self.b.neg(held), held), INT

    def call_round(self, given: list[Value]) -> Value:
        """To the nearest, halves to the even one."""
        return self.b.fptosi(self._of_float("llvm.rint", given[0]), self.into.kind(INT)), INT

    def call_math_floor(self, given: list[Value]) -> Value:
        """Down to a whole number."""
        return self.b.fptosi(self._of_float("llvm.floor", given[0]), self.into.kind(INT)), INT

    def call_math_ceil(self, given: list[Value]) -> Value:
        """Up to a whole number."""
        return self.b.fptosi(self._of_float("llvm.ceil", given[0]), self.into.kind(INT)), INT

    def call_math_sqrt(self, given: list[Value]) -> Value:
        """The root."""
        return self._of_float("llvm.sqrt", given[0]), FLOAT

    def call_math_isnan(self, given: list[Value]) -> Value:
        """Whether it is not a number."""
        held = self.as_number(given[0], FLOAT)
        return self.b.fcmp_unordered("uno", held, held), BOOL

    def call_math_isinf(self, given: list[Value]) -> Value:
        """Whether it is infinite."""
        held = self._of_float("llvm.fabs", given[0])
        return self.b.fcmp_ordered("==", held, ir.Constant(self.into.kind(FLOAT), math.inf)), BOOL

    def _of_float(self, name: str, value: Value) -> Any:
        kind = self.into.kind(FLOAT)
        return self.b.call(self.b.module.declare_intrinsic(name, [kind]), [self.as_number(value, FLOAT)])
