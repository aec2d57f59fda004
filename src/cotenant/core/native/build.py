"""All kernels as one object file: written, optimised together, and turned into machine code by LLVM."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from cotenant.core.native.clocks import Clocks
from cotenant.core.native.emit import Function
from cotenant.core.native.target import machine, symbol
from cotenant.core.native.types import BOOL, FLOAT, INT, Array, KernelError, Number, Numbers, Struct, Type, signature

_KINDS: dict[Number, Any] = {BOOL: ir.IntType(1), INT: ir.IntType(64), FLOAT: ir.DoubleType()}


class Module:
    """Kernels on their way to machine code; those that others call come along."""

    def __init__(self, clocked: Sequence[Callable[..., Any]] = ()) -> None:
        self.llvm = ir.Module("kernels")
        self.llvm.triple = llvm.get_process_triple()
        self.clocks = Clocks(self.llvm, clocked) if clocked else None
        self._functions: dict[Callable[..., Any], tuple[Any, tuple[Type, ...], Type]] = {}
        self._todo: list[Callable[..., Any]] = []
        self._tags: dict[str, Any] = {}

    def add(self, entry: Callable[..., Any]) -> None:
        """One that Python calls, and all that it needs."""
        function, wanted, returns = self.callee(entry)
        exported = ir.Function(self.llvm, _exported_type(wanted, returns), symbol(entry))
        builder = ir.IRBuilder(exported.append_basic_block())
        given, at = [], 0
        for kind in wanted:
            if isinstance(kind, Array):
                whole: Any = ir.Constant(self.kind(kind), ir.Undefined)
                for part in range(1 + kind.rank):
                    whole = builder.insert_value(whole, exported.args[at + part], part)
                given.append(whole)
                at += 1 + kind.rank
            else:
                one = exported.args[at]
                given.append(builder.trunc(one, self.kind(BOOL)) if kind == BOOL else one)
                at += 1
        result = builder.call(function, given)
        if returns is None:
            builder.ret_void()
        else:
            builder.ret(builder.zext(result, self.kind(INT)) if returns == BOOL else result)
        while self._todo:
            Function(self._todo.pop(), self).write()

    def callee(self, plain: Callable[..., Any]) -> tuple[Any, tuple[Type, ...], Type]:
        """A kernel as others call it, its arguments and what it gives."""
        if plain not in self._functions:
            wanted, returns = signature(plain)
            made = ir.FunctionType(self.kind(returns), [self.kind(kind) for kind in wanted])
            function = ir.Function(self.llvm, made, f"inner.{symbol(plain)}")
            function.linkage = "internal"
            function.attributes.add("nounwind")
            if self.clocks is not None and plain in self.clocks:
                function.attributes.add("noinline")
            for argument, kind in zip(function.args, wanted, strict=True):
                if isinstance(kind, Struct):  # nobody ever writes to one
                    argument.add_attribute("noalias")
            self._functions[plain] = function, wanted, returns
            self._todo.append(plain)
        return self._functions[plain]

    def function(self, plain: Callable[..., Any]) -> Any:
        """What LLVM knows it as."""
        return self._functions[plain][0]

    def kind(self, kind: Type) -> Any:
        """A type as LLVM knows it."""
        if kind is None:
            return ir.VoidType()
        if isinstance(kind, Number):
            return _KINDS[kind]
        if isinstance(kind, Numbers):
            return ir.LiteralStructType([_KINDS[one] for one in kind.of])
        if isinstance(kind, Array):
            return ir.LiteralStructType([ir.PointerType(), *[_KINDS[INT]] * kind.rank])
        return ir.PointerType()

    def record(self, table: Struct) -> Any:
        """A table in memory: 8 bytes a number, a table's address, an array's address and lengths."""
        return ir.LiteralStructType([self.kind(INT if kind == BOOL else kind) for _, kind in table.fields])

    def tagged(self, instruction: Any, what: str) -> Any:
        """Say what is read or written: fields of tables, whole numbers and floats never lie in one place."""
        if what not in self._tags:
            root = self.llvm.add_metadata(["cotenant kernels"])
            zero = ir.Constant(ir.IntType(64), 0)
            kind = self.llvm.add_metadata([what, root, zero])
            self._tags[what] = self.llvm.add_metadata([kind, kind, zero])
        instruction.set_metadata("tbaa", self._tags[what])
        return instruction


def _exported_type(wanted: Iterable[Type], returns: Type) -> Any:
    parts: list[Any] = []
    for kind in wanted:
        if isinstance(kind, Array):
            parts += [ir.PointerType(), *[_KINDS[INT]] * kind.rank]
        elif isinstance(kind, Number):
            parts.append(_KINDS[INT if kind == BOOL else kind])
        else:
            parts.append(ir.PointerType())
    if isinstance(returns, Numbers):
        raise KernelError("a kernel that Python calls returns one number or nothing")
    given: Any = ir.VoidType() if returns is None else ir.PointerType()
    if isinstance(returns, Number):
        given = _KINDS[INT if returns == BOOL else returns]
    return ir.FunctionType(given, parts)


def build(entries: Iterable[Callable[..., Any]], clocked: Sequence[Callable[..., Any]] = ()) -> bytes:
    """An object file with these kernels and all that they call; those that are `clocked` are timed (see `clocks`)."""
    module = Module(clocked)
    for entry in entries:
        module.add(entry)
    target = machine()
    parsed = llvm.parse_assembly(str(module.llvm))
    parsed.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(target, options)
    builder.getModulePassManager().run(parsed, builder)
    code: bytes = target.emit_object(parsed)
    return code
