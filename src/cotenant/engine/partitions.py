"""GPUs in slices: which tables the nodes have, and what a plan that cuts them must respect."""

from __future__ import annotations

import numpy as np

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.partitions import Partitions, Slicing, wrong_with
from cotenant.core.plan import Places, Plan
from cotenant.core.state import State
from cotenant.core.view import View
from cotenant.core.workload import Ints
from cotenant.engine.tenant_rows import pools_of

_SLACK = 1e-6
_Cut = tuple[int, int, int, float]  # (row, shape from 1 or 0, first column, GiB)


def tables_of(cluster: Cluster) -> tuple[Partitions, ...]:
    """The different tables of a cluster."""
    return tuple(dict.fromkeys(group.slices for group in cluster.groups if group.slices is not None))


def most_slices(cluster: Cluster) -> int:
    """Jobs that a GPU has at most where it is cut; 0 where none may be."""
    return max((table.most for table in tables_of(cluster)), default=0)


def table_of_nodes(cluster: Cluster) -> Ints:
    """By node, in the order of the engine's tables, which of `tables_of` is its own; -1: its GPUs are never cut."""
    tables, found = tables_of(cluster), list[int]()
    for part, kind, owners in pools_of(cluster):
        for group in cluster.groups:
            if (group.partition, group.gpu_type, group.dedicated) == (part, kind, owners):
                found += [-1 if group.slices is None else tables.index(group.slices)] * group.count
    return np.array(found, np.int64)


def about_slices(state: State, wanted: dict[int, Places], plan: Plan, view: View, need_gib: dict[int, float]) -> str:
    """What is wrong with the slices of a plan: only legal partitions, single GPUs, memory within each slice."""
    slicing = view.facts.slicing
    if slicing is None:
        cut = next((row for row, terms in plan.terms.items() if terms.sliced), -1)
        return f"gives row {cut} a slice, but GPUs are not cut here" if cut >= 0 else ""
    cells: dict[tuple[int, int], list[_Cut]] = {}
    for row, places in wanted.items():
        terms = plan.terms.get(row)
        shape, column = (
            state.i[row, [col.SLICED, col.COLUMN]].tolist() if terms is None else (terms.sliced, terms.column)
        )
        if shape and (slicing.of_node[places[0][0]] < 0 or sum(gpus for _, gpus, _ in places) > 1):
            return f"gives row {row} a slice, of several GPUs or of one that is never cut"
        for node, _, mask in places:
            for gpu in range(mask.bit_length()):
                if mask >> gpu & 1:
                    cells.setdefault((node, gpu), []).append((row, shape, column, need_gib[row]))
    for (node, gpu), cuts in cells.items():
        if wrong := _wrong_on(state, slicing, node, cuts):
            return f"puts {wrong} on GPU {gpu} of node {node}"
    return ""


def _wrong_on(state: State, slicing: Slicing, node: int, cuts: list[_Cut]) -> str:
    """What is wrong with the jobs of one GPU."""
    if not any(shape for _, shape, _, _ in cuts):
        return f"{len(cuts)} jobs without slices" if len(cuts) > 1 else ""
    if not all(shape for _, shape, _, _ in cuts):
        return "a job that has all of it beside slices"
    table = slicing.tables[slicing.of_node[node]]
    gib = float(state.gpu_gib[state.pool[state.node[node, col.NODE_POOL], col.POOL_TYPE]])
    for row, shape, _, need in cuts:
        if shape <= len(table.shapes) and need > table.shapes[shape - 1].memory * gib + _SLACK:
            return f"row {row} with {need:.1f} GiB in a slice of {table.shapes[shape - 1].memory * gib:.1f}"
    return wrong_with(table, [(shape - 1, column) for _, shape, column, _ in cuts])
