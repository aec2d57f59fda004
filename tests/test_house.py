"""How the house is built, where tools cannot say it: names, sizes, and whose fields are whose."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "cotenant"
MOST_METHODS = 25
MOST_WORDS = 30
MOST_LINES = {"service": 300} | dict.fromkeys(("core", "placement", "engine", "api", "client", "cli"), 400)
# Kernels and the tables that are laid out for them; and a method per request.
LONG = {"engine/events.py", "engine/keys.py", "engine/ledger.py", "engine/tables.py", "client/client.py"}
MOST_IN_BODY = 60
LONG_BODIES = {"engine/tables.py: lay_tables", "sim/driver.py: __init__", "solvers/price_kernels.py: respond_loop"}
OUR_OWN = {"self", "cls", "super()", "made"}  # whose private fields a class may read; `made` is another of its kind
TWICE = {
    # The HTTP answers of `api/schemas/` are called in the OpenAPI document what people call them.
    "Event": {"api/schemas/shown.py", "core/decision.py"},
    "Job": {"api/schemas/shown.py", "runtime/_job.py"},
    # The service for its clients, and what runs the jobs for the service: neither knows of the other.
    "Unreachable": {"backends/base.py", "client/errors.py"},
}
NOT_PRIVATE = {"_replace", "_asdict", "_fields", "_make", "_exit"}  # of named tuples and of `os`


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def modules(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def classes(path: Path) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef))


def methods(found: ast.ClassDef) -> list[str]:
    """Names of the methods of a class, properties aside."""
    functions = [node for node in found.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    marks = {"property", "cached_property", "setter"}
    return [
        one.name
        for one in functions
        if not marks
        & {mark.attr if isinstance(mark, ast.Attribute) else ast.unparse(mark) for mark in one.decorator_list}
    ]


def private_reads(path: Path) -> Iterator[tuple[int, ast.Attribute]]:
    """`other._field`, where `other` is neither the object itself nor its class."""
    for node in ast.walk(tree(path)):
        if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
            continue
        if ast.unparse(node.value) not in OUR_OWN and node.attr not in NOT_PRIVATE:
            yield node.lineno, node


def test_one_name_one_class() -> None:
    """Only modules with a name that occurs twice are parsed: it may stand in a text."""
    read = {path: re.findall(r"^ *class (\w+)", path.read_text(encoding="utf-8"), re.M) for path in modules(SOURCE)}
    twice = {name for name, count in Counter(name for names in read.values() for name in names).items() if count > 1}
    found = [
        (one.name, path.relative_to(SOURCE).as_posix())
        for path, names in read.items()
        if not twice.isdisjoint(names)
        for one in classes(path)
    ]
    count = Counter(name for name, _ in found)
    assert {name: {where for one, where in found if one == name} for name in count if count[name] > 1} == TWICE


@pytest.mark.parametrize("room", ["service", "engine"])
def test_classes_are_small(room: str) -> None:
    counts = {
        f"{path.name}: {found.name}": len(methods(found)) for path in modules(SOURCE / room) for found in classes(path)
    }
    assert {name: count for name, count in counts.items() if count > MOST_METHODS} == {}


@pytest.mark.parametrize("room", MOST_LINES)
def test_modules_are_small(room: str) -> None:
    lines = {path.relative_to(SOURCE).as_posix(): len(path.read_text().splitlines()) for path in modules(SOURCE / room)}
    large = {name for name, count in lines.items() if count >= MOST_LINES[room]}
    assert large == {name for name in LONG if name.startswith(f"{room}/")}


def test_functions_fit_a_screen() -> None:
    """Their bodies, without signature and docstring. Only modules are parsed in which two begin far apart."""
    found = set()
    for path in modules(SOURCE):
        lines = path.read_text(encoding="utf-8").splitlines()
        begins = [at for at, line in enumerate(lines) if re.match(r" *(async )?def ", line)]
        far = any(end - at > MOST_IN_BODY for at, end in pairwise([*begins, len(lines)]))
        for node in ast.walk(tree(path)) if far else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[1 if ast.get_docstring(node) and len(node.body) > 1 else 0].lineno
                if (node.end_lineno or first) - first >= MOST_IN_BODY:
                    found.add(f"{path.relative_to(SOURCE).as_posix()}: {node.name}")
    assert found == LONG_BODIES


def test_nobody_reads_the_private_fields_of_others() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {ast.unparse(node)}"
        for path in modules(SOURCE)
        if re.search(r"(?<!self)(?<!cls)\._[a-z]", path.read_text(encoding="utf-8"))
        for line, node in private_reads(path)
        if not re.match(r"_internal_kv|_overloadpacket", node.attr)  # what Ray and PyTorch offer to such as us
    ]
    assert found == []


def test_the_glossary_is_short() -> None:
    lines = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    assert 0 < sum(line.startswith("| **") for line in lines) <= MOST_WORDS


def test_tests_ask_the_service_by_its_interface() -> None:
    """`service._x`, also where the service is a field of something else, or one of its parts is asked."""
    found = []
    for path in (*modules(ROOT / "tests"), *modules(ROOT / "bench")):
        reads = re.search(r"\b(service|core|again)\b[^=\n]*\._[a-z]|^ *\._[a-z]", path.read_text(), re.MULTILINE)
        for line, node in private_reads(path) if reads else ():
            owner = ast.unparse(node.value).split(".")
            if any(part in ("service", "core", "again") for part in owner):
                found.append(f"{path.relative_to(ROOT)}:{line}: {ast.unparse(node)}")
    assert found == []


def test_tests_that_defects_are_listed_with_exist() -> None:
    named, tests = 0, Path(__file__).parent
    for note in (tests.parent / "docs" / "design").glob("0007*.md"):
        file = ""
        for path, _, name in re.findall(r"`([a-z_/]+/test_\w+\.py)?(::(\w+))?`", note.read_text(encoding="utf-8")):
            file = path or file
            if path or name:
                named += 1
                assert (tests / file).is_file(), f"{note.name}: {file}"
                assert not name or f"def {name}(" in (tests / file).read_text(encoding="utf-8"), f"{note.name}: {name}"
    assert named > 30


def asked_of_modules(path: Path) -> set[tuple[str, str]]:
    """(last part of a module's name, what a file imports from it or reads of it)."""
    text = path.read_text(encoding="utf-8")
    called = {short: name for name, short in re.findall(r"\b(\w+) as (\w+)\b", text)}
    found = {(called.get(module, module), name) for module, name in re.findall(r"\b(\w+)\.(\w+)", text)}
    for origin, one, several in re.findall(r"from ([\w.]+) import (?:([^(\n]+)|\(([^)]*)\))", text):
        found |= {(origin.rpartition(".")[2], name) for name in re.findall(r"\w+", one + several)}
    return found


def test_tests_test_what_the_product_runs() -> None:
    """A golden example of a function that nothing but a test calls says nothing of the product."""
    product = (*modules(SOURCE), *modules(ROOT / "bench"), *modules(ROOT / "examples"))
    asked = set().union(*map(asked_of_modules, product))
    tested = set().union(*map(asked_of_modules, modules(ROOT / "tests"))) - asked
    found = set()
    for path in modules(SOURCE):
        text = path.read_text(encoding="utf-8")
        lines, named = text.splitlines(), re.findall(r"^(?:def|class) (\w+)", text, re.MULTILINE)
        for node in tree(path).body if any((path.stem, name) in tested for name in named) else ():
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and (path.stem, node.name) in tested:
                elsewhere = "\n".join(lines[: node.lineno - 1] + lines[node.end_lineno :])
                if not re.search(rf"\b{node.name}\b", elsewhere):
                    found.add(f"{path.relative_to(SOURCE)}: {node.name}")
    assert not found
