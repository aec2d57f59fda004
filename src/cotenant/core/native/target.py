"""What machine code is made for, and what a kernel is called in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm


def symbol(plain: Callable[..., Any]) -> str:
    """The name of a kernel in the object file."""
    return f"{plain.__module__}.{plain.__qualname__}"


def machine() -> Any:
    """The processor that this runs on."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=2, reloc="pic", codemodel="default"
    )
