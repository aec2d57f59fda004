"""One kernel as LLVM instructions: its statements, one after the other.

Local variables live on the stack and LLVM moves them into registers. A variable has the widest type that is ever
assigned to it; when a later line turns out to widen one, the kernel is written again from the start (`Widened`).
Numbers behave as in Python and NumPy: floor division, comparisons with NaN, `0.0 / 0.0`; but only an
index that is written as a negative number counts from the end.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from cotenant.core.native.calls import Calls
from cotenant.core.native.expressions import Value
from cotenant.core.native.types import INT, Array, KernelError, Number, Numbers, Type, signature


class Widened(Exception):
    """A variable needs a wider type than it had so far."""


class Function(Calls):
    """Writes one kernel."""

    def __init__(self, plain: Callable[..., Any], into: Any) -> None:
        self.plain, self.into, self.names = plain, into, plain.__globals__
        self.arguments, self.returns = signature(plain)
        source = textwrap.dedent(inspect.getsource(plain))
        found = ast.parse(source).body[0]
        assert isinstance(found, ast.FunctionDef)
        self.tree = found
        self.widest: dict[str, Type] = {}
        self.locals: dict[str, tuple[Any, Type]] = {}
        self.loops: list[tuple[Any, Any]] = []

    def write(self) -> None:
        """All of it, as often as variables turn out wider."""
        for _ in range(20):
            try:
                return self._write()
            except Widened:
                self.into.function(self.plain).blocks.clear()
            except KernelError as error:
                raise KernelError(f"{self.plain.__module__}.{self.plain.__name__}: {error}") from None
        raise KernelError(f"{self.plain.__name__}: no end of types")

    def _write(self) -> None:
        function = self.into.function(self.plain)
        self.locals, self.loops = {}, []
        self.allocas = ir.IRBuilder(function.append_basic_block("variables"))
        self.b = ir.IRBuilder(function.append_basic_block("begin"))
        first = self.b.block
        for argument, name, kind in zip(function.args, self.tree.args.args, self.arguments, strict=True):
            self.assign_name(name.arg, (argument, kind))
        self.statements(self.tree.body)
        if not self.b.block.is_terminated:
            if self.returns is None:
                self.b.ret_void()
            else:
                self.b.unreachable()
        self.allocas.branch(first)

    def statements(self, body: list[ast.stmt]) -> None:
        """Up to the first that leaves."""
        for statement in body:
            if self.b.block.is_terminated:
                return
            self.line = statement.lineno
            getattr(self, f"do_{type(statement).__name__}", self._unknown)(statement)

    def _unknown(self, statement: ast.stmt) -> None:
        raise KernelError(f"line {statement.lineno}: cannot compile {type(statement).__name__}")

    # Assignments

    def variable(self, name: str, kind: Type) -> Any:
        """Where a variable lives; it may have to become wider."""
        known = self.widest.get(name)
        if known is None:
            self.widest[name] = kind
        elif known != kind:
            if not (isinstance(known, Number) and isinstance(kind, Number)):
                raise KernelError(f"line {self.line}: '{name}' is {known} and {kind}")
            if kind.width > known.width:
                self.widest[name] = kind
                raise Widened
        if name not in self.locals:
            held = self.widest[name]
            self.locals[name] = self.allocas.alloca(self.into.kind(held), name=name), held
        return self.locals[name][0]

    def assign_name(self, name: str, value: Value) -> None:
        """Numbers become as wide as the variable is."""
        at = self.variable(name, value[1])
        held = self.locals[name][1]
        self.b.store(self.as_number(value, held) if isinstance(held, Number) else value[0], at)

    def assign(self, target: ast.expr, value: Value) -> None:
        """To a name or to an element."""
        if isinstance(target, ast.Name):
            self.assign_name(target.id, value)
        elif isinstance(target, ast.Subscript):
            at, of = self.element(target)
            self.store_element(self.as_number(value, of, truncate=True), at, of)
        else:
            raise KernelError(f"line {self.line}: cannot assign to {ast.unparse(target)}")

    def do_Assign(self, statement: ast.Assign) -> None:
        """All values are known before the first is assigned."""
        for_each = statement.targets[0]
        if isinstance(for_each, ast.Tuple) and len(statement.targets) == 1:
            values = self.several(statement.value, len(for_each.elts))
            for target, value in zip(for_each.elts, values, strict=True):
                self.assign(target, value)
            return
        value = self.value(statement.value)
        for target in statement.targets:
            self.assign(target, value)

    def several(self, node: ast.expr, count: int) -> list[Value]:
        """The values on the right of an assignment to several."""
        if isinstance(node, ast.Tuple):
            return [self.value(part) for part in node.elts]
        if isinstance(node, ast.Attribute) and node.attr == "shape":
            array, kind = self.value(node.value)
            assert isinstance(kind, Array)
            return [(self.b.extract_value(array, 1 + at), INT) for at in range(count)]
        value, kind = self.value(node)
        if not isinstance(kind, Numbers):
            raise KernelError(f"line {self.line}: {ast.unparse(node)} is not {count} values")
        return [(self.b.extract_value(value, at), of) for at, of in enumerate(kind.of)]

    def do_AugAssign(self, statement: ast.AugAssign) -> None:
        """The place is looked up once."""
        if isinstance(statement.target, ast.Name):
            now = self.value(ast.Name(statement.target.id, ast.Load()))
            self.assign_name(statement.target.id, self.binary(statement.op, now, self.value(statement.value)))
            return
        assert isinstance(statement.target, ast.Subscript)
        at, of = self.element(statement.target)
        added = self.value(statement.value)
        result = self.binary(statement.op, (self.load_element(at, of), of), added)
        self.store_element(self.as_number(result, of, truncate=True), at, of)

    def do_Expr(self, statement: ast.Expr) -> None:
        """A call, or a text for readers."""
        if not isinstance(statement.value, ast.Constant):
            self.value(statement.value)

    def do_Pass(self, _: ast.Pass) -> None:
        """Nothing."""

    # Ways

    def do_Return(self, statement: ast.Return) -> None:
        """With what the annotation promises."""
        if self.returns is None:
            self.b.ret_void()
        elif isinstance(self.returns, Numbers):
            assert isinstance(statement.value, ast.Tuple)
            result: Any = ir.Constant(self.into.kind(self.returns), ir.Undefined)
            parts = [self.value(part) for part in statement.value.elts]
            for at, (value, of) in enumerate(zip(parts, self.returns.of, strict=True)):
                result = self.b.insert_value(result, self.as_number(value, of), at)
            self.b.ret(result)
        else:
            assert isinstance(self.returns, Number)
            assert statement.value is not None
            self.b.ret(self.as_number(self.value(statement.value), self.returns))

    def do_If(self, statement: ast.If) -> None:
        """Both ways meet again behind it."""
        truth = self.truth(statement.test)
        yes, after = self.b.append_basic_block("yes"), self.b.append_basic_block("after")
        no = self.b.append_basic_block("no") if statement.orelse else after
        self.b.cbranch(truth, yes, no)
        with self.block(yes, then=after):
            self.statements(statement.body)
        if statement.orelse:
            with self.block(no, then=after):
                self.statements(statement.orelse)
        self.b.position_at_end(after)

    @contextmanager
    def block(self, block: Any, then: Any) -> Iterator[None]:
        """Write into a block, which goes on to another unless it leaves."""
        self.b.position_at_end(block)
        yield
        if not self.b.block.is_terminated:
            self.b.branch(then)

    def do_While(self, statement: ast.While) -> None:
        """The test comes first."""
        test, body, after = (self.b.append_basic_block(name) for name in ("test", "body", "after"))
        self.b.branch(test)
        self.b.position_at_end(test)
        self.b.cbranch(self.truth(statement.test), body, after)
        self.loops.append((test, after))
        with self.block(body, then=test):
            self.statements(statement.body)
        self.loops.pop()
        self.b.position_at_end(after)

    def do_For(self, statement: ast.For) -> None:
        """Over a range, or over the elements of a tuple, written one after the other."""
        assert isinstance(statement.target, ast.Name)
        if isinstance(statement.iter, ast.Tuple):
            for part in statement.iter.elts:
                self.assign_name(statement.target.id, self.value(part))
                self.statements(statement.body)
            return
        if not (isinstance(statement.iter, ast.Call) and ast.unparse(statement.iter.func) == "range"):
            raise KernelError(f"line {statement.lineno}: loops go over range(...) or a tuple")
        bounds = [self.as_number(self.value(part), INT) for part in statement.iter.args]
        start, stop = (self.whole(0), bounds[0]) if len(bounds) == 1 else bounds[:2]
        step = bounds[2] if len(bounds) == 3 else self.whole(1)
        if self.into.clocks is not None:
            self.into.clocks.turns(self.b, self.b.sdiv(self.b.sub(stop, start), step))
        counter = self.allocas.alloca(self.into.kind(INT))
        self.b.store(start, counter)
        test, body, go_on, after = (self.b.append_basic_block(name) for name in ("test", "body", "next", "after"))
        self.b.branch(test)
        self.b.position_at_end(test)
        at = self.b.load(counter, typ=self.into.kind(INT))
        up, down = self.b.icmp_signed("<", at, stop), self.b.icmp_signed(">", at, stop)
        self.b.cbranch(self.b.select(self.b.icmp_signed(">", step, self.whole(0)), up, down), body, after)
        self.loops.append((go_on, after))
        with self.block(body, then=go_on):
            self.assign_name(statement.target.id, (at, INT))
            self.statements(statement.body)
        self.loops.pop()
        self.b.position_at_end(go_on)
        self.b.store(self.b.add(at, step, flags=["nsw"]), counter)
        self.b.branch(test)
        self.b.position_at_end(after)

    def do_Continue(self, _: ast.Continue) -> None:
        """To the innermost loop's next turn."""
        self.b.branch(self.loops[-1][0])

    def do_Break(self, _: ast.Break) -> None:
        """Out of the innermost loop."""
        self.b.branch(self.loops[-1][1])
