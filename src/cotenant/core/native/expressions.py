"""Expressions of kernels as LLVM instructions: each gives a value and its type."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from cotenant.core.native.types import BOOL, FLOAT, INT, Array, KernelError, Number, Struct, Type

Value = tuple[Any, Any]  # what LLVM knows, and one of our types
_COMPARE = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_INT_OPS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.BitAnd: "and_", ast.BitOr: "or_",
            ast.BitXor: "xor", ast.LShift: "shl", ast.RShift: "ashr"}  # fmt: skip
_FLOAT_OPS = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}


class Expressions:
    """What a function is made of; the part that knows values and not ways. Calls are in `calls`."""

    b: Any  # LLVM's builder, at the place where the next instruction goes
    allocas: Any  # the same for variables, at the function's beginning
    into: Any  # the module
    names: dict[str, Any]  # the kernel's globals
    locals: dict[str, tuple[Any, Type]]
    line = 0

    def whole(self, value: int) -> Any:
        """A whole number."""
        return ir.Constant(self.into.kind(INT), value)

    def value(self, node: ast.expr) -> Value:
        """What an expression gives."""
        found: Callable[[Any], Value] | None = getattr(self, f"on_{type(node).__name__}", None)
        if found is None:
            raise KernelError(f"line {node.lineno}: cannot compile {ast.unparse(node)}")
        return found(node)

    # Numbers

    def as_number(self, value: Value, wanted: Number, truncate: bool = False) -> Any:
        """A number as another kind of number. Whole ones are never made from floats by accident."""
        held, kind = value
        if kind == wanted:
            return held
        if not isinstance(kind, Number):
            raise KernelError(f"line {self.line}: {kind} is not a number")
        if wanted == BOOL:
            return self._is_true(value)
        if wanted == FLOAT:
            cast = self.b.uitofp if kind == BOOL else self.b.sitofp
            return cast(held, self.into.kind(FLOAT))
        if kind == BOOL:
            return self.b.zext(held, self.into.kind(INT))
        if not truncate:
            raise KernelError(f"line {self.line}: a float where an int is wanted: write int(...)")
        return self.b.fptosi(held, self.into.kind(INT))

    def _is_true(self, value: Value) -> Any:
        held, kind = value
        if kind == BOOL:
            return held
        if kind == INT:
            return self.b.icmp_signed("!=", held, self.whole(0))
        return self.b.fcmp_unordered("!=", held, ir.Constant(self.into.kind(FLOAT), 0.0))

    def truth(self, node: ast.expr) -> Any:
        """An expression as a condition."""
        return self._is_true(self.value(node))

    def wider(self, *values: Value) -> Number:
        """A kind that holds all of them."""
        for _, kind in values:
            if not isinstance(kind, Number):
                raise KernelError(f"line {self.line}: {kind} is not a number")
        widest: Number = max((kind for _, kind in values), key=lambda kind: kind.width)
        return widest

    def on_Constant(self, node: ast.Constant) -> Value:
        """A number as it stands."""
        return self.constant(node.value, node)

    def constant(self, value: Any, node: ast.expr) -> Value:
        """A number that is known now."""
        if isinstance(value, bool):
            return ir.Constant(self.into.kind(BOOL), int(value)), BOOL
        if isinstance(value, float):
            return ir.Constant(self.into.kind(FLOAT), value), FLOAT
        if hasattr(value, "__index__"):
            return self.whole(value.__index__()), INT
        raise KernelError(f"line {node.lineno}: {ast.unparse(node)} is not a number, an array or a table")

    def on_Name(self, node: ast.Name) -> Value:
        """A variable, or a constant of the module."""
        if node.id in self.locals:
            at, kind = self.locals[node.id]
            return self.b.load(at, typ=self.into.kind(kind)), kind
        if node.id not in self.names:
            raise KernelError(f"line {self.line}: '{node.id}' has no value here")
        return self.constant(self.names[node.id], node)

    def on_UnaryOp(self, node: ast.UnaryOp) -> Value:
        """`-x`, `not x`, `~x`."""
        if isinstance(node.op, ast.Not):
            return self.b.not_(self.truth(node.operand)), BOOL
        value = self.value(node.operand)
        if isinstance(node.op, ast.USub):
            kind = INT if value[1] == BOOL else value[1]
            held = self.as_number(value, kind)
            if isinstance(held, ir.Constant) and kind == INT:
                return self.whole(-held.constant), INT
            return (self.b.fneg(held) if kind == FLOAT else self.b.neg(held)), kind
        if isinstance(node.op, ast.Invert):
            return self.b.not_(self.as_number(value, INT)), INT
        return value

    def on_BinOp(self, node: ast.BinOp) -> Value:
        """Arithmetic."""
        left = self.value(node.left)
        return self.binary(node.op, left, self.value(node.right))

    def binary(self, op: ast.operator, left: Value, right: Value) -> Value:
        """Arithmetic, in the wider kind of both."""
        kind = self.wider(left, right)
        kind = INT if kind == BOOL else kind
        if isinstance(op, ast.Div | ast.Pow):
            kind = FLOAT
        a, b = self.as_number(left, kind), self.as_number(right, kind)
        if isinstance(op, ast.Pow):
            return self.b.call(self.b.module.declare_intrinsic("llvm.pow", [self.into.kind(FLOAT)]), [a, b]), FLOAT
        if isinstance(op, ast.FloorDiv | ast.Mod):
            return self._floor(op, a, b, kind)
        name = (_FLOAT_OPS if kind == FLOAT else _INT_OPS).get(type(op))
        if name is None:
            raise KernelError(f"line {self.line}: no {type(op).__name__} of {kind.name}")
        return getattr(self.b, name)(a, b), kind

    def _floor(self, op: ast.operator, a: Any, b: Any, kind: Number) -> Value:
        """Rounded down, as Python does, not towards zero."""
        if kind == FLOAT:
            raise KernelError(f"line {self.line}: no {type(op).__name__} of floats")
        whole, rest = self.b.sdiv(a, b), self.b.srem(a, b)
        other_sign = self.b.icmp_signed("<", self.b.xor(rest, b), self.whole(0))
        off = self.b.and_(self.b.icmp_signed("!=", rest, self.whole(0)), other_sign)
        if isinstance(op, ast.Mod):
            return self.b.select(off, self.b.add(rest, b), rest), INT
        return self.b.select(off, self.b.sub(whole, self.whole(1)), whole), INT

    def compare(self, op: ast.cmpop, left: Value, right: Value) -> Any:
        """One comparison; nothing is true of NaN but that it differs."""
        kind = self.wider(left, right)
        kind = INT if kind == BOOL else kind
        a, b, sign = self.as_number(left, kind), self.as_number(right, kind), _COMPARE[type(op)]
        if kind == INT:
            return self.b.icmp_signed(sign, a, b)
        return self.b.fcmp_unordered("!=", a, b) if sign == "!=" else self.b.fcmp_ordered(sign, a, b)

    def on_Compare(self, node: ast.Compare) -> Value:
        """One comparison, a chain of them, or membership of a tuple."""
        if isinstance(node.ops[0], ast.In | ast.NotIn):
            left, choices = self.value(node.left), node.comparators[0]
            assert isinstance(choices, ast.Tuple)
            found: Any = ir.Constant(self.into.kind(BOOL), 0)
            for part in choices.elts:
                found = self.b.or_(found, self.compare(ast.Eq(), left, self.value(part)))
            return (self.b.not_(found) if isinstance(node.ops[0], ast.NotIn) else found), BOOL
        result, left = None, self.value(node.left)
        for op, part in zip(node.ops, node.comparators, strict=True):
            right = self.value(part)
            one = self.compare(op, left, right)
            result, left = (one if result is None else self.b.and_(result, one)), right
        return result, BOOL

    def on_BoolOp(self, node: ast.BoolOp) -> Value:
        """The rest is looked at only if it matters. The result is always a truth value."""
        held = self.allocas.alloca(self.into.kind(BOOL))
        after = self.b.append_basic_block("known")
        for part in node.values[:-1]:
            truth = self.truth(part)
            self.b.store(truth, held)
            more = self.b.append_basic_block("more")
            self.b.cbranch(truth, *((more, after) if isinstance(node.op, ast.And) else (after, more)))
            self.b.position_at_end(more)
        self.b.store(self.truth(node.values[-1]), held)
        self.b.branch(after)
        self.b.position_at_end(after)
        return self.b.load(held, typ=self.into.kind(BOOL)), BOOL

    def on_IfExp(self, node: ast.IfExp) -> Value:
        """Only the chosen side is worked out."""
        yes, no, after = (self.b.append_basic_block(name) for name in ("yes", "no", "chosen"))
        self.b.cbranch(self.truth(node.test), yes, no)
        ends = []
        for block, part in ((yes, node.body), (no, node.orelse)):
            self.b.position_at_end(block)
            ends.append((self.value(part), self.b.block))
        kind = self.wider(ends[0][0], ends[1][0]) if ends[0][0][1] != ends[1][0][1] else ends[0][0][1]
        held = self.allocas.alloca(self.into.kind(kind))
        for value, block in ends:
            self.b.position_at_end(block)
            self.b.store(self.as_number(value, kind) if isinstance(kind, Number) else value[0], held)
            self.b.branch(after)
        self.b.position_at_end(after)
        return self.b.load(held, typ=self.into.kind(kind)), kind

    # Arrays and tables

    def on_Attribute(self, node: ast.Attribute) -> Value:
        """A field of a table, or a module's constant."""
        if isinstance(node.value, ast.Name) and node.value.id not in self.locals:
            return self.constant(getattr(self.names[node.value.id], node.attr), node)
        held, kind = self.value(node.value)
        if not isinstance(kind, Struct):
            raise KernelError(f"line {node.lineno}: cannot compile {ast.unparse(node)}")
        return self.field(held, kind, kind.place(node.attr)), kind.fields[kind.place(node.attr)][1]

    def field(self, held: Any, kind: Struct, place: int) -> Any:
        """One field of a table."""
        record, of = self.into.record(kind), kind.fields[place][1]
        at = self.b.gep(held, [i32(0), i32(place)], inbounds=True, source_etype=record)
        if not isinstance(of, Array):
            return self.into.tagged(self.b.load(at, typ=self.into.kind(of)), "field")
        whole: Any = ir.Constant(self.into.kind(of), ir.Undefined)
        for part in range(1 + of.rank):
            if part == 2 and kind.columns[place]:
                whole = self.b.insert_value(whole, self.whole(kind.columns[place]), part)
                continue
            piece = self.b.gep(at, [i32(0), i32(part)], inbounds=True, source_etype=self.into.kind(of))
            loaded = self.b.load(piece, typ=self.into.kind(of).elements[part])
            whole = self.b.insert_value(whole, self.into.tagged(loaded, "field"), part)
        return whole

    def on_Subscript(self, node: ast.Subscript) -> Value:
        """An element, a row, the first rows, or one of the lengths."""
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            array, kind = self.value(node.value.value)
            if isinstance(kind, Array):
                return self.b.extract_value(array, 1 + ast.literal_eval(node.slice)), INT
        array, kind = self.value(node.value)
        if not isinstance(kind, Array):
            raise KernelError(f"line {node.lineno}: cannot compile {ast.unparse(node)}")
        if isinstance(node.slice, ast.Slice):
            return self._head(array, kind, node.slice), kind
        indexes = self._indexes(node)
        at = self._address(array, kind, indexes)
        if len(indexes) == kind.rank:
            return self.load_element(at, kind.of), kind.of
        view = Array(kind.of, kind.rank - len(indexes))
        whole: Any = self.b.insert_value(ir.Constant(self.into.kind(view), ir.Undefined), at, 0)
        for part in range(view.rank):
            whole = self.b.insert_value(whole, self.b.extract_value(array, 1 + len(indexes) + part), 1 + part)
        return whole, view

    def _head(self, array: Any, kind: Array, part: ast.Slice) -> Any:
        """The first rows of an array."""
        if part.lower is not None or part.step is not None or part.upper is None:
            raise KernelError(f"line {self.line}: only slices [:n]")
        upper, length = self.as_number(self.value(part.upper), INT), self.b.extract_value(array, 1)
        upper = self.b.select(self.b.icmp_signed("<", upper, length), upper, length)
        return self.b.insert_value(array, upper, 1)

    def _indexes(self, node: ast.Subscript) -> list[Any]:
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return [self.as_number(self.value(part), INT) for part in parts]

    def element(self, node: ast.Subscript) -> tuple[Any, Number]:
        """Where an element lies, and what it is."""
        array, kind = self.value(node.value)
        indexes = self._indexes(node)
        if not isinstance(kind, Array) or len(indexes) != kind.rank:
            raise KernelError(f"line {node.lineno}: {ast.unparse(node)} is not an element")
        return self._address(array, kind, indexes), kind.of

    def _address(self, array: Any, kind: Array, indexes: list[Any]) -> Any:
        """Row after row; an index that is written as a negative number counts from the end."""
        offset = self.whole(0)
        for part in range(kind.rank):
            if part:
                offset = self.b.mul(offset, self.b.extract_value(array, 1 + part), flags=["nsw"])
            if part < len(indexes):
                offset = self.b.add(offset, self._from_front(indexes[part], array, part), flags=["nsw"])
        pointer = self.b.extract_value(array, 0)
        return self.b.gep(pointer, [offset], inbounds=True, source_etype=self.into.kind(kind.of))

    def _from_front(self, index: Any, array: Any, part: int) -> Any:
        if isinstance(index, ir.Constant) and index.constant < 0:
            return self.b.add(index, self.b.extract_value(array, 1 + part))
        return index

    def load_element(self, at: Any, of: Number) -> Any:
        """A number of an array."""
        return self.into.tagged(self.b.load(at, typ=self.into.kind(of)), of.name)

    def store_element(self, value: Any, at: Any, of: Number) -> None:
        """Into an array."""
        self.into.tagged(self.b.store(value, at), of.name)


def i32(value: int) -> Any:
    """A place in a record."""
    return ir.Constant(ir.IntType(32), value)
