"""Rows are kept up to date job by job; they must always say what rows written anew would."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import numpy as np
import pytest
from cotenant.service.planner.rows import Columns, Row, Rows
from hypothesis import given, settings
from hypothesis import strategies as st
from service_kit import ADMIN, EPOCH_S, Rig

from cotenant.backends.base import NodeInfo
from cotenant.core.jobspec import parse_job
from cotenant.core.lifecycle import WAITING
from cotenant.journal import Entry
from cotenant.runtime.protocol import Hello, Progress
from cotenant.service.observer.outcomes import belief, clock
from cotenant.service.observer.reports import Report
from cotenant.service.planner import rows as at
from cotenant.service.store.job import Attempt, LiveJob

NODES = (NodeInfo("a", "gpu", 4, 8, 64.0), NodeInfo("b", "gpu", 4, 8, 64.0))


def one_job(now_s: float, job: LiveJob, report: Report | None, pace: float) -> tuple[float, float, float]:
    """What a decision at that moment would see of a job: believed, done, attained."""
    rows = Rows()
    values = (0.0,) * (at.MOST + 1)
    parts = clock(job, lambda attempt: pace), belief(job, report, lambda attempt: pace)
    rows.put(0, Row(job.id, "t", 1, values, clock=parts[0], belief=parts[1]))
    found = rows.columns(now_s, [])
    return found.of(at.BELIEVED)[0], found.of(at.DONE)[0], found.of(at.ATTAINED)[0]


def a_job(expected_s: float, *attempts: Attempt) -> LiveJob:
    spec = parse_job({"run": "x", **({"expected": expected_s} if expected_s else {})})
    return LiveJob("1", 1, spec, "t", "u", 0.0, attempts=[*attempts])


GPUS = (("a", (0,)),)


def test_work_goes_on_without_the_row_being_written_again() -> None:
    ended = Attempt(1, GPUS, 0.0, 0.0, 40.0, ran_s=40.0, lost_s=10.0)
    runs = Attempt(2, GPUS, 90.0, 100.0, since_s=100.0)
    assert one_job(100.0, a_job(500, ended), None, 2.0) == (500, 60, 40)
    assert one_job(100.0, a_job(500, ended, runs), None, 2.0) == (500, 60, 40)
    assert one_job(150.0, a_job(500, ended, runs), None, 2.0) == (500, 160, 90)
    assert one_job(400.0, a_job(500, ended, runs), None, 2.0) == (661, 660, 340), "longer than was said"
    assert one_job(99.0, a_job(500, ended, runs), None, 2.0) == (500, 60, 40), "a clock that was set back"
    assert one_job(150.0, a_job(0, ended, runs), None, 1.0) == (3600, 80, 90)
    assert one_job(4100.0, a_job(0, runs), None, 1.0) == (8000, 4000, 4000), "nobody knows: as long again"
    half = Report(step=5, total=10, step_time_s=20.0)
    assert one_job(150.0, a_job(500, runs), half, 2.0) == (300, 100, 50)


def seen(rig: Rig) -> Columns | None:
    tables = rig.service._tables()
    return tables.jobs if tables is not None else None


def anew(rig: Rig) -> Columns | None:
    """The same from rows of which nothing was known before."""
    service = rig.service
    kept = service._rows, service._offered
    service._rows, service._offered = Rows(), (set(), False)
    service.store.book.touched.update(service.store.book.active)
    found = seen(rig)
    service._rows, service._offered = kept
    return found


def check(rig: Rig) -> None:
    one, two = seen(rig), anew(rig)
    assert (one is None) == (two is None)
    if one is None or two is None:
        return
    assert one.ids.tolist() == two.ids.tolist()
    assert one.gpus.tolist() == two.gpus.tolist()
    assert one.running.tolist() == two.running.tolist()
    waits = np.array([rig.service.store.book.jobs[job].state in WAITING for job in one.ids])
    for column in range(at.ATTAINED + 1):
        mine, other = one.of(column), two.of(column)
        if column == at.COST:  # of jobs that wait it is as it was when they stopped
            mine, other = mine[~waits], other[~waits]
        np.testing.assert_array_equal(mine, other, err_msg=str(column))


def happens(rig: Rig, chance: random.Random) -> None:
    """Something that may change what a decision sees."""
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
        speaks = service.store.book.on_gpus[chance.choice(sorted(service.store.book.on_gpus))]
        said = Progress(chance.randint(0, 9), 10, 2.0, {}, chance.random() < 0.5)
        service.reports.hear(Hello("", speaks.id, len(speaks.attempts), 1), said)
    else:
        rig.backend.advance(chance.choice((0.3, 1.0, 7.0)))
        service.tick()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["fifo", "srtf", "tiresias-l:threshold=20"]))
def test_rows_kept_are_those_written_anew(seed: int, policy: str) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as home:
        rig = Rig(Path(home), policy, NODES)
        for _ in range(40):
            happens(rig, chance)
            check(rig)


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
