"""Machine code does what the plain functions do, and what it cannot do is said."""

from __future__ import annotations

import math
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.native.build import build
from cotenant.core.native.clocks import CALLS, CYCLES, NAME, TURNS, size
from cotenant.core.native.load import Library
from cotenant.core.native.types import KernelError, columned, nested
from cotenant.core.state import IntMatrix, Matrix
from cotenant.core.workload import Floats, Ints

OFFSET = 7


class Inner(NamedTuple):
    values: Floats
    scale: float


class Outer(NamedTuple):
    table: IntMatrix
    inner: Any
    first: int


nested(Outer, inner=Inner)
columned(Outer, table=3)


def whole_numbers(a: int, b: int, c: float) -> float:
    """Floor division, remainders, bits, comparisons, choices."""
    result = 0
    if b != 0:
        result = a // b * 1000 + a % b
    result += (a >> 1) ^ (b & 255) | 3
    kept = max(a, b, OFFSET) - min(a, b)
    if 0 <= a <= 10 and (b > 3 or c > 0.0):
        kept = kept + 0.5
    for step in range(5, 0, -2):
        kept += step
        if kept > 1e6:
            break
    return result + kept if a in (1, 2, 3) else result - kept


def floats(a: float, b: float) -> float:
    """NaN and infinity behave as in Python."""
    total = 0.0
    total += 1.0 if a < b else 2.0
    total += 10.0 if a != b else 20.0
    total += 100.0 if not a >= b else 200.0
    total += 1000.0 * max(a, b) if not (math.isnan(a) or math.isnan(b)) else 5.0
    return total - abs(min(a, 4.0))


def over_arrays(of: Outer, out: Matrix, limit: int) -> int:
    """Indexes from the end, rows, tables in tables, several values at once."""
    inner, row = of.inner, of.table[of.first]
    count = 0
    while count < limit:
        count += 1
        if count == 2:
            continue
        low, high = ends(row, count)
        out[count, 0], out[-1, -1] = inner.values[low] * inner.scale, high
    place = int(np.searchsorted(inner.values, 2.0, "right"))
    out[0, 0] += place
    return count + len(row[:2]) + of.table.shape[1]


def ends(row: Ints, count: int) -> tuple[int, int]:
    """Called by another one."""
    return row[0] - 1, row[-1] + count


def no_list(count: int) -> int:
    return len([count])


def float_as_int(count: float) -> int:
    kept = 0
    return over_count(count) + kept


def over_count(count: int) -> int:
    return count


def sum_of(values: Floats) -> float:
    total = 0.0
    for k in range(len(values)):
        total += values[k]
    return total


def sum_of_both(one: Inner, other: Inner) -> float:
    return sum_of(one.values) * one.scale + sum_of(other.values) * other.scale


LIBRARY: list[Library] = []


@pytest.fixture(autouse=True, scope="module")
def _library() -> None:
    LIBRARY.append(Library(build([whole_numbers, floats, over_arrays, sum_of, sum_of_both])))


def compiled(plain: Any) -> Any:
    return LIBRARY[0].function(plain)


SMALL = st.integers(-(2**31), 2**31)
ANY = st.floats(allow_nan=True, allow_infinity=True, width=64)


@given(SMALL, SMALL, ANY)
def test_whole_numbers(a: int, b: int, c: float) -> None:
    assert compiled(whole_numbers)(a, b, c) == whole_numbers(a, b, c)


@given(ANY, ANY)
def test_floats(a: float, b: float) -> None:
    assert np.array_equal([compiled(floats)(a, b)], [floats(a, b)], equal_nan=True)


@given(st.integers(0, 3), st.integers(0, 4))
def test_arrays_and_tables(first: int, limit: int) -> None:
    table = np.array([[1, 2, 3], [4, 5, 5], [2, 0, 9], [3, 3, 3]])
    of = Outer(table, Inner(np.array([1.0, 2.0, 2.0, 5.0]), 0.1), first)
    found, wanted = np.zeros((6, 2)), np.zeros((6, 2))
    assert compiled(over_arrays)(of, found, limit) == over_arrays(of, wanted, limit)
    assert np.array_equal(found, wanted)


def test_arrays_of_every_make() -> None:
    plain = np.arange(6.0)
    frozen = plain.copy()
    frozen.flags.writeable = False
    of_bytes = np.ndarray(6, np.float64, plain.tobytes())
    unpickled = pickle.loads(pickle.dumps(plain))
    summed = compiled(sum_of)
    for array in (plain, frozen, of_bytes, of_bytes[2:], plain[3:], plain[:0], np.zeros((2, 6))[1], unpickled):
        assert summed(array) == array.sum()


def test_a_table_stays_in_memory_while_others_push_it_out() -> None:
    tables, summed = [Inner(np.full(3, float(k)), 1.0) for k in range(12)], compiled(sum_of_both)
    for k in range(12):
        for other in range(12):
            assert summed(tables[k], tables[other]) == 3.0 * (k + other)


def test_what_a_kernel_cannot_say() -> None:
    with pytest.raises(KernelError, match=r"no_list: line 2: cannot compile \[count\]"):
        build([no_list])
    with pytest.raises(KernelError, match=r"float_as_int: line 3: a float where an int is wanted"):
        build([float_as_int])


def test_arguments_are_checked() -> None:
    of = Outer(np.zeros((2, 3), np.int32), Inner(np.zeros(2), 0.1), 0)
    with pytest.raises(TypeError, match=r"Outer.table: a kernel wants .* int64 with 2 dimensions, not int32 with 2"):
        compiled(over_arrays)(of, np.zeros((6, 2)), 1)
    with pytest.raises(TypeError, match=r"Outer.table: a kernel wants 3 columns, not 4"):
        compiled(over_arrays)(of._replace(table=np.zeros((2, 4), np.int64)), np.zeros((6, 2)), 1)
    with pytest.raises(TypeError, match="not contiguous"):
        compiled(over_arrays)(of._replace(table=np.zeros((2, 3), np.int64)), np.zeros((6, 4))[:, ::2], 1)
    with pytest.raises(TypeError, match="missing 2 required positional arguments"):
        compiled(over_arrays)(of)


def test_what_was_not_compiled_is_not_in_the_library() -> None:
    assert floats in LIBRARY[0]
    assert no_list not in LIBRARY[0]


def _sum_to(end: int) -> int:
    total = 0
    for k in range(end):
        total += k
    return total


def _sums(ends: Ints) -> int:
    total = 0
    for k in range(len(ends)):
        total += _sum_to(ends[k])
    return total


def test_clocks_count_calls_and_turns_and_change_no_result() -> None:
    library = Library(build([_sums], [_sum_to]))
    ends = np.array([3, 0, 10])
    assert library.function(_sums)(ends) == _sums(ends)
    own, callers = library.cells(NAME, size(1))[:6].reshape(2, 3).tolist()
    assert (own[CALLS], own[TURNS], callers[TURNS]) == (3, 13, 3)
    assert own[CYCLES] > 0
