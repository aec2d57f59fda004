"""Who is asked whether it is to stop: whoever changed, and whoever's time is over."""

from __future__ import annotations

import random
from math import inf

import pytest

import effort
from cotenant.core.jobspec import parse_job
from cotenant.journal import Record
from cotenant.service.executor.ladder import why_stop
from cotenant.service.executor.stop_times import StopTimes
from cotenant.service.store.book import Book


def write(book: Book, now_s: float, kind: str, job: str, **data: object) -> None:
    book.apply(Record(book.seq + 1, now_s, kind, job, dict(data)))


def started(book: Book, job: str, now_s: float, limit_s: float) -> None:
    spec = parse_job({"run": "train", **({"max_runtime": limit_s} if limit_s else {})})
    write(book, now_s, "submit", job, spec=spec.as_dict(), tenant="t", user="u")
    write(book, now_s, "launch", job, gpus=[["n0", [0]]])
    write(book, now_s, "started", job, at_s=now_s)


def test_only_those_whose_time_is_over() -> None:
    book, times = Book(), StopTimes()
    for number, limit_s in enumerate((0.0, 10.0, 20.0), start=1):
        started(book, str(number), 0.0, limit_s)
    for job in times.due(book, 0.0):
        times.note(job.id, why_stop(job, 0.0)[1])
    assert times.due(book, 5.0) == []
    assert times.next_s() == pytest.approx(10.0, abs=0.01)
    assert [job.id for job in times.due(book, 10.1)] == ["2"]
    write(book, 11.0, "hold", "1")
    assert [job.id for job in times.due(book, 11.0)] == ["1"]
    times.begin_anew()
    assert [job.id for job in times.due(book, 11.0)] == ["1", "2", "3"]


@pytest.mark.parametrize("seed", effort.first(3, range(20)))
def test_as_if_everybody_were_asked(seed: int) -> None:
    chance, book, times, now_s = random.Random(seed), Book(), StopTimes(), 0.0
    for turn in range(200):
        now_s += chance.uniform(0.0, 3.0)
        if chance.random() < 0.5:
            started(book, str(turn + 1), now_s, chance.choice((0.0, 5.0, 50.0)))
        for job in list(book.on_gpus.values()):
            act = chance.random()
            if act < 0.02:
                write(book, now_s, "hold", job.id)
            elif act < 0.06:
                write(book, now_s, "exit", job.id, to="succeeded", why="it ended", at_s=now_s)
        if chance.random() < 0.02:
            write(book, now_s, "clock", "", boot="b", offset_s=0.0, by_s=-2.0)
        wanted = {job.id: why for job in book.on_gpus.values() if (why := why_stop(job, now_s)[0])}
        found = {}
        for job in times.due(book, now_s):
            why, due_s = why_stop(job, now_s)
            times.note(job.id, due_s)
            if why:
                found[job.id] = why
        assert found == wanted
        assert times.next_s() == min((why_stop(job, now_s)[1] for job in book.on_gpus.values()), default=inf)
        for name, why in found.items():
            write(book, now_s, "stop", name, why=why)
