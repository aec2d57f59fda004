"""Golden arithmetic of a network: links of 1 GB/s, gradients of 100 MB, steps of 0.1 s without the exchange."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.core.errors import InputError
from cotenant.core.network import Gang, Network, Topology, better_later, meeting
from cotenant.policies.bsbf.pair_test import pays

MB = 1e6


def _topology(racks: list[int], **more: object) -> Topology:
    return Topology(Network.from_dict({"link": 8, "overlap": 0, **more}, "here"), racks)


def _gang(topology: Topology, *nodes: int, fewest: int = 0, mb: float = 100.0, compute_s: float = 0.1) -> Gang:
    return topology.gang(nodes, fewest or len(nodes), mb * MB, compute_s)


def test_a_gang_alone_goes_at_its_speed() -> None:
    """Two nodes send 2 x 1/2 x 100 MB in 0.1 s: a step of 0.2 s. Four send 1.5 x 100 MB in 0.15 s."""
    topology = _topology([0] * 8)
    two, four = _gang(topology, 0, 1), _gang(topology, 2, 3, 4, 5)
    assert (two.sends, two.alone_s) == pytest.approx((100 * MB, 0.2))
    assert (four.sends, four.alone_s) == pytest.approx((150 * MB, 0.25))
    assert topology.speeds([two, four]) == pytest.approx([1.0, 1.0])
    assert _gang(topology, 3).loads == {}  # on one node nothing is sent


@pytest.mark.parametrize(("gangs", "step_s"), [(1, 0.2), (2, 0.3), (3, 0.4)])
def test_gangs_on_one_link_share_it_equally(gangs: int, step_s: float) -> None:
    """All use the link of node 0: 0.1 s of exchange becomes 0.2 s with two and 0.3 s with three."""
    topology = _topology([0] * 4)
    found = topology.speeds([_gang(topology, 0, other) for other in range(1, gangs + 1)])
    assert found == pytest.approx([0.2 / step_s] * gangs)


@pytest.mark.parametrize(("gangs", "step_s"), [(1, 0.15), (2, 0.25), (3, 0.35)])
def test_half_the_time_to_compute_hides_the_exchange(gangs: int, step_s: float) -> None:
    topology = _topology([0] * 4, overlap=0.5)
    found = topology.speeds([_gang(topology, 0, other) for other in range(1, gangs + 1)])
    assert found == pytest.approx([0.15 / step_s] * gangs)


def test_what_a_gang_sends_says_how_much_it_is_slowed() -> None:
    """One sends 10 MB: 0.11 s alone, 0.12 s beside another. The other sends 300 MB: 0.4 s, and 0.7 s."""
    topology = _topology([0] * 3)
    light, heavy = _gang(topology, 0, 1, mb=10), _gang(topology, 0, 2, mb=300)
    assert topology.speeds([light, heavy]) == pytest.approx([0.11 / 0.12, 0.4 / 0.7])


def test_rings_that_leave_their_rack_share_its_uplink_once_each() -> None:
    """An uplink of 0.5 GB/s: 100 MB take 0.2 s alone, 0.4 s for two rings, 0.6 s for three."""
    topology = _topology([0, 0, 0, 1, 1, 1], uplink=4)
    rings = [_gang(topology, k, k + 3) for k in range(3)]
    assert set(rings[0].loads) == {0, 3, 6, 7}
    for count, step_s in ((1, 0.3), (2, 0.5), (3, 0.7)):
        assert topology.speeds(rings[:count]) == pytest.approx([0.2 / step_s] * count)
    wide = _gang(topology, 0, 3, 1, 4)  # rack by rack, so over each uplink once
    assert set(wide.loads.values()) == {1.0}
    assert topology.speeds([wide]) == pytest.approx([0.25 / (0.1 + 0.15 / 0.5)])


def test_who_is_held_back_elsewhere_leaves_the_rest_of_a_link() -> None:
    """Two rings have 0.25 GB/s each of an uplink; a third on node 0 then has 0.75 GB/s of its link, not half."""
    topology = _topology([0, 0, 0, 1, 1, 1], uplink=4)
    rings = [_gang(topology, 0, 3), _gang(topology, 1, 4), _gang(topology, 0, 2)]
    assert topology.bandwidths(rings) == pytest.approx([0.25e9, 0.25e9, 0.75e9])


def test_a_gang_on_more_nodes_than_it_needs_is_slowed_by_that_alone() -> None:
    """It would fit one node, where it sends nothing: 0.1 s; on two 0.2 s."""
    topology = _topology([0, 0])
    assert topology.speeds([_gang(topology, 0, 1, fewest=1)]) == pytest.approx([0.5])


def test_a_server_sends_to_everybody_else() -> None:
    """Three others: 300 MB leave its node in 0.3 s, 100 MB reach each; two of them are in another rack."""
    topology = _topology([0, 0, 1, 1], collective="server", uplink=100)
    gang = _gang(topology, 0, 1, 2, 3)
    assert (gang.sends, gang.alone_s) == pytest.approx((300 * MB, 0.4))
    assert gang.loads == pytest.approx({0: 1.0, 1: 1 / 3, 2: 1 / 3, 3: 1 / 3, 4: 2 / 3, 5: 2 / 3})
    other = _gang(topology, 1, 3)  # of two: it sends 100 MB over either link, as much as it may
    assert topology.bandwidths([gang, other]) == pytest.approx([0.75e9, 0.75e9])


def test_gangs_meet_over_others() -> None:
    topology = _topology([0] * 6)
    gangs = {7: _gang(topology, 1, 2), 8: _gang(topology, 2, 3), 9: _gang(topology, 4, 5)}
    assert set(meeting(_gang(topology, 0, 1), gangs)) == {7, 8}


def test_ends_are_played_as_gangs_come_and_go() -> None:
    """30 and 90 s of work at 2/3 until the first ends at 45 s, the other has 60 s left; one comes at 200 s."""
    topology = _topology([0] * 4)
    gangs = [_gang(topology, 0, other) for other in (1, 2, 3)]
    assert topology.play(gangs, [30.0, 90.0, 10.0], [0.0, 0.0, 200.0]) == pytest.approx([45.0, 105.0, 210.0])


def test_with_one_other_the_test_is_that_of_pairs_on_a_gpu() -> None:
    """Slowdowns (c + 2m) / (c + m) of either; 300 draws, of which some wait and some do not."""
    draw, waits = np.random.default_rng(5), 0
    topology = _topology([0] * 3)
    for _ in range(300):
        mb, left = draw.uniform(100, 3000, 2), draw.uniform(10, 1000, 2)
        own, other = (_gang(topology, 0, k + 1, mb=mb[k], compute_s=0.01) for k in range(2))
        alone = [0.01 + size * MB / 1e9 for size in mb]
        xi = [(0.01 + 2 * size * MB / 1e9) / one for size, one in zip(mb, alone, strict=True)]
        found = better_later(topology, own, left[0], {4: other}, {4: left[1]})
        assert (found is None) == pays(left[0], left[1], xi[0], xi[1])
        waits += found is not None
    assert 30 < waits < 270


def test_with_two_others_it_may_wait_for_the_one_that_ends_soon() -> None:
    """Steps of 0.2 s hide the exchange of two gangs but not of three, which go at 2/3.

    20 s and 5,000 s are left of the others, it has 1,000 s. At once: ends at 30, 1,010 and 5,010 s. After the first:
    20, 1,020 and 5,000 s, which is 10 s less. Without the first nobody is slowed.
    """
    topology = _topology([0] * 4, overlap=1)
    own, soon, late = (_gang(topology, 0, k, compute_s=0.2) for k in (1, 2, 3))
    found = better_later(topology, own, 1000.0, {1: soon, 2: late}, {1: 20.0, 2: 5000.0})
    assert found is not None
    assert (found[0], found[1]) == ({1}, pytest.approx(10.0))
    assert better_later(topology, own, 1000.0, {2: late}, {2: 5000.0}) is None


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"rack": 4}, "link is missing"),
        ({"link": -1}, "link is -1"),
        ({"link": 25, "rack": 1.5}, "rack is 1.5"),
        ({"link": 25, "overlap": 2}, "overlap is 2"),
        ({"link": 25, "collective": "rign"}, "did you mean 'ring'"),
        ({"link": 25, "bandwidth": 3}, "unknown field 'bandwidth'"),
        (25, "must be a mapping"),
    ],
)
def test_what_is_wrong_is_said(said: object, complaint: str) -> None:
    with pytest.raises(InputError, match="cluster file: network") as told:
        Network.from_dict(said, "cluster file: network")
    assert complaint in str(told.value)
    assert Network.from_dict(Network(25, rack=4).as_dict(), "x") == Network(25, rack=4)
