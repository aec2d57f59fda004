"""What lives long is set aside from the garbage collector, and nothing dead stays for ever."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from cotenant.service.garbage_collection import EVERY_S, LongLived


class Node:
    """May be part of a cycle."""

    def __init__(self) -> None:
        self.me: Node | None = self


@pytest.fixture
def lives() -> Iterator[LongLived]:
    found = LongLived(0.0)
    yield found
    found.release()


def test_it_settles_when_a_large_book_has_doubled_and_every_hour(lives: LongLived) -> None:
    assert not lives.settle(1000, 0.0)
    assert lives.settle(10_000, 0.0)
    assert not lives.settle(21_000, EVERY_S - 1)
    assert lives.settle(21_001, EVERY_S - 1)
    assert not lives.settle(21_001, 2 * EVERY_S - 2)
    assert lives.settle(21_001, 2 * EVERY_S - 1)


def test_a_full_collection_does_not_visit_what_was_set_aside(lives: LongLived) -> None:
    many = [Node() for _ in range(1000)]
    assert lives.settle(2000, 0.0)
    assert gc.get_freeze_count() > len(many)
    visited = {id(item) for item in gc.get_objects()}
    assert not any(id(item) in visited for item in many)


def test_a_cycle_that_dies_while_set_aside_is_freed_by_the_next_time(lives: LongLived) -> None:
    node = Node()
    gone = weakref.ref(node)
    assert lives.settle(2000, 0.0)
    del node
    gc.collect()
    assert gone() is not None, "it was set aside"
    assert lives.settle(2000, EVERY_S)
    assert gone() is None


def test_dead_before_it_settles_is_freed_and_release_brings_the_rest_back(lives: LongLived) -> None:
    dead, alive = weakref.ref(Node()), Node()
    assert lives.settle(2000, 0.0)
    assert dead() is None
    lives.release()
    assert gc.get_freeze_count() == 0
    assert any(item is alive for item in gc.get_objects())
