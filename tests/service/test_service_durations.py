"""Durations learned from the service's finished jobs: what is repeated is foretold, ordered right, and remembered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from service_kit import ADMIN, ONE, Rig

from cotenant.core.errors import InputError
from cotenant.service.facade import Caller

ANN, BOB = replace(ADMIN, name="ann"), replace(ADMIN, name="bob")


def past(rig: Rig, who: Caller, seconds: int, jobs: int = 5, **fields: object) -> None:
    """So many of a user's jobs, ended one after the other."""
    for at in range(jobs):
        rig.submit(f"sleep {seconds}", who, name=f"run{at}", **fields)
        rig.finish(step_s=60.0)


def believed_s(rig: Rig, job: str) -> float:
    """What the policy believes the job to last in all."""
    rig.service.tick()
    session = rig.service.planner.live  # type: ignore[attr-defined]
    beliefs, found = session.follower.beliefs, rig.service.store.book.jobs[job]
    return float(beliefs.duration(found, {}).least_s + beliefs.phases(found).start_s)


@pytest.mark.parametrize("estimator", ["", "shrunk", "rolling"])
def test_qssf_runs_the_job_first_whose_like_were_short(tmp_path: Path, estimator: str) -> None:
    """Nobody says `expected`; bob's come first in line, and the others of his took longer than ann's."""
    rig = Rig(tmp_path, "qssf", ONE, estimator=estimator)
    past(rig, ANN, 10)
    past(rig, BOB, 200)
    for _ in range(2):
        blocker = rig.submit("sleep 5", ANN)
        rig.ticks(1)
        long, short = rig.submit("sleep 200", BOB, name="again"), rig.submit("sleep 10", ANN, name="again")
        assert believed_s(rig, short) < 60 < 100 < believed_s(rig, long)
        rig.finish()
        jobs = {name: rig.service.desk.job(ADMIN, name) for name in (blocker, short, long)}
        assert jobs[blocker].started_s < jobs[short].started_s < jobs[long].started_s  # type: ignore[operator]
        rig.restart()


def test_of_a_new_program_the_users_other_jobs_tell(tmp_path: Path) -> None:
    """Kinds never seen before: before there was a learner all of them were believed to last an hour."""
    rig = Rig(tmp_path, "srtf", ONE)
    past(rig, ANN, 10)
    past(rig, BOB, 500)
    mine, his = rig.submit("true; sleep 10", ANN), rig.submit("true; sleep 10", BOB)
    assert believed_s(rig, mine) < believed_s(rig, his) < 1000


def test_waiting_jobs_are_judged_anew_when_one_like_them_ends(tmp_path: Path) -> None:
    """All submitted at once: when ann's first have ended, the rest of hers go before bob's, who came earlier."""
    rig = Rig(tmp_path, "qssf", ONE)
    past(rig, BOB, 300, jobs=4)
    for _ in range(3):
        rig.submit("sleep 5", ANN, priority=0)
    rig.ticks(1)
    his = rig.submit("sleep 300", BOB)
    mine = [rig.submit("sleep 5", ANN) for _ in range(3)]
    rig.finish()
    starts = [rig.service.desk.job(ADMIN, job).started_s or 0.0 for job in (*mine, his)]
    assert starts == sorted(starts)


def test_a_service_says_by_what_it_cannot_learn(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "qssf", ONE, estimator="oracle")
    with pytest.raises(InputError, match="needs a whole log; a service can learn by: constant, mean"):
        rig.service.tick()
