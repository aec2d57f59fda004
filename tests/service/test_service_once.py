"""Idempotency keys: the second submission is the first one, whatever happened in between."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from service_kit import ADMIN, EPOCH_S, Rig

from cotenant.core.errors import InputError
from cotenant.core.jobspec import parse_job
from cotenant.service.facade import Caller, Conflict, Role, Unavailable
from cotenant.service.store.idempotency import KEEP_KEYS_S, MOST_KEYS, Answers, GivenAnswer, packed, unpacked

ANN, BOB = Caller("ann", Role.USER, "red"), Caller("bob", Role.USER, "red")
SPECS = [parse_job({"run": "sleep 1"}), parse_job({"run": "sleep 1", "array": "0-2,7"})]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_the_same_key_submits_once(rig: Rig) -> None:
    first = rig.service.desk.submit(ANN, SPECS, "k", "digest")
    assert first == [["1"], ["2.0", "2.1", "2.2", "2.7"]]
    assert rig.service.desk.submit(ANN, SPECS, "k", "digest") == first
    assert len(rig.service.store.book.jobs) == 5
    with pytest.raises(Conflict, match="another request"):
        rig.service.desk.submit(ANN, SPECS, "k", "other")
    assert rig.service.desk.submit(BOB, SPECS, "k", "digest") != first, "a key belongs to who used it"
    assert rig.service.desk.submit(ANN, SPECS) != rig.service.desk.submit(ANN, SPECS), "no key, no memory"


@pytest.mark.parametrize("snapshot", [False, True])
def test_keys_survive_a_restart(rig: Rig, snapshot: bool) -> None:
    first = rig.service.desk.submit(ANN, SPECS, "k", "digest")
    if snapshot:
        rig.service.store.snapshot()
    rig.finish()
    before = rig.service.store.book.freeze()
    rig.restart()
    assert rig.service.store.book.freeze() == before
    assert rig.service.desk.submit(ANN, SPECS, "k", "digest") == first
    with pytest.raises(Conflict):
        rig.service.desk.submit(ANN, SPECS, "k", "other")
    assert len(rig.service.store.book.jobs) == 5


def test_a_key_is_new_again_after_a_day(rig: Rig) -> None:
    first = rig.service.desk.submit(ANN, SPECS, "k", "digest")
    rig.backend.advance(KEEP_KEYS_S - 1)
    assert rig.service.desk.submit(ANN, SPECS, "k", "digest") == first
    rig.backend.advance(2)
    assert rig.service.desk.submit(ANN, SPECS, "k", "other") != first
    assert rig.service.store.book.answers.rows()[0][2] == EPOCH_S + KEEP_KEYS_S + 1


def test_a_submission_that_failed_leaves_its_key_free(rig: Rig) -> None:
    with pytest.raises(InputError):
        rig.service.desk.submit(ANN, [parse_job({"run": "true", "gpus": 9})], "k", "digest")
    rig.store.room = 0
    with pytest.raises(Unavailable):
        rig.service.desk.submit(ANN, SPECS, "k", "digest")
    rig.store.room = None
    assert rig.service.desk.submit(ANN, SPECS, "k", "digest")[0] in (["1"], ["3"])
    assert len(rig.service.store.book.jobs) == 5


def test_one_that_is_on_its_way_is_waited_for(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first has the key and waits for the disk; the second comes meanwhile."""
    begun, written = threading.Event(), threading.Event()
    end_write = rig.service.store.end_write

    def slow(future: object) -> list[int]:
        begun.set()
        assert written.wait(20)
        return end_write(future)  # type: ignore[arg-type]

    monkeypatch.setattr(rig.service.store, "end_write", slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(rig.service.desk.submit, ANN, SPECS, "k", "digest")
        assert begun.wait(20)
        with pytest.raises(Conflict):
            rig.service.desk.submit(ANN, SPECS, "k", "other")
        second = pool.submit(rig.service.desk.submit, ANN, SPECS, "k", "digest")
        written.set()
        assert first.result(20) == second.result(20)
    assert len(rig.service.store.book.jobs) == 5


def test_keys_are_not_shown(rig: Rig) -> None:
    rig.service.desk.submit(ADMIN, SPECS, "my-secret-key", "digest")
    assert {event.kind for event in rig.service.desk.events(ADMIN)} == {"submit"}
    assert b"my-secret-key" not in rig.service.store.book.freeze()


def test_only_so_many_keys_are_kept() -> None:
    answers = Answers()
    for number in range(MOST_KEYS + 5):
        answers.put(str(number), GivenAnswer("a", 0.0, [[str(number)]]))
    assert len(answers.rows()) == MOST_KEYS
    assert answers.get("4", "a", 0.0) is None
    assert answers.get("5", "a", 0.0) == [["5"]]


def test_ids_in_short() -> None:
    ids = [["1"], [f"2.{k}" for k in (0, 1, 2, 5, 9, 10)], ["3.0"]]
    assert packed(ids) == [["1", []], ["2", [[0, 2], [5, 5], [9, 10]]], ["3", [[0, 0]]]]
    assert unpacked(packed(ids)) == ids
