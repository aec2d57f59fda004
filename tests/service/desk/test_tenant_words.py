"""`why` names tenants, and jobs only to those who may see them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cotenant.core.jobspec import JobSpec
from cotenant.core.lifecycle import JobState
from cotenant.core.reasons import Cause, Reason, TenantFacts
from cotenant.core.tenants import Tree
from cotenant.service.desk.tenant_reasons import explained
from cotenant.service.facade import Caller, Role
from cotenant.service.store.book import Book
from cotenant.service.store.job import STOP, Attempt, LiveJob
from cotenant.service.store.tenants import BookTenants
from cotenant.service.store.view import BookView

ADMIN, ALICE = Caller("root", Role.ADMIN), Caller("alice", Role.USER, "vision")


def view_of(*jobs: LiveJob) -> BookView:
    book = Book()
    for job in jobs:
        book.enter(job)
        if job.attempts:
            book.on_gpus[job.id] = job
    book.promises, book.tenants = {"9": (("n0", (0, 1, 2, 3)),)}, BookTenants(Tree())
    return BookView(book, dict(book.jobs))


def said(
    facts: TenantFacts | None,
    lenders: Mapping[str, int],
    *jobs: LiveJob,
    caller: Caller = ADMIN,
    cause: Cause = Cause.OVER_QUOTA,
) -> tuple[str, str]:
    found = explained(
        Reason("9", 100.0, cause, "engine's words", 4, tenant=facts),
        view_of(*jobs),
        caller,
        100.0,
        30.0,
        lambda tenant: lenders,
    )
    return str(found.cause), found.text


@pytest.mark.parametrize(
    ("lenders", "words"),
    [
        ({"nlp": 4}, "4 borrowed from nlp until it asks"),
        ({"nlp": 3, "speech": 1}, "4 borrowed: 3 from nlp, 1 from speech until they ask"),
        ({"nlp": 3}, "4 borrowed: 3 from nlp until it asks"),
        ({}, "4 borrowed of what nobody is guaranteed"),
    ],
)
def test_over_quota_says_from_whom_it_has_borrowed(lenders: dict[str, int], words: str) -> None:
    facts = TenantFacts("vision", limit=12, used=12, guaranteed=8, need=4)
    text = f"vision holds 12 of 8 GPUs, {words}; it may hold 12 now, and the job needs 4"
    assert said(facts, lenders) == ("over quota", text)


def test_a_guarantee_that_is_taken_back_names_who_leaves_and_when() -> None:
    leaving = LiveJob("3", 1, JobSpec("x", gpus=2), "nlp", "bob", 0.0, JobState.STOPPING, stop_why="preempt")
    leaving.stop_asked_s, leaving.attempts = 90.0, [Attempt(1, (("n0", (0, 1)),), 0.0)]
    mine = LiveJob("9", 2, JobSpec("x", gpus=4), "vision", "alice", 0.0)
    words = "vision's guarantee is being taken back: 2 GPUs of"
    chosen = Cause.CAPACITY
    assert said(None, {}, leaving, mine, cause=chosen) == ("waiting for capacity", f"{words} job 3 in about 20 s")
    assert said(None, {}, leaving, mine, cause=chosen, caller=ALICE)[1] == f"{words} a job of nlp in about 20 s"
    leaving.rung, leaving.rung_s = STOP, 99.0
    assert said(None, {}, leaving, mine, cause=chosen)[1].endswith("in about 29 s")
    leaving.attempts = [Attempt(1, (("n1", (0, 1)),), 0.0)]
    assert said(None, {}, leaving, mine, cause=chosen)[1] == "engine's words", "he leaves other GPUs"
    soon = TenantFacts("vision", 8, 2, 8, 4, reclaiming=True, next_s=142.0)
    assert said(soon, {})[1].endswith("is asked to leave in about 42 s")


def test_a_reservation_names_for_whom_and_how_long() -> None:
    gang = LiveJob("5", 1, JobSpec("x", gpus=8), "nlp", "bob", -600.0)
    facts = TenantFacts("vision", limit=8, used=8, guaranteed=8, need=4, reserved_for="5")
    words = "held back by a reservation for job 5 that has waited 700 s"
    assert said(facts, {}, gang) == ("held back by a reservation", words)
    assert "for a job of nlp that" in said(facts, {}, gang, caller=ALICE)[1]


def test_other_reasons_keep_the_words_of_the_engine() -> None:
    fine = TenantFacts("vision", limit=12, used=4, guaranteed=8, need=4)
    assert said(fine, {}, cause=Cause.FRAGMENTED) == ("fragmented", "engine's words")
    due = TenantFacts("vision", limit=6, used=4, guaranteed=8, need=4)
    assert said(due, {})[1].startswith("vision holds 4 of 8 GPUs that it is guaranteed")
    over = TenantFacts("vision", limit=0, used=0, guaranteed=0, need=4)
    assert said(over, {}, cause=Cause.ARRAY) == (str(Cause.ARRAY), "engine's words")
