"""Once compiled, a kernel that is no entry cannot be called from Python: doing so ends the process."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import cotenant

ROOT = Path(cotenant.__file__).parents[1]


def _marks(node: ast.AST) -> set[str]:
    marks = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    return {mark.id for mark in marks if isinstance(mark, ast.Name)} & {"kernel", "entry"}


def _imports(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """Names that a module has from others: module and name there."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return {(one.asname or one.name): (str(node.module), one.name) for node in found for one in node.names}


def test_python_calls_only_kernels_that_are_entries() -> None:
    sources = (ROOT / "cotenant").rglob("*.py")
    texts = {".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text() for path in sources}
    trees = {module: ast.parse(text) for module, text in texts.items() if "@kernel" in text}
    inner = {
        (module, node.name)
        for module, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and _marks(node) == {"kernel"}
    }
    assert len(inner) > 100, "or nothing is found"
    wrong = []
    for module, text in texts.items():
        if module not in trees and trees.keys().isdisjoint(re.findall(r"from ([\w.]+) import", text)):
            continue
        tree = trees.get(module) or ast.parse(text)
        known = {name: (module, name) for of, name in inner if of == module} | _imports(tree)
        plain = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and not _marks(node)]
        for function in plain:
            used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
            wrong += [f"{module}.{function.name} calls {name}" for name in used if known.get(name) in inner]
    assert not wrong
