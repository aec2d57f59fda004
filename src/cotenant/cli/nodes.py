"""`cotenant nodes`: what there is to run on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cotenant.cli import options as opt
from cotenant.cli import remote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cotenant.cli.text_table import TextTable
    from cotenant.service.facade import NodeStatus


def nodes(json_: opt.Plain = False) -> None:
    """List nodes, their GPUs and what runs on them."""
    with remote.connected() as client:
        found = client.nodes()
    remote.print_json(found) if json_ else remote.print_table(node_table(found))


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
    return f"{node.gpus_used}/{node.gpus}{shared}"
