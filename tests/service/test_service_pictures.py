"""Pictures of the whole: overview, places in the queue, bars, what stops have cost, and what would be."""

from __future__ import annotations

from pathlib import Path

import pytest
from service_kit import ADMIN, EPOCH_S, Rig

from cotenant.core.errors import InputError
from cotenant.core.jobspec import parse_job
from cotenant.service.facade import Caller, Role
from cotenant.service.options import Keep
from cotenant.service.pictures.gantt import RUN, START, SUSPENDED
from cotenant.service.pictures.trial import TrialAsked

DAY_S = 86400.0
ANN = Caller("ann", Role.USER, "a")


def test_the_overview_counts_what_the_caller_sees(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.submit("sleep 100", gpus=2, tenant="a")
    rig.submit("sleep 100", gpus=2, tenant="b")
    rig.submit("sleep 100", gpus=4, tenant="b")
    rig.submit("exit 1", gpus=1, tenant="a")
    rig.ticks(5)
    told = rig.service.pictures.overview(ADMIN)
    assert (told["gpus"], told["gpus_used"], told["gpus_by_tenant"]) == (4, 4, {"a": 2, "b": 2})
    assert (told["jobs"]["running"], told["waiting"], told["longest_wait_s"]) == (2, 2, 5.0)
    mine = rig.service.pictures.overview(ANN)
    assert (mine["gpus_by_tenant"], mine["jobs"]["running"]) == ({"": 2, "a": 2}, 1)
    rig.service.admin.drain(ADMIN, "n0")
    assert [(one["level"], one["nodes"]) for one in rig.service.pictures.overview(ADMIN)["alerts"]] == [
        ("info", ["n0"])
    ]


def test_places_are_those_of_the_policy(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "srtf")
    rig.submit("sleep 10", gpus=4, expected="10s", tenant="a")
    rig.ticks(2)
    long = rig.submit("sleep 900", gpus=4, expected="900s", tenant="a")
    short = rig.submit("sleep 50", gpus=4, expected="50s", tenant="b")
    rig.ticks(1)
    assert rig.service.pictures.queue(ADMIN)["waiting"] == {short: 1, long: 2}
    assert rig.service.pictures.queue(ANN)["waiting"] == {long: 2}, "others are counted, not named"


def test_bars_and_the_ledger_tell_of_a_preemption(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "srtf")
    long = rig.submit("sleep 100", gpus=4, expected="100s", tenant="a")
    rig.ticks(10)
    short = rig.submit("sleep 5", gpus=4, expected="5s", tenant="b")
    rig.finish()
    told = rig.service.pictures.gantt(ADMIN, 0.0)
    assert told["gpus"] == [["n0", index] for index in range(4)]
    names = [job["id"] for job in told["jobs"]]
    on_first = [(names[job], kind) for gpu, job, *_, kind in told["bars"] if gpu == 0]
    assert {job for job, kind in on_first if kind == RUN} == {long, short}
    assert {kind for _, kind in on_first} <= {RUN, START, SUSPENDED}
    for _, _, from_s, to_s, _ in told["bars"]:
        assert EPOCH_S <= from_s <= to_s
    rows = rig.service.pictures.ledger(ADMIN, 0.0)["rows"]
    assert [row["job"] for row in rows] == [long]
    assert rows[0]["kind"] == "stop"
    assert [one["job"] for one in rows[0]["gained"]] == [short]
    assert rows[0]["gained_gpu_s"] >= 4 * 5
    (mine,) = rig.service.pictures.ledger(ANN, 0.0)["rows"]
    assert mine["gained"][0]["job"] == "", "another tenant's job is not named"
    assert rig.service.pictures.ledger(ADMIN, 0.0, EPOCH_S)["rows"] == []
    assert rig.service.pictures.gantt(Caller("bob", Role.USER, "c"), 0.0)["bars"] == []


def test_forgotten_jobs_keep_their_bars_and_stops(tmp_path: Path) -> None:
    """A day after, two jobs are out of the book: pictures of that time are what they were."""
    rig = Rig(tmp_path, "srtf", keep=Keep(DAY_S))
    long = rig.submit("sleep 100", gpus=4, expected="100s", tenant="a")
    rig.ticks(10)
    rig.submit("sleep 5", gpus=4, expected="5s", tenant="b")
    rig.finish()
    board = rig.service.pictures
    before = board.gantt(ADMIN, 0.0), board.ledger(ADMIN, 0.0)
    assert before[1]["rows"][0]["job"] == long
    rig.backend.advance(2 * DAY_S)
    rig.submit("sleep 1", gpus=1)
    rig.finish()
    assert long not in [job.id for job in rig.service.desk.jobs(ADMIN)]
    for _ in range(2):
        board = rig.service.pictures
        told = board.gantt(ADMIN, 0.0, EPOCH_S + 1000)
        assert (told["bars"], told["jobs"]) == (before[0]["bars"], before[0]["jobs"])
        assert board.ledger(ADMIN, 0.0)["rows"] == before[1]["rows"]
        assert board.gantt(ADMIN, EPOCH_S + DAY_S)["jobs"][0]["id"] == "3"
        assert board.gantt(Caller("bob", Role.USER, "c"), 0.0, EPOCH_S + 1000)["bars"] == []
        rig.restart()


def test_a_trial_says_what_would_be_and_changes_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.submit("sleep 100", gpus=4, expected="100s")
    second = rig.submit("sleep 50", gpus=4, expected="50s")
    rig.ticks(1)
    seq, ask = rig.service.store.book.seq, rig.service.pictures.trial
    new = parse_job({"run": "x", "gpus": 4, "expected": "10s", "deadline": "30m"})
    told = ask(ADMIN, TrialAsked(jobs=(new,)))
    assert told["columns"] == ["fifo", "fifo with changes"]
    rows = {row["id"]: row for row in told["jobs"]}
    assert rows["new-1"]["ends"]["fifo"] is None
    end = rows["new-1"]["ends"]["fifo with changes"]
    assert end["expected_start_s"] == pytest.approx(EPOCH_S + 150, abs=5)
    assert end["expected_end_s"] == pytest.approx(EPOCH_S + 160, abs=5)
    assert [one["verdict"] for one in told["deadlines"]["new-1"]] == ["expected to be met"]
    more = ask(ADMIN, TrialAsked(nodes=1))
    ends = next(row for row in more["jobs"] if row["id"] == second)["ends"]
    assert ends["fifo"]["expected_start_s"] == pytest.approx(EPOCH_S + 100, abs=5)
    assert ends["fifo with changes"]["expected_start_s"] == pytest.approx(EPOCH_S + 1, abs=5)
    less = ask(ADMIN, TrialAsked(policies=("srtf",), tenants={"default": {"ceiling": 4}}))
    assert less["columns"] == ["fifo", "srtf with changes"]
    for wrong in (TrialAsked(jobs=(parse_job({"run": "x", "gpus": 99}),)), TrialAsked(nodes=1, like="nobody")):
        with pytest.raises(InputError):
            ask(ADMIN, wrong)
    assert rig.service.store.book.seq == seq
    assert set(rig.service.store.book.jobs) == {"1", "2"}
    rig.finish()


def test_a_policy_that_promises_says_so_before_the_submission(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "chronus")
    rig.submit("sleep 100", gpus=4, expected="100s")
    rig.ticks(1)
    new = parse_job({"run": "x", "gpus": 1, "expected": "30s", "deadline": "2h"})
    late = parse_job({"run": "x", "gpus": 1, "expected": "2h", "deadline": "1h"})
    told = rig.service.pictures.trial(ADMIN, TrialAsked(jobs=(new, late)))
    answers = {job: some[0] for job, some in told["deadlines"].items()}
    assert (answers["new-1"]["verdict"], answers["new-1"]["promised"]) == ("promised", True)
    assert answers["new-2"]["verdict"] != "promised"
