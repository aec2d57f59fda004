"""Nodes by the queue: woken for whoever waits, asleep when they have been idle for long."""

from __future__ import annotations

import pytest

from cotenant.core.errors import InputError
from cotenant.power import QueueLength, QueueRules, parse_queue


def test_nodes_wake_for_the_queue_and_sleep_when_idle() -> None:
    queue = QueueLength(QueueRules(linger_s=60.0))
    assert queue.asleep(set(), set(), ["a", "b", "c"], set(), 0, 0.0) == {"a", "b", "c"}
    assert queue.asleep(set(), set(), ["b", "a", "c"], set(), 2, 10.0) == {"c"}
    assert queue.asleep(set(), {"a", "b"}, ["c"], set(), 2, 20.0) == {"c"}
    assert queue.asleep({"a", "b"}, set(), ["c"], {"a", "b"}, 0, 30.0) == {"c"}
    assert queue.asleep({"a", "b"}, set(), ["c"], {"a"}, 0, 40.0) == {"c"}
    assert queue.due_s == 100.0
    assert queue.asleep({"a", "b"}, set(), ["c"], {"a"}, 0, 99.9) == {"c"}
    assert queue.asleep({"a", "b"}, set(), ["c"], {"a"}, 0, 100.0) == {"b", "c"}


def test_least_and_most() -> None:
    queue = QueueLength(QueueRules(linger_s=0.0, least=1, most=2))
    assert queue.asleep(set(), set(), ["a", "b", "c"], set(), 0, 0.0) == {"b", "c"}
    assert queue.asleep(set(), set(), ["a", "b", "c"], set(), 9, 0.0) == {"c"}
    assert queue.asleep({"a", "b"}, set(), ["c"], set(), 0, 1.0) == {"b", "c"}


def test_rules_are_read() -> None:
    assert parse_queue("queue:linger=5,least=1,most=4") == QueueRules(5.0, 1, 4)
    with pytest.raises(InputError):
        parse_queue("queue:least=3,most=2")
