"""GPUs in slices: which partitions of a device are legal, how fast a slice is, and who gets which.

A device has columns; a slice takes some that lie side by side, in one of a few shapes that may begin at some columns
only. Slices of one device do not overlap, do not disturb each other, and each has its own part of the memory. NVIDIA's
MIG is a table of that kind (eight columns of memory, seven of compute), a systolic array whose columns are divided
among networks another one (Reshadi & Gregg, arXiv 2302.10806): the larger share to the heavier tenant, rounded to
legal sizes; what is freed beside a tenant it may absorb, if that saves more time than the change costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cotenant.core import reading
from cotenant.core.errors import InputError
from cotenant.core.workload import Codes, Floats, Ints

MOST_COLUMNS = 16
RECONFIGURE_S = 5.0  # until a MIG instance is destroyed and another one made
_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of slice: how many columns it takes, where it may begin, and its parts of compute and memory.

    `speed` is that of a job which keeps a whole device busy, against the whole device; 0: its part of the compute.
    """

    name: str
    columns: int
    starts: tuple[int, ...]
    compute: float
    memory: float
    speed: float = 0.0

    def mask(self, start: int) -> int:
        """The columns of such a slice, as bits."""
        return ((1 << self.columns) - 1) << start


@dataclass(frozen=True, slots=True)
class Partitions:
    """The legal partitions of a device. `shapes` go from small to large, and the last is the whole device.

    Changing the slice of a running job takes `reconfigure_s`; with `restarts` the job also has to begin anew from what
    it has saved, as under MIG, where it cannot stay in a slice that is replaced.
    """

    columns: int
    shapes: tuple[Shape, ...]
    reconfigure_s: float = RECONFIGURE_S
    restarts: bool = True
    name: str = "own"
    timed: bool = False  # no hardware does it: slices are shares of a GPU's time and limits of its memory

    @property
    def whole(self) -> int:
        """Number of the shape that is the whole device."""
        return len(self.shapes) - 1

    @property
    def most(self) -> int:
        """Slices that a device has at most."""
        return self.columns // self.shapes[0].columns

    def find(self, text: str) -> int:
        """The shape that somebody asks for: by its name, or the smallest with this part of the compute, as in 2/7.

        -1 where there is none of that name.
        """
        for number, shape in enumerate(self.shapes):
            if shape.name == text:
                return number
        part = part_of(text)
        if part is None:
            return -1
        return next(number for number, shape in enumerate(self.shapes) if shape.compute >= part - _SLACK)

    def as_data(self) -> Any:
        """As `read_partitions` takes it."""
        if self.name == "mig":
            return self.name
        shapes = {
            shape.name: {"columns": shape.columns, "starts": list(shape.starts), "compute": shape.compute}
            | {"memory": shape.memory} | ({"speed": shape.speed} if shape.speed else {})
            for shape in self.shapes
        }  # fmt: skip
        return {
            "columns": self.columns, "shapes": shapes, "reconfigure": self.reconfigure_s, "restarts": self.restarts,
        }  # fmt: skip

    def least_for(self, need: float) -> int:
        """The smallest shape with this part of the memory; -1 where not even the whole device has it."""
        return next((number for number, shape in enumerate(self.shapes) if shape.memory >= need - _SLACK), -1)


def part_of(text: str) -> float | None:
    """A part of a device such as `2/7` or `0.5`; None where it is none above 0 and up to 1."""
    over, _, under = text.partition("/")
    try:
        part = float(over) / float(under or 1)
    except (ValueError, ZeroDivisionError):
        return None
    return part if 0 < part <= 1 + _SLACK else None


# -- which partitions are legal ----------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def place(table: Partitions, shapes: tuple[int, ...], taken: int = 0) -> tuple[int, ...] | None:
    """First columns for slices of these shapes beside columns that are `taken`; None where there is no legal way.

    Large ones are laid first. Of several places for one the first counts that leaves most places to others.
    """
    order = sorted(range(len(shapes)), key=lambda at: (-table.shapes[shapes[at]].columns, at))
    found: list[int] = [0] * len(shapes)

    def lay(depth: int, used: int) -> bool:
        if depth == len(order):
            return True
        shape = table.shapes[shapes[order[depth]]]
        open_ = [start for start in shape.starts if not shape.mask(start) & used]
        for start in sorted(open_, key=lambda start: -_places_left(table, used | shape.mask(start))):
            found[order[depth]] = start
            if lay(depth + 1, used | shape.mask(start)):
                return True
        return False

    return tuple(found) if lay(0, taken) else None


def _places_left(table: Partitions, used: int) -> int:
    return sum(not shape.mask(start) & used for shape in table.shapes for start in shape.starts)


def wrong_with(table: Partitions, slices: Sequence[tuple[int, int]]) -> str:
    """What is not legal about slices (shape, first column) on one device; empty where they are."""
    used = 0
    for number, start in slices:
        if not 0 <= number < len(table.shapes) or start not in table.shapes[number].starts:
            return f"a slice of shape {number} at column {start}, which is not legal there"
        mask = table.shapes[number].mask(start)
        if used & mask:
            return f"slice {table.shapes[number].name} at column {start} on top of another"
        used |= mask
    return ""


# -- who gets which ----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=65536)
def share(
    table: Partitions, loads: tuple[float, ...], least: tuple[int, ...] = (), most: tuple[int, ...] = ()
) -> tuple[tuple[int, int], ...] | None:
    """(shape, first column) for each tenant of a device, by load; None where they do not fit together.

    Each gets the largest legal slice within its part of all loads, from its `least` shape to its `most`. Where rounding
    took something from a tenant, the next larger shape is tried, the heaviest tenant first. Who got all of its part
    does not get more: what is left stays free.
    """
    total, least, most = sum(loads), least or (0,) * len(loads), most or (table.whole,) * len(loads)
    parts = [load / total if total > 0 else 1 / len(loads) for load in loads]
    sizes = [max(min(_within(table, part), high), low) for part, low, high in zip(parts, least, most, strict=True)]
    heavy = sorted(range(len(loads)), key=lambda at: (-loads[at], at))
    while place(table, tuple(sizes)) is None:
        shrinks = [at for at in range(len(sizes)) if sizes[at] > least[at]]
        if not shrinks:
            return None
        sizes[max(shrinks, key=lambda at: (sizes[at], -parts[at], at))] -= 1
    for at in heavy:
        larger = [size + (other == at) for other, size in enumerate(sizes)]
        cut = table.shapes[sizes[at]].compute < parts[at] - _SLACK and sizes[at] < most[at]
        if cut and place(table, tuple(larger)) is not None:
            sizes = larger
    starts = place(table, tuple(sizes))
    return None if starts is None else tuple(zip(sizes, starts, strict=True))


def _within(table: Partitions, part: float) -> int:
    """The largest shape with no more than this part of the compute, or the smallest."""
    return max((at for at, shape in enumerate(table.shapes) if shape.compute <= part + _SLACK), default=0)


def saved_s(left_s: float, old_speed: float, new_speed: float, cost_s: float) -> float:
    """Seconds by which a job of so much work ends sooner in another slice (below 0: later), `cost_s` being lost."""
    return left_s / old_speed - left_s / new_speed - cost_s


# -- how fast a slice is -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Slicing:
    """What is known of slices in a cluster: `of_node` says which table is a node's (-1: its GPUs are never cut).

    `speed[kind, table, shape]` is against the whole GPU. `asked[row]`: the slice that a job asks for, '' where it
    leaves that open. Where slices are `fixed` nobody can change those of running jobs.
    """

    tables: tuple[Partitions, ...]
    of_node: Ints
    speed: NDArray[np.float64]
    asked: Codes
    fixed: bool = False

    def wish(self, row: int) -> str:
        """The slice that a job asks for; empty where it leaves that open."""
        return self.asked.names[self.asked.code[row]] if row < len(self.asked.code) else ""


def speeds(
    tables: Sequence[Partitions], busy: Floats, measured: Sequence[dict[str, float]] = ()
) -> NDArray[np.float64]:
    """Kind x table x shape: as `measured` of the kind by name of the shape, else by how `busy` it keeps a whole GPU.

    Kernels take as much longer as a slice is slower, and the host works ahead meanwhile: a job that leaves a GPU idle
    half of the time loses nothing in half of it. One that never does moves at the speed of the slice, and so does
    everybody where slices are shares of the time.
    """
    largest = max((len(table.shapes) for table in tables), default=1)
    found = np.ones((len(busy), len(tables), largest))
    for at, table in enumerate(tables):
        for number, shape in enumerate(table.shapes[:-1]):
            raw = shape.speed or shape.compute
            found[:, at, number] = raw if table.timed else np.minimum(raw / np.maximum(busy, raw), 1.0)
            for kind, own in enumerate(measured):
                if shape.name in own:
                    found[kind, at, number] = own[shape.name]
    return found


# -- tables ------------------------------------------------------------------------------------------------------------

_MIG = (("1g", 1, range(7), 1), ("2g", 2, (0, 2, 4), 2), ("3g", 4, (0, 4), 3), ("4g", 4, (0,), 4), ("7g", 8, (0,), 7))
_MIG_TYPES = ("a100", "h100", "h200")
_KEYS = ("columns", "sizes", "shapes", "reconfigure", "restarts")
_SHAPE_KEYS = ("columns", "starts", "compute", "memory", "speed")
_EXAMPLE = "mig, or e.g. {columns: 8, sizes: [1, 2, 4, 8], reconfigure: 5}"


def mig(gpu_type: str, where: str = "slices") -> Partitions:
    """MIG of an A100 (40 or 80 GB), H100 or H200: their shapes and placements are the same (NVIDIA MIG User Guide).

    Columns are the eight parts of the memory; 3g has the compute of three sevenths and the memory of four eighths.
    """
    if not gpu_type.lower().startswith(_MIG_TYPES):
        known = ", ".join(_MIG_TYPES)
        raise InputError(f"{where}: MIG's shapes are known of {known}, not of type '{gpu_type}': write a table")
    shapes = tuple(Shape(name, wide, tuple(at), part / 7, wide / 8) for name, wide, at, part in _MIG)
    return Partitions(8, shapes, name="mig")


def read_partitions(where: str, value: Any, gpu_type: str) -> Partitions:
    """A table as cluster files have it: `mig`, sizes that begin at their multiples, or shapes one by one."""
    if value == "mig":
        return mig(gpu_type, where)
    data = reading.mapping(where, value, _EXAMPLE)
    reading.known(where, data, _KEYS)
    if ("sizes" in data and "shapes" in data) or not data.keys() & {"sizes", "shapes"}:
        raise InputError(f"{where}: give either sizes or shapes: {_EXAMPLE}")
    columns = reading.whole(f"{where}.columns", data.get("columns", 8), 1)
    if columns > MOST_COLUMNS:
        raise InputError(f"{where}.columns is {columns}; at most {MOST_COLUMNS}")
    shapes = _sizes(where, data["sizes"], columns) if "sizes" in data else _shapes(where, data["shapes"], columns)
    if shapes[-1].columns < columns:
        shapes += (Shape("whole", columns, (0,), 1.0, 1.0),)
    restarts, cost = (
        reading.yes(f"{where}.restarts", data.get("restarts", False)),
        data.get("reconfigure", RECONFIGURE_S),
    )
    reconfigure_s = reading.amount(f"{where}.reconfigure", cost, " of seconds, or 0") if cost != 0 else 0.0
    return Partitions(columns, shapes, reconfigure_s, restarts)


def _sizes(where: str, sizes: Any, columns: int) -> tuple[Shape, ...]:
    if not isinstance(sizes, list) or not sizes:
        raise InputError(f"{where}.sizes must be a list of columns such as [1, 2, 4, 8]")
    found = sorted({reading.whole(f"{where}.sizes[{at}]", size, 1) for at, size in enumerate(sizes)})
    if found[-1] > columns:
        raise InputError(f"{where}.sizes has {found[-1]}, but there are {columns} columns")
    return tuple(
        Shape(f"{size}", size, tuple(range(0, columns - size + 1, size)), size / columns, size / columns)
        for size in found
    )


def _shapes(where: str, shapes: Any, columns: int) -> tuple[Shape, ...]:
    found = []
    for name, item in reading.mapping(f"{where}.shapes", shapes, "{half: {columns: 4}}").items():
        here = f"{where}.shapes.{name}"
        data = reading.mapping(here, item, "{columns: 4}")
        reading.known(here, data, _SHAPE_KEYS)
        wide = reading.whole(f"{here}.columns", data.get("columns", 0), 1)
        starts = data.get("starts", list(range(0, columns - wide + 1, wide)))
        if not isinstance(starts, list) or not starts:
            raise InputError(f"{here}.starts must be a list of columns such as [0, 4]")
        firsts = tuple(sorted({reading.whole(f"{here}.starts", start, 0) for start in starts}))
        if firsts[-1] + wide > columns:
            raise InputError(f"{here}: {wide} columns from column {firsts[-1]} on, but there are {columns}")
        parts = {key: _part(f"{here}.{key}", data.get(key, wide / columns)) for key in ("compute", "memory")}
        found.append(Shape(str(name), wide, firsts, **parts, speed=_part(f"{here}.speed", data.get("speed", 0), True)))
    if not found:
        raise InputError(f"{where}.shapes is empty: name at least one, e.g. {{half: {{columns: 4}}}}")
    return tuple(sorted(found, key=lambda shape: (shape.compute, shape.memory, shape.columns)))


def _part(where: str, value: Any, zero: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (0 < value <= 1 or (zero and value == 0)):
        raise InputError(f"{where} is '{value}': write a part of the device, above 0 and up to 1")
    return float(value)
