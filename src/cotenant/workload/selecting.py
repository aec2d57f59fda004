"""Part of a log: `--from`, `--to`, and `--where 'gpus >= 8 and tenant == "nlp"'`.

An expression compares columns with values, joined by `and`, `or`, `not` and brackets; `in` takes a list, and sums and
products of numbers may stand where a column may. It is read as Python is, but nothing else than this is carried out.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cotenant.core.errors import InputError, unknown
from cotenant.core.jobspec import seconds_of
from cotenant.core.workload import Codes, Status, Workload

_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}  # fmt: skip
_DATE = re.compile(r"^\d{4}-\d\d-\d\d")


def select(work: Workload, where: str = "", since: str = "", until: str = "") -> Workload:
    """The jobs that are asked for, with a note of how many are left out; the clock stays as it is."""
    keep = np.ones(len(work), bool)
    if where:
        keep &= _holds(work, where)
    if since:
        keep &= work.submit_s >= moment(work, since, "--from")
    if until:
        keep &= work.submit_s < moment(work, until, "--to")
    left = int((~keep).sum())
    if not left:
        return work
    if left == len(work):
        raise InputError(f"{work.source}: no job is left by --from, --to and --where; it has {left}")
    part = work.take(keep)
    return replace(part, notes=(*work.notes, f"{left:,} of {len(work):,} jobs left out by --from, --to and --where"))


def moment(work: Workload, text: str, option: str) -> float:
    """A second of the log: a number, a length of time after its first job (`2d`), or a date where it has dates."""
    if _DATE.match(text):
        if "submit_clock_s" not in work.extra:
            raise InputError(f"{option} {text}: this log has no dates; write seconds, or e.g. 2d after its first job")
        try:
            date = datetime.fromisoformat(text)
        except ValueError:
            raise InputError(f"{option} {text}: write a date such as 2024-05-01 or 2024-05-01T12:00") from None
        clock_s = date.replace(tzinfo=date.tzinfo or UTC).timestamp()
        return clock_s - float(np.asarray(work.extra["submit_clock_s"], np.float64)[0]) + float(work.submit_s[0])
    try:
        second = float(text)
    except ValueError:
        return float(work.submit_s[0]) + seconds_of(text, option)
    if not second >= 0 or second == np.inf:
        raise InputError(f"{option} {text}: write a second of the log, e.g. 86400, or 2d after its first job")
    return second


def columns_of(work: Workload) -> dict[str, NDArray[Any]]:
    """What an expression may name."""
    words = np.array([status.name.lower() for status in Status], dtype=object)
    found: dict[str, NDArray[Any]] = {
        "job_id": work.job_id, "submit_s": work.submit_s, "gpus": work.gpus, "num_gpus": work.gpus,
        "duration_s": work.duration_s, "tenant": _texts(work.tenant), "user": _texts(work.user),
        "model": _texts(work.model), "status": words[work.status], "cpus": work.cpus, "mem_gib": work.mem_gib,
        "deadline_s": work.deadline_s, "priority": work.priority, "gpu_type": _texts(work.gpu_type),
        "nodes": work.nodes, "gpu_hours": work.gpus * work.duration_s / 3600,
    }  # fmt: skip
    return found | {name: column for name, column in work.extra.items() if name not in found}


def _texts(codes: Codes) -> NDArray[Any]:
    return np.array(codes.names, dtype=object)[codes.code]


def _holds(work: Workload, where: str) -> NDArray[np.bool_]:
    wrong = InputError(f"--where {where!r}: write e.g. gpus >= 8 and tenant == 'nlp'")
    try:
        tree = ast.parse(where.strip(), mode="eval")
    except (SyntaxError, ValueError):
        raise wrong from None
    try:
        kept = _value(tree.body, columns_of(work), wrong)
    except (TypeError, ZeroDivisionError):
        raise wrong from None
    if not isinstance(kept, np.ndarray) or kept.dtype != np.bool_:
        raise wrong
    return kept


def _value(node: ast.expr, columns: dict[str, NDArray[Any]], wrong: InputError) -> Any:
    def of(part: ast.expr) -> Any:
        return _value(part, columns, wrong)

    match node:
        case ast.BoolOp(op=op, values=values):
            join = np.logical_and if isinstance(op, ast.And) else np.logical_or
            return join.reduce([np.asarray(of(value), bool) for value in values])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return np.logical_not(of(operand))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -of(operand)
        case ast.Compare(left=left, ops=ops, comparators=rest):
            parts = [of(left), *(of(one) for one in rest)]
            joined = [_compared(op, a, b, wrong) for op, a, b in zip(ops, parts[:-1], parts[1:], strict=True)]
            return np.logical_and.reduce(joined)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            return _ARITHMETIC[type(op)](of(left), of(right))
        case ast.Name(id=name):
            if name not in columns:
                raise unknown("column in --where", name, columns)
            return columns[name]
        case ast.Constant(value=value) if isinstance(value, str | int | float):
            return value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [of(item) for item in items]
        case _:
            raise wrong


def _compared(op: ast.cmpop, left: Any, right: Any, wrong: InputError) -> NDArray[np.bool_]:
    if isinstance(op, ast.In | ast.NotIn) and isinstance(right, list):
        inside = np.isin(
            np.asarray(left), np.array(right, dtype=object if right and isinstance(right[0], str) else None)
        )
        return ~inside if isinstance(op, ast.NotIn) else inside
    if type(op) not in _COMPARE or isinstance(right, list) or isinstance(left, list):
        raise wrong
    return np.asarray(_COMPARE[type(op)](left, right), bool)
