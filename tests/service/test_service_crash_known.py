"""What `bench.crash` takes for forgotten: promises, measurements and terms that a restarted service does not know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from parts_kit import PartsRig

from cotenant.journal import Entry
from cotenant.service.planner.decision import Act

ROOT = Path(__file__).resolve().parents[2]
HERE = (("n0", (0,)),)


class Checker:
    """What services said, the journal that they wrote, and what is amiss with both."""

    def __init__(self, rig: PartsRig) -> None:
        from bench.crash_known import Words, knows

        self.rig, self.words, self.knows = rig, Words(), knows
        self.faults: list[str] = []

    def hear(self, **more: Any) -> None:
        self.words.hear({**self.knows(self.rig.book), **more}, self._tell)

    def found(self) -> list[str]:
        self.words.check(list(self.rig.core.store.journal.read()), self._tell)
        return self.faults

    def _tell(self, kind: str, note: str) -> None:
        assert kind == "forgotten"
        self.faults.append(note)


@pytest.fixture
def checker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checker:
    monkeypatch.syspath_prepend(str(ROOT))
    return Checker(PartsRig(tmp_path))


def test_what_is_journaled_is_known(checker: Checker) -> None:
    rig = checker.rig
    job, other = rig.submit(), rig.submit()
    rig.planner.promised, rig.planner.remembered = {job: HERE}, {"promoted": {other: 5.0}}
    rig.does()
    checker.hear()
    rig.restart()
    checker.hear()
    rig.does(Act("start", job, HERE))
    checker.hear()
    assert checker.found() == []


def test_what_is_in_no_record_is_forgotten(checker: Checker) -> None:
    job = checker.rig.submit()
    checker.rig.book.promises[job] = HERE
    checker.rig.book.memory["pairs"] = {"alone": [1]}
    checker.rig.book.costs.add_taken("ask", 1.0, 2.0)
    checker.hear()
    assert ["promises" in note or "memory" in note or "costs" in note for note in checker.found()] == [True] * 3


def test_a_promise_is_taken_back_for_others_only(checker: Checker) -> None:
    rig = checker.rig
    job, other = rig.submit(), rig.submit()
    rig.planner.promised = {job: HERE}
    rig.does()
    rig.backend.advance(1.0)  # what is written at one moment is one decision
    rig.planner.promised = {other: HERE}
    rig.does()
    assert checker.found() == []
    rig.backend.advance(1.0)
    rig.planner.promised = {}
    rig.does()
    (note,) = checker.found()
    assert f"{other} is not promised" in note


def test_a_promise_to_one_who_is_held_may_go(checker: Checker) -> None:
    rig = checker.rig
    job = rig.submit()
    rig.planner.promised = {job: HERE}
    rig.does()
    rig.core.store.write([Entry("hold", job)])
    rig.planner.promised = {}
    rig.does()
    assert checker.found() == []


def test_turns_are_taken_again_after_a_restart(checker: Checker) -> None:
    key = f"{checker.rig.start()}-1"
    before = {"looks": 1, "amiss": [], "stop": {key: ""}, "terms": {key: [[key, "other"], True, False]}}
    checker.hear(**before)
    checker.words.fell()
    checker.hear(**{**before, "looks": 2})
    assert checker.faults == []
    checker.words.fell()
    checker.hear(**{**before, "looks": 1, "terms": {}})
    assert len(checker.faults) == 1


@pytest.mark.parametrize(("stop", "faults"), [("preempt", 1), ("move", 1), ("turn", 0), ("hold", 0)])
def test_who_took_turns_is_not_sent_off_by_a_restart(checker: Checker, stop: str, faults: int) -> None:
    key = f"{checker.rig.start()}-1"
    before = {"looks": 1, "amiss": [], "stop": {key: ""}, "terms": {key: [[key, "other"], True, False]}}
    checker.hear(**before)
    checker.words.fell()
    checker.hear(**{**before, "looks": 2, "terms": {}, "stop": {key: stop}})
    assert len(checker.faults) == faults


def test_a_promise_to_one_who_leaves_counts_like_any_other(checker: Checker) -> None:
    rig = checker.rig
    job = rig.start()
    rig.planner.promised = {job: HERE}
    rig.does(Act("stop", job, why="move"))
    rig.backend.advance(1.0)
    rig.planner.promised = {}
    rig.does()
    assert len(checker.found()) == 1
