"""`cotenant nodes`: what there is to run on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from cotenant.cli import options as opt
from cotenant.cli import remote
from cotenant.core.reasons import moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cotenant.cli.text_table import TextTable
    from cotenant.service.facade import NodeStatus


def nodes(json_: opt.Plain = False) -> None:
    """List nodes, their GPUs and what runs on them."""
    with remote.connected() as client:
        found = client.nodes()
    if json_:
        remote.print_json(found)
        return
    remote.print_table(node_table(found))
    for node in found:
        for fault in node.faults:
            typer.echo(f"{node.name}: {fault_words(fault)}")


def fault_words(fault: dict[str, Any]) -> str:
    """What is wrong with a node, since when."""
    where = "" if fault["gpu"] < 0 else f"GPU {fault['gpu']} "
    return f"{where}not well since {moment(fault['since_s'])}: {fault['why']}"


def node_table(found: Sequence[NodeStatus]) -> TextTable:
    """Nodes in one line each."""
    marked = any(node.dedicated or node.labels for node in found)
    rows = [
        (node.name, node.state, node.gpu_type, used(node), node.cpus, f"{node.mem_gib:.0f}",
         *(marks(node) if marked else ()), " ".join(node.jobs))
        for node in found
    ]  # fmt: skip
    columns = ("node", "state", "type", "gpus used", "cpus", "GiB", *(("for", "labels") if marked else ()), "jobs")
    return remote.table(columns, rows, right=("gpus used", "cpus", "GiB"))


def marks(node: NodeStatus) -> tuple[str, str]:
    """For whom a node is, and its labels."""
    return ",".join(node.dedicated) or "all", ",".join(f"{key}={value}" for key, value in node.labels.items())


def used(node: NodeStatus) -> str:
    """GPUs in use of how many, and how many of them have several jobs."""
    shared = f" ({node.gpus_shared} shared)" if node.gpus_shared else ""
    out = f" ({node.gpus_out} out)" if node.gpus_out else ""
    return f"{node.gpus_used}/{node.gpus}{shared}{out}"
