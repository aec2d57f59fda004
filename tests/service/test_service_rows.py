"""The engine's tables follow the book job by job; they must always say what tables written anew would."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from service_kit import ADMIN, EPOCH_S, Rig

from cotenant.backends.base import NodeInfo
from cotenant.core import columns as col
from cotenant.core.decision import Kind
from cotenant.engine.observe import pieces_of
from cotenant.journal import Entry
from cotenant.runtime.protocol import Progress
from cotenant.service.planner.session import Session

NODES = (NodeInfo("a", "gpu", 4, 8, 64.0), NodeInfo("b", "gpu", 4, 8, 64.0))
EXACT = (col.GPUS, col.TENANT, col.LEAVING)
KEPT = (col.SUBMIT, col.TIER, col.DEADLINE, col.CPUS, col.MEM, col.WEIGHT)


def anew(rig: Rig, policy: str) -> Session:
    """A session of which nothing was known before, brought up to now."""
    service, now_s = rig.service, rig.backend.now_s
    session = service.planner.session(policy, service.observer.nodes, now_s)
    with service.store.lock:
        shut = set(service.store.book.drained)
        session.begin_forecast(session.take_in(set(service.store.book.active), shut, now_s), now_s)
    return session


def seen(session: Session, now_s: float) -> dict[str, dict[str, Any]]:
    """What the tables say of each job, whatever its row is.

    Nobody writes down that a suspended job is promised the GPUs where it stands, or that one is about to stand. How a
    job makes room is believed anew when it comes to GPUs again.
    """
    state, found = session.tables.state, {}
    for name, row in session.follower.row_of.items():
        i, f = state.i[row], state.f[row]
        status, promised, slices = int(i[col.STATE]), int(i[col.PROMISED]), int(i[col.SLICE])
        if promised and i[col.HOME] >= 0:
            status, promised, slices = col.WAITING, 0, -1
        runs = status == col.PINNED or (status == col.RUNNING and not promised)
        found[name] = {
            "state": col.HELD if status == col.FUTURE else status, "promised": promised, "on": pieces_of(state, slices),
            "exact": i[list(EXACT)].tolist(), "kept": f[list(KEPT)].tolist(), "old": pieces_of(state, int(i[col.OLD])),
            "home": pieces_of(state, -1 if i[col.LEAVING] else int(i[col.HOME])),
            "rung": int(i[col.RUNG]) if runs else 0,
            "held_s": float(f[col.OCCUPIED]) + (now_s - f[col.SINCE] if runs else 0.0),
        }  # fmt: skip
    return found


def check(rig: Rig, policy: str) -> None:
    live, now_s = rig.service.planner.live, rig.backend.now_s
    assert live is not None
    one, two = seen(live, now_s), seen(anew(rig, policy), now_s)
    assert one.keys() == two.keys()
    for name, mine in one.items():
        held_s, kept = (mine.pop("held_s"), two[name].pop("held_s")), mine.pop("kept")
        job = rig.service.store.book.jobs[name]
        if job.state == "running" and len(job.attempts) == 1 and not job.last.suspensions:
            assert held_s[0] == pytest.approx(held_s[1], abs=1e-6), name
        np.testing.assert_array_equal(kept, two[name].pop("kept"), err_msg=name)
        assert mine == two[name], (name, mine, two[name])


def happens(rig: Rig, chance: random.Random) -> None:
    """Something that may change what a decision sees; then the service has looked."""
    service, what = rig.service, chance.randrange(10)
    jobs = sorted(service.store.book.active)
    job = chance.choice(jobs) if jobs else ""
    if what < 3:
        more = {"preemptible": False} if chance.random() < 0.2 else {"after": [job]} if job and what == 1 else {}
        length = chance.randint(1, 40)
        rig.submit(f"sleep {length}", gpus=chance.randint(1, 4), name=chance.choice("xy"), expected=length, **more)
    elif what == 3 and job:
        chance.choice((service.desk.cancel, service.desk.hold, service.desk.resume))(ADMIN, job)
    elif what == 4 and job:
        service.desk.set(ADMIN, job, {"priority": chance.randint(0, 2)})
    elif what == 5:
        service.admin.drain(ADMIN, chance.choice("ab"), undo=chance.random() < 0.7)
    elif what == 6 and service.store.book.on_gpus:
        said = Progress(chance.randint(0, 9), 10, 2.0, {}, chance.random() < 0.5)
        rig.says(chance.choice(sorted(service.store.book.on_gpus)), said)
    else:
        rig.backend.advance(chance.choice((0.3, 1.0, 7.0)))
    for _ in range(20):
        if service.tick() > 0 and not service.store.book.touched:  # nothing is left to be told
            return
    raise AssertionError("the service does not come to rest")


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["fifo", "srtf", "easy", "tiresias-l:threshold=20", "las"]))
def test_tables_kept_are_those_written_anew(seed: int, policy: str) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as home:
        rig = Rig(Path(home), policy, NODES)
        for _ in range(40):
            happens(rig, chance)
            check(rig, policy)


def believed(rig: Rig, job: str) -> tuple[float, float, float]:
    """What a decision at this moment would see of a job: its duration, what it has done and what it has attained."""
    rig.service.tick()
    session = anew(rig, "srtf")
    view = session.engine.view_of(np.array([session.follower.row_of[job]]), rig.backend.now_s)
    done_s, attained_s = (float(column[0]) for column in (view.progress_s, view.attained_s))
    return float(view.believed_s[0]), done_s, attained_s


def test_what_is_believed_of_a_job_grows_with_its_work(tmp_path: Path) -> None:
    """Longer than was said; twice as long as it has run where nobody said; as it says itself."""
    rig = Rig(tmp_path, "srtf", NODES)
    told, silent = rig.submit("sleep infinity", expected=50), rig.submit("sleep infinity")
    rig.ticks(1)
    began_s = rig.backend.now_s - 1
    assert believed(rig, told) == pytest.approx((50, 1, 1))
    rig.backend.advance(99)
    assert believed(rig, told) == pytest.approx((101, 100, 100))
    assert believed(rig, silent) == pytest.approx((3600, 100, 100))
    rig.backend.advance(3900)
    assert believed(rig, silent) == pytest.approx((8000, 4000, 4000))
    rig.says(told, Progress(500, 505, 20.0))
    assert believed(rig, told) == pytest.approx((4100, 4000, 4000))
    assert rig.backend.now_s - began_s == 4000


def test_a_job_without_changes_is_not_told_of_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "fifo", NODES)
    runs, waits = rig.submit("sleep 100", gpus=8), rig.submit("sleep 100", gpus=8)
    rig.ticks(2)
    live = rig.service.planner.live
    assert live is not None
    follower = live.follower
    assert follower.events({runs, waits}, set(), rig.backend.now_s) == []
    rig.service.desk.hold(ADMIN, waits)
    (event,) = follower.events({runs, waits}, set(), rig.backend.now_s)
    assert (event.kind, follower.job_at[event.at]) == (Kind.WITHDRAWN, waits)


def test_rows_of_jobs_that_have_ended_are_forgotten(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "fifo", NODES)
    for _ in range(3):
        rig.submit("sleep 1", array="0-9")
        rig.finish()
    live = rig.service.planner.live
    assert live is not None
    assert not live.follower.row_of
    assert not live.follower.job_at
    assert not live.follower.times.any()


@pytest.mark.parametrize("policy", ["fifo", "srtf"])
def test_shared_gpus_are_counted(tmp_path: Path, policy: str) -> None:
    rig = Rig(tmp_path, policy, NODES)
    rig.submit("sleep 5", gpus=4)
    rig.ticks(1)
    book = rig.service.store.book
    assert book.shared_gpus == 0
    guest = rig.submit("sleep 5", gpus=4)
    host = next(iter(book.on_gpus.values()))
    rig.service.store.write([Entry("launch", guest, {"gpus": host.last.gpus})])
    assert book.shared_gpus == 4
    assert type(book).thaw(book.freeze()).shared_gpus == 4
    rig.service.store.write([Entry("exit", guest, {"to": "pending", "why": "test"})])
    assert book.shared_gpus == 0
    assert rig.backend.now_s > EPOCH_S
