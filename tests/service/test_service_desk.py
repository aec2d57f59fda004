from __future__ import annotations

import threading
from pathlib import Path

import pytest
from service_kit import ADMIN, EPOCH_S, Rig

from cotenant.backends.fake import FakeBackend
from cotenant.core.errors import CotenantError, InputError
from cotenant.core.jobspec import parse_job
from cotenant.core.lifecycle import JobState
from cotenant.journal import open_journal
from cotenant.runtime.protocol import Progress, Restored
from cotenant.service.core import CoreService
from cotenant.service.facade import Caller, Conflict, NotFound, Role, TooMany, Unavailable, WhatIfWatch
from cotenant.service.options import Keep
from cotenant.service.store.book import Book

ANN, BOB = Caller("ann", Role.USER, "red"), Caller("bob", Role.USER, "blue")
WATCHER = Caller("eve", Role.VIEWER, "red")


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_tenants_see_and_touch_only_their_own(rig: Rig) -> None:
    mine, theirs = rig.submit(caller=ANN), rig.submit(caller=BOB)
    rig.ticks(1)
    assert [job.id for job in rig.service.desk.jobs(ANN)] == [mine]
    assert [job.id for job in rig.service.desk.jobs(ADMIN)] == [mine, theirs]
    desk = rig.service.desk
    for act in (desk.job, desk.why, desk.cancel, desk.hold, desk.resume, desk.open_log):
        with pytest.raises(NotFound):
            act(ANN, theirs)
    with pytest.raises(NotFound):
        desk.set(ANN, theirs, {"priority": -1})
    with pytest.raises(NotFound):
        desk.events(ANN, theirs)
    assert {event.job for event in desk.events(ANN)} == {mine}
    assert [row["id"] for row in desk.whatif(ANN, ["srtf"])["jobs"]] == [mine]
    with pytest.raises(InputError, match="no such job"):
        rig.submit(caller=ANN, after=[theirs])
    with pytest.raises(InputError, match="tenant"):
        rig.submit(caller=ANN, tenant="blue")
    rig.finish()
    assert [job.id for job in desk.history(BOB)] == [theirs]


def test_roles(rig: Rig) -> None:
    job = rig.submit(caller=ANN)
    assert rig.service.desk.job(WATCHER, job).id == job
    for act in (rig.service.desk.cancel, rig.service.desk.hold, rig.service.desk.resume):
        with pytest.raises(CotenantError, match="role"):
            act(WATCHER, job)
    with pytest.raises(CotenantError, match="role"):
        rig.submit(caller=WATCHER)
    for act in (lambda: rig.service.admin.drain(ANN, "n0"), lambda: rig.service.admin.set_policy(ANN, "srtf")):
        with pytest.raises(CotenantError, match="role"):
            act()
    with pytest.raises(NotFound):
        rig.service.admin.drain(ADMIN, "n9")


def test_tokens_are_kept_as_digests_and_revoked_at_once(rig: Rig) -> None:
    info, secret = rig.service.admin.create_token(ADMIN, "ann", Role.USER, "red")
    assert rig.service.admin.authenticate(secret) == ANN
    assert rig.service.admin.authenticate(secret + "x") is None
    assert not any(secret in row[4] for row in rig.store.rows)
    assert all("digest" not in str(event.data) for event in rig.service.desk.events(ADMIN))
    rig.service.store.snapshot()
    assert rig.store.snapshot is not None
    assert secret.encode() not in rig.store.snapshot[1]
    assert rig.restart().admin.authenticate(secret) == ANN
    rig.service.admin.revoke_token(ADMIN, info.id)
    assert rig.service.admin.authenticate(secret) is None
    assert [token.revoked for token in rig.service.admin.tokens(ADMIN)] == [True]
    assert rig.restart().admin.authenticate(secret) is None
    with pytest.raises(NotFound):
        rig.service.admin.revoke_token(ADMIN, "nothing")
    with pytest.raises(InputError, match="tenant"):
        rig.service.admin.create_token(ADMIN, "x", Role.USER, "")


def test_secrets_of_the_environment_are_not_shown(rig: Rig) -> None:
    job = rig.submit("sleep 1", env={"API_KEY": "hunter2"})
    rig.finish()
    desk = rig.service.desk
    shown = [desk.job(ADMIN, job).as_dict(), desk.events(ADMIN), desk.events(ADMIN, job)]
    shown += [desk.why(ADMIN, job), [info.as_dict() for info in desk.history(ADMIN)]]
    assert "hunter2" not in str(shown)
    assert "API_KEY" in str(shown)


def _same(one: Book, other: Book) -> bool:
    return one.freeze() == other.freeze() and all(
        getattr(one, name).keys() == getattr(other, name).keys()
        for name in ("jobs", "active", "on_gpus", "chained", "held", "arrays")
    )


@pytest.mark.parametrize("snapshot", [False, True])
def test_replay_gives_an_equal_book(tmp_path: Path, snapshot: bool) -> None:
    rig = Rig(tmp_path, "srtf")
    rig.submit("sleep 50", gpus=4, expected=50, name="first")
    rig.ticks(2)
    rig.submit("sleep 2", gpus=2, expected=2, env={"A": "b"}, checkpoint={"interval": "1m"})
    rig.submit("exit 1", retries=1, after=["first"])
    rig.submit("sleep 3", array="0-3")
    held = rig.submit()
    rig.service.desk.hold(ADMIN, held)
    rig.service.desk.set(ADMIN, held, {"priority": 7, "deadline": "1h"})
    rig.service.admin.create_token(ADMIN, "ann", Role.USER, "red")
    rig.service.admin.drain(ADMIN, "n0")
    rig.service.admin.drain(ADMIN, "n0", undo=True)
    rig.ticks(6)
    if snapshot:
        rig.service.store.snapshot()
    rig.ticks(4)
    before = rig.service.store.book
    states = {job.id: job.state for job in before.jobs.values()}
    again = rig.restart().store.book
    assert _same(before, again)
    assert {job.id: job.state for job in again.jobs.values()} == states
    assert again.jobs[held].spec.priority == 7
    assert _same(Book.thaw(again.freeze()), again)


def test_snapshots_are_taken_by_themselves(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant.service.store.store.SNAPSHOT_EVERY", 10)
    rig.submit("sleep 1", array="0-9")
    rig.finish()
    assert rig.store.snapshot is not None
    assert {job.state for job in rig.restart().store.book.jobs.values()} == {"succeeded"}


def test_old_jobs_are_forgotten_and_their_logs_deleted(tmp_path: Path) -> None:
    rig = Rig(tmp_path, keep=Keep(86400.0, checkpoints_s=86400.0))
    old, array = rig.submit("echo text; sleep 1"), rig.submit("echo text; sleep 1", array="0-1")
    rig.finish()
    assert {f"{old}-1", f"{array}.0-1"} <= rig.backend.world.kept.keys()
    assert old in rig.backend.world.checkpoints
    rig.backend.advance(80000)
    kept, running = rig.submit("sleep 1"), rig.submit("sleep infinity")
    rig.ticks(3)
    rig.backend.advance(10000)
    rig.service.tick()
    assert [job.id for job in rig.service.desk.jobs(ADMIN)] == [kept, running]
    assert not rig.backend.world.kept
    assert rig.backend.world.checkpoints == {kept, running}
    assert not any(row[3] == old for row in rig.store.rows)
    assert any(row[3] == running for row in rig.store.rows)
    with pytest.raises(NotFound):
        rig.service.desk.job(ADMIN, old)
    assert [job.id for job in rig.restart().desk.jobs(ADMIN)] == [kept, running]
    assert rig.service.store.book.arrays == {}
    assert rig.service.retention.retire() == 0
    assert int(rig.submit()) > int(running)


def test_a_full_disk_refuses_submissions_and_loses_nothing(rig: Rig) -> None:
    job = rig.submit("sleep 2")
    rig.ticks(1)
    rig.store.room = 0
    with pytest.raises(Unavailable):
        rig.submit()
    rig.backend.advance(5)
    with pytest.raises(Unavailable):
        rig.service.tick()
    rig.store.room = None
    rig.finish()
    assert [(info.id, str(info.state)) for info in rig.service.desk.jobs(ADMIN)] == [(job, "succeeded")]


def test_why_in_every_state(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "srtf")
    runs = rig.submit("trap '' TERM; sleep 100", gpus=3, expected=100)
    assert rig.service.desk.why(ADMIN, runs)["text"] == "the next decision comes at once"
    rig.service.tick()
    assert rig.service.desk.why(ADMIN, runs)["cause"] == "starting"
    rig.ticks(1)
    assert rig.service.desk.why(ADMIN, runs)["cause"] == "running"
    waits = [rig.submit("sleep 200", gpus=2, expected=200 + k) for k in range(3)]
    chained, held = rig.submit(after=[runs]), rig.submit()
    rig.service.desk.hold(ADMIN, held)
    rig.ticks(1)
    why = rig.service.desk.why(ADMIN, waits[2])
    assert (why["cause"], why["position"], why["waiting"]) == ("waiting for capacity", 3, 3)
    assert why["ahead"] == (waits[0], waits[1])
    assert "needs 2 GPUs" in why["text"]
    assert rig.service.desk.why(ADMIN, chained)["text"] == f"after job {runs}"
    assert rig.service.desk.why(ADMIN, held)["cause"] == "held"
    rig.service.desk.cancel(ADMIN, runs)
    assert rig.service.desk.why(ADMIN, runs)["cause"] == "stopping"
    rig.service.desk.cancel(ADMIN, waits[0])
    rig.ticks(2)
    assert rig.service.desk.why(ADMIN, waits[0])["cause"] == "cancelled"
    assert rig.service.desk.why(ADMIN, waits[2])["waiting"] <= 3
    for job in (*waits[1:], held):
        rig.service.desk.cancel(ADMIN, job)
    rig.finish()
    assert rig.service.desk.why(ADMIN, chained)["cause"] == "cancelled"
    assert runs in rig.service.desk.why(ADMIN, chained)["text"]


def test_why_keeps_up_with_what_happens(rig: Rig) -> None:
    rig.submit("sleep 100", gpus=4)
    rig.ticks(1)
    one, two = rig.submit(gpus=4), rig.submit(gpus=4)
    rig.service.tick()
    assert rig.service.desk.why(ADMIN, two)["position"] == 2
    rig.service.desk.cancel(ADMIN, one)
    assert rig.service.desk.why(ADMIN, one)["cause"] == "cancelled", "a job's own state is never old"
    rig.service.tick()
    assert rig.service.desk.why(ADMIN, two)["position"] == 1
    rig.service.admin.set_policy(ADMIN, "srtf:weigh=false")
    three = rig.submit(gpus=4, expected=1)
    rig.service.tick()
    assert "has its GPUs as soon as others have given them back" in rig.service.desk.why(ADMIN, three)["text"]


def test_whatif_foretells_the_order_of_each_policy(rig: Rig) -> None:
    rig.submit("sleep 10", gpus=4, expected=10)
    rig.ticks(1)
    long, short = rig.submit("sleep 100", gpus=4, expected=100), rig.submit("sleep 5", gpus=4, expected=5)
    answer = rig.service.desk.whatif(ADMIN, ["srtf"])
    rows = {row["id"]: row for row in answer["jobs"]}
    assert answer["policies"] == ["fifo", "srtf"]
    assert rows[long]["fifo"] < rows[short]["fifo"]
    assert rows[short]["srtf"] < rows[long]["srtf"]
    assert rows[long]["fifo"] == pytest.approx(EPOCH_S + 10 + 100, abs=2)
    rig.finish()
    assert rig.service.desk.job(ADMIN, long).ended_s == pytest.approx(rows[long]["fifo"], abs=3)
    assert rig.service.desk.whatif(ADMIN, [])["jobs"] == []


def test_a_what_if_ends_when_time_is_up_and_says_so(rig: Rig) -> None:
    for _ in range(3):
        rig.submit("sleep 10", gpus=4, expected=10)
    answer = rig.service.desk.whatif(ADMIN, ["gavel"], WhatIfWatch(budget_s=0.0))
    assert answer["partial"] == ["gavel"]  # fifo was through before anybody looked at the clock
    assert [row["gavel"] is None for row in answer["jobs"]][-1]
    assert rig.service.desk.whatif(ADMIN, ["gavel"])["partial"] == []


def test_decisions_go_on_during_a_what_if(rig: Rig) -> None:
    class Interrupted(WhatIfWatch):
        """Has the scheduler look while a forecast is under way."""

        decisions = 0.0

        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "done" and not self.decisions:
                type(self).decisions = 1.0
                before = rig.service.counters["decisions"]
                scheduler = threading.Thread(target=rig.service.tick, daemon=True)
                scheduler.start()
                scheduler.join(60)
                type(self).decisions += rig.service.counters["decisions"] - before

    job = rig.submit("sleep 10", expected=10)
    rig.service.desk.whatif(ADMIN, ["srtf"], Interrupted())
    assert Interrupted.decisions == 2.0
    assert rig.service.desk.job(ADMIN, job).state == JobState.STARTING


def test_metrics(rig: Rig) -> None:
    rig.submit("sleep 5", gpus=3)
    rig.submit("sleep 5", gpus=2)
    rig.submit("exit 1")
    rig.ticks(2)
    numbers = rig.service.admin.metrics()
    assert numbers["cotenant_gpus"] == 4
    assert numbers["cotenant_gpus_used"] == 3
    assert numbers["cotenant_queue_length"] >= 1
    assert numbers['cotenant_jobs{state="running"}'] == 1
    assert numbers["cotenant_decisions_total"] >= 1
    rig.finish()
    assert rig.service.admin.metrics()['cotenant_jobs{state="failed"}'] == 1


def test_what_preemption_cost_is_recorded_and_believed(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "srtf", max_suspended=0)
    assert rig.service.store.book.preemption_cost_s(10.0) == 10.0
    job = rig.submit("trap '' TERM; sleep 100", gpus=4, expected=100)
    rig.ticks(3)
    rig.submit("sleep 1", gpus=4, expected=1)
    rig.ticks(20)
    first = rig.service.store.book.jobs[job].attempts[0]
    assert 10 < first.stop_s < 13
    assert first.lost_s > first.stop_s
    assert rig.service.store.book.preemption_cost_s(10.0) == pytest.approx(first.stop_s + first.lost_s)
    rig.says(job, Restored(3, "", 3.0))
    rig.says(job, Progress(4, 10, 2.0, saves=True))
    assert rig.service.desk.job(ADMIN, job).expected_end_s == pytest.approx(rig.backend.now_s + 12)
    rig.service.desk.hold(ADMIN, job)
    rig.ticks(20)
    assert rig.service.store.book.jobs[job].attempts[1].restore_s == 3.0
    again = rig.restart().store.book
    cost = again.costs.of("stop")
    assert (cost.taken, cost.resumed, cost.resume_s) == (2, 1, 3.0)
    assert cost.free_s == pytest.approx(sum(attempt.stop_s for attempt in again.jobs[job].attempts))


def test_concurrent_submissions_share_commits_and_keep_their_order(tmp_path: Path) -> None:
    journal = open_journal(str(tmp_path / "journal.db"))
    service = CoreService(journal, FakeBackend(), home=tmp_path)
    service.reconcile()
    spec, given = parse_job({"run": "true"}), []
    threads = [
        threading.Thread(target=lambda: given.extend(service.desk.submit(ADMIN, [spec, spec]))) for _ in range(16)
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = [job for (job,) in given]
    assert len(set(ids)) == 32 == len(service.store.book.jobs)
    assert service.store.book.seq == journal.last_seq
    before = service.store.book.freeze()
    journal.close()
    again = CoreService(open_journal(str(tmp_path / "journal.db")), FakeBackend(), home=tmp_path)
    assert again.store.book.freeze() == before
    again.store.journal.close()


def test_waiting_for_events_and_backup(tmp_path: Path) -> None:
    journal = open_journal(str(tmp_path / "journal.db"))
    service = CoreService(journal, FakeBackend(), home=tmp_path)
    seq = service.store.book.seq
    assert service.desk.wait_events(seq, 0.0) == seq
    service.desk.submit(ADMIN, [parse_job({"run": "true"})])
    assert service.desk.wait_events(seq, 20.0) > seq
    service.admin.backup(ADMIN, "one.db")
    with pytest.raises(CotenantError):
        service.admin.backup(ADMIN, "../two.db")
    with pytest.raises(CotenantError):
        service.admin.backup(ADMIN, "one.db")
    journal.close()
    copy = CoreService(open_journal(str(tmp_path / "backups" / "one.db")), FakeBackend(), home=tmp_path / "x")
    assert len(copy.store.book.jobs) == 1
    copy.store.journal.close()


def test_tokens_end_reach_less_far_and_are_seen_to_be_used(rig: Rig) -> None:
    admin = rig.service.admin
    info, secret = admin.create_token(ADMIN, "ann", Role.USER, "red", scopes=("read", "submit"), lasts_s=3600.0)
    caller = admin.authenticate(secret)
    assert caller is not None
    assert (caller.scopes, caller.token, info.expires_s) == (("read", "submit"), info.id, rig.backend.now_s + 3600.0)
    rig.service.tick()
    again = rig.restart().admin
    [shown] = [item for item in again.tokens(ADMIN) if item.id == info.id]
    assert (shown.used_s, shown.scopes) == (rig.backend.now_s, ("read", "submit"))
    before = rig.service.store.book.seq
    again.authenticate(secret)
    rig.service.tick()
    assert rig.service.store.book.seq == before  # the journal hears of it once an hour
    rig.backend.advance(3601.0)
    assert again.authenticate(secret) is None
    with pytest.raises(InputError, match="scope admin needs the role admin"):
        again.create_token(ADMIN, "x", Role.VIEWER, "", scopes=("admin",))


def test_the_last_token_of_an_admin_is_revoked_by_force_only(rig: Rig) -> None:
    admin = rig.service.admin
    first, _ = admin.create_token(ADMIN, "a", Role.ADMIN, "")
    second, _ = admin.create_token(ADMIN, "b", Role.ADMIN, "")
    admin.revoke_token(ADMIN, first.id)
    with pytest.raises(Conflict, match="last of an admin"):
        admin.revoke_token(ADMIN, second.id)
    admin.revoke_token(ADMIN, second.id, force=True)


def test_one_callers_queue_is_bounded(tmp_path: Path) -> None:
    rig = Rig(tmp_path, most_unfinished=3)
    first = rig.submit(caller=ANN, array="0-1")
    with pytest.raises(TooMany, match="you have 2 unfinished jobs, and 3 is the most"):
        rig.submit(caller=ANN, array="0-1")
    rig.submit(caller=BOB, array="0-1")
    rig.service.desk.cancel(ANN, f"{first}.0")
    rig.submit(caller=ANN, array="0-1")
