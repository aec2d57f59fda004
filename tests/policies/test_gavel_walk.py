from __future__ import annotations

import numpy as np
import pytest

from cotenant.core.errors import InputError
from cotenant.policies import make_policy
from cotenant.policies.rounds.select import one_line, pick_in_line


def test_one_line_serves_whoever_is_furthest_behind_on_any_type() -> None:
    """Job 0 is due on both types, most on the second: a walk from the first type would put it there."""
    priority = np.array([[2.0, 5.0], [1.0, 0.0], [0.0, 0.0]])
    line = one_line(priority, np.zeros((3, 2)), np.zeros((3, 2)))
    assert line[:3].tolist() == [[0, 1], [0, 0], [1, 0]]
    members = np.array([[0, -1], [1, -1], [2, -1]])
    usable, out = np.array([[1, 1], [1, 1], [1, 0]]), np.zeros((3, 2), np.int64)
    room, taken = np.array([2, 1]), np.zeros(3, np.int64)
    count = pick_in_line(line, members, np.array([1, 1, 2]), usable, np.ones((3, 2), np.int64), room, taken, out)
    assert out[:count].tolist() == [[0, 1], [1, 0]]
    assert room.tolist() == [1, 0], "the third is due nowhere and does not fit any more"


def test_pairs_in_one_line_run_only_when_both_are_free() -> None:
    priority = np.array([[1.0], [0.0], [3.0]])
    line = one_line(priority, np.zeros((3, 1)), np.zeros((3, 1)))
    members, out = np.array([[0, -1], [1, -1], [0, 1]]), np.zeros((3, 2), np.int64)
    full = np.ones((3, 1), np.int64)
    taken = np.zeros(2, np.int64)
    count = pick_in_line(line, members, np.ones(3, np.int64), full, full, np.array([3]), taken, out)
    assert out[:count].tolist() == [[2, 0]]
    assert taken.tolist() == [1, 1]


def test_unknown_walks_are_refused() -> None:
    with pytest.raises(InputError, match="walk"):
        make_policy("gavel:walk=random")
