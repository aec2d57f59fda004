"""Legal partitions of a device and who gets which: the golden example of dynamic partitioning, MIG, and any table."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.core.errors import InputError
from cotenant.core.partitions import Partitions, mig, place, read_partitions, saved_s, share, speeds, wrong_with

EIGHT = read_partitions("slices", {"columns": 8, "sizes": [1, 2, 4, 8]}, "gpu")


def test_golden_dynamic_partitioning() -> None:
    """8 columns, sizes 1, 2, 4, 8, loads 3 and 1: 6 + 2 is not legal, so 4 + 2, and two columns stay free.

    When the first ends, the second takes 8: its 10 s of work take 10 / (2/8) = 40 s in its slice and 10 s on all of
    the device, so it gains 30 s, and goes if the change costs less.
    """
    found = share(EIGHT, (3.0, 1.0))
    assert found is not None
    assert [EIGHT.shapes[number].columns for number, _ in found] == [4, 2]
    assert not wrong_with(EIGHT, found)
    ((alone, _),) = share(EIGHT, (1.0,)) or ()
    assert EIGHT.shapes[alone].columns == 8
    old, new = speeds([EIGHT], np.ones(1))[0, 0, [found[1][0], alone]]
    assert saved_s(10.0, old, new, cost_s=29.0) == pytest.approx(1.0)
    assert saved_s(10.0, old, new, cost_s=31.0) < 0


def test_free_neighbours_merge() -> None:
    """Columns 0 and 1 are free since two small slices have ended: together they hold a slice of two."""
    assert place(EIGHT, (1,), 0b11111100) == (0,)
    assert place(EIGHT, (1,), 0b11111001) is None  # as many are free, but not side by side where it may begin


def test_mig_has_the_combinations_of_its_guide() -> None:
    """Seven of 1g, three of 2g and one of 1g, 4g and 3g, 3g and 3g; never 4g twice, nor 3g, 3g and 1g."""
    table, numbers = mig("h200"), {"1g": 0, "2g": 1, "3g": 2, "4g": 3, "7g": 4}

    def legal(*names: str) -> bool:
        return place(table, tuple(numbers[name] for name in names)) is not None

    assert legal(*["1g"] * 7)
    assert not legal(*["1g"] * 8)
    assert legal("2g", "2g", "2g", "1g")
    assert legal("4g", "3g")
    assert legal("3g", "3g")
    assert legal("3g", "2g", "1g")
    assert not legal("4g", "4g")
    assert not legal("3g", "3g", "1g")
    assert not legal("7g", "1g")
    assert legal("4g", "2g", "1g")
    whole = [
        names for size in range(1, 8) for names in combinations_with_replacement(numbers, size)
        if legal(*names) and not any(legal(*names, more) for more in numbers)
    ]  # fmt: skip
    assert len(whole) == 12  # the guide lists 18 or 19 of them, for it counts where slices lie
    assert [(shape.name, round(7 * shape.compute), round(8 * shape.memory)) for shape in table.shapes] == [
        ("1g", 1, 1), ("2g", 2, 2), ("3g", 3, 4), ("4g", 4, 4), ("7g", 7, 8),
    ]  # fmt: skip


def test_what_people_ask_for() -> None:
    table = mig("a100")
    assert [table.shapes[table.find(text)].name for text in ("2g", "2/7", "0.3", "1/2", "1")] == [
        "2g", "2g", "3g", "4g", "7g",
    ]  # fmt: skip
    assert table.find("5g") == -1
    assert table.find("9/7") == -1


def test_speeds_by_compute_by_curve_and_as_measured() -> None:
    """A job that is busy all the time moves with the compute, one that is busy for 1/4 fits 2g; others as measured."""
    found = speeds([mig("h100")], np.array([1.0, 0.25]), [{}, {"1g": 0.9}])[:, 0]
    assert found[0] == pytest.approx([1 / 7, 2 / 7, 3 / 7, 4 / 7, 1.0])
    assert found[1] == pytest.approx([0.9, 1.0, 1.0, 1.0, 1.0])
    curve = read_partitions("slices", {"shapes": {"half": {"columns": 4, "speed": 0.7}}}, "gpu")
    assert speeds([curve], np.ones(1))[0, 0] == pytest.approx([0.7, 1.0])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("mig", "MIG's shapes are known of a100, h100, h200, not of type 'gpu'"),
        ({"columns": 8}, "give either sizes or shapes"),
        ({"sizes": [1, 16]}, "sizes has 16, but there are 8 columns"),
        ({"sizes": [1], "columns": 99}, "columns is 99; at most 16"),
        ({"sizes": [1], "reconfigure": -1}, "reconfigure is -1"),
        ({"shapes": {"a": {"columns": 4, "starts": [6]}}}, "4 columns from column 6 on"),
        ({"shapes": {"a": {"columns": 4, "compute": 2}}}, "write a part of the device"),
        ({"size": [1]}, "unknown field 'size': did you mean 'sizes'"),
    ],
)
def test_bad_tables_name_the_field(value: object, message: str) -> None:
    with pytest.raises(InputError, match="slices") as caught:
        read_partitions("slices", value, "gpu")
    assert message in str(caught.value)


@st.composite
def tables(draw: st.DrawFn) -> Partitions:
    columns = draw(st.integers(1, 10))
    sizes = draw(st.lists(st.integers(1, columns), min_size=1, max_size=4))
    return draw(st.sampled_from([mig("h200"), read_partitions("t", {"columns": columns, "sizes": sizes}, "gpu")]))


@settings(deadline=None, max_examples=80)
@given(tables(), st.data())
def test_shares_are_legal_and_larger_for_the_heavier(table: Partitions, data: st.DataObject) -> None:
    loads = tuple(data.draw(st.lists(st.sampled_from([0.25, 0.5, 1.0, 3.0]), min_size=1, max_size=6)))
    least = tuple(data.draw(st.lists(st.integers(0, table.whole), min_size=len(loads), max_size=len(loads))))
    for low in ((0,) * len(loads), least):
        found = share(table, loads, low)
        if found is None:
            assert place(table, low) is None  # not even the smallest fit together
            continue
        cells = [(number, start + column) for number, start in found for column in range(table.shapes[number].columns)]
        assert len({column for _, column in cells}) == len(cells)
        assert all(0 <= column < table.columns for _, column in cells)
        assert all(start in table.shapes[number].starts for number, start in found)
        assert all(number >= one for (number, _), one in zip(found, low, strict=True))
        if not any(low):
            ranked = sorted(zip(loads, found, strict=True), key=lambda one: one[0])
            heavier = [(a, b) for a in ranked for b in ranked if a[0] < b[0]]
            assert all(light[1][0] <= heavy[1][0] for light, heavy in heavier)
    assert read_partitions("again", table.as_data(), "h200") == table
