"""One set of rules for where a gang goes: policies that place jobs themselves find what compiled orders find."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster, NodeGroup
from cotenant.core.state import State
from cotenant.core.view import Facts
from cotenant.core.workload import make_workload
from cotenant.engine.observe import Window
from cotenant.engine.tables import build_state
from cotenant.placement.fit import IDLE_NOW, find_place
from cotenant.placement.modes import parse_placement
from cotenant.placement.room import Room, SharedRoom


def _state(cluster: Cluster, gpus: int, placement: str = "consolidated", *, parts: int = 0, sharing: bool = False,
           cpus: float = 0.0, mem_gib: float = 0.0) -> State:  # fmt: skip
    work = make_workload(
        "one", np.zeros(1), np.array([gpus]), np.ones(1), nodes=np.array([parts]),
        cpus=np.array([cpus]), mem_gib=np.array([mem_gib]),
    )  # fmt: skip
    one = np.ones(1)
    return build_state(
        work, cluster, parse_placement(placement), belief_s=one, restore_s=0 * one, draw=one,
        speed=np.ones((1, len(cluster.groups), 2)), skew=np.zeros(1), sharing=sharing,
    )  # fmt: skip


def _room(state: State) -> Room:
    return Room(Window().view(state, Facts(), np.zeros(1, np.int64), 0.0))


def _fill(state: State, room: Room, used: list[int], cores: list[float]) -> None:
    """So many GPUs and cores are taken, here and there alike."""
    taken = np.minimum(used, state.node[:, col.NODE_CAP])
    room.free -= taken
    room.left -= int(taken.sum())
    room.hosts[:, 0] -= np.minimum(cores, room.hosts[:, 0])
    state.open[:, IDLE_NOW] = room.free
    state.open_host[:, [1, 3]] = room.hosts


@st.composite
def situations(draw: st.DrawFn) -> tuple[State, Room, int]:
    groups = draw(st.lists(st.tuples(st.integers(1, 4), st.sampled_from([1, 2, 4, 5, 8])), min_size=1, max_size=3))
    hosts = draw(st.booleans())
    cluster = Cluster(
        tuple(NodeGroup(count, size, cpus=8.0 * size if hosts else np.inf) for count, size in groups), spec="drawn"
    )
    gpus = draw(st.integers(1, cluster.gpus))
    parts = draw(st.sampled_from([0, 0, 0, 1, 2]))
    parts = parts if parts and gpus % parts == 0 else 0
    placement = draw(st.sampled_from(["consolidated", "spread", "skew"]))
    cpus = float(draw(st.integers(0, 12)) * gpus) if hosts else 0.0
    state = _state(cluster, gpus, placement, parts=parts, cpus=cpus)
    room = _room(state)
    nodes = len(state.node)
    used = draw(st.lists(st.integers(0, 8), min_size=nodes, max_size=nodes))
    cores = draw(st.lists(st.integers(0, 64), min_size=nodes, max_size=nodes))
    _fill(state, room, used, [float(core) for core in cores])
    return state, room, gpus


@settings(max_examples=300, deadline=None)
@given(situations())
def test_a_room_finds_what_the_engine_finds(drawn: tuple[State, Room, int]) -> None:
    state, room, gpus = drawn
    mode = int(room.view.mode[0])
    count = find_place(state, int(state.i[0, col.CLASS]), 0, IDLE_NOW)
    expected = sorted((int(n), int(g)) for n, g in state.pick[:count])
    found = next(filter(None, (room._seek(0, gpus, pool, room.free, mode) for pool in room.pools(0))), ())
    assert sorted(found) == expected


@settings(max_examples=100, deadline=None)
@given(situations())
def test_what_is_claimed_fits_and_comes_back(drawn: tuple[State, Room, int]) -> None:
    _, room, gpus = drawn
    before = room.free.copy(), room.hosts.copy(), room.quota.copy(), room.left
    with room.trial():
        place = room.find(0, gpus)
        if place is not None:
            assert sum(taken for _, taken in place) == gpus
            assert room.left == before[3] - gpus
        assert (room.free >= 0).all()
        assert (room.hosts >= -1e-6).all()
    for now, then in zip((room.free, room.hosts, room.quota), before[:3], strict=True):
        np.testing.assert_array_equal(now, then)
    place = room.find(0, gpus)
    if place is not None:
        room.release(0, place)
        np.testing.assert_array_equal(room.free, before[0])


def test_the_rest_of_a_large_gang_goes_to_the_emptiest_node() -> None:
    """12 GPUs where 8, 8, 5 and 4 are free: a whole node, and four of the other empty one."""
    state = _state(Cluster.parse("4x8"), 12)
    room = _room(state)
    _fill(state, room, [0, 0, 3, 4], [0.0] * 4)
    assert find_place(state, 0, 0, IDLE_NOW) == 2
    assert state.pick[:2].tolist() == [[0, 8], [1, 4]]
    assert room.find(0, 12) == ((0, 8), (1, 4))


@pytest.mark.parametrize("gpus", [1, 4, 9, 12])
def test_shared_gpus_follow_the_same_rules(gpus: int) -> None:
    state = _state(Cluster.parse("2x8+2x4"), gpus, sharing=True)
    view = Window().view(state, Facts(), np.zeros(1, np.int64), 0.0)
    shared, counted = SharedRoom(view), Room(view)
    chosen = shared.consolidated(0, [True] * len(shared.users))
    place = counted.find(0, gpus)
    assert place is not None
    nodes, counts = np.unique(shared.node_of[chosen], return_counts=True)
    assert sorted(place) == list(zip(nodes.tolist(), counts.tolist(), strict=True))
