"""What the nodes of one look could hold is worked out once per tenant and demand."""

from __future__ import annotations

from collections.abc import Iterator

from cotenant.backends.base import NodeInfo
from cotenant.core.tenants import Tree
from cotenant.service.admission import Admission, PoolDemand
from cotenant.service.node_marks import NodeMark
from cotenant.service.store.tenants import BookTenants

NODES = (NodeInfo("a", "gpu", 4, 16, 64.0), NodeInfo("b", "gpu", 8, 16, 64.0))


class _Looked(tuple[NodeInfo, ...]):
    """Nodes that count how often somebody goes through them."""

    times = 0

    def __iter__(self) -> Iterator[NodeInfo]:
        type(self).times += 1
        return super().__iter__()


def test_nodes_are_gone_through_once_per_tenant() -> None:
    nodes, tenants = _Looked(NODES), BookTenants()
    admission = Admission(nodes, tenants)
    for _ in range(3):
        assert admission.wrong(PoolDemand(12), "t") == ""
        assert "largest pool has 12" in admission.wrong(PoolDemand(13), "t")
        assert "field 'cpus' is 17" in admission.wrong(PoolDemand(1, cpus=17), "t")
    assert nodes.times == 1
    assert admission.is_of(nodes, tenants)
    assert not admission.is_of(_Looked(NODES), tenants)


def test_nodes_that_are_dedicated_to_others_hold_nobody_else() -> None:
    tenants = BookTenants(Tree(()), {node.name: NodeMark(dedicated=("mine",)) for node in NODES})
    assert "all are dedicated to others" in Admission(NODES, tenants).wrong(PoolDemand(1), "theirs")
    assert "every job takes at least 1 GPU" in Admission((), tenants).wrong(PoolDemand(0), "theirs")
