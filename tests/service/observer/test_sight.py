"""What is looked at: everything that is not settled, and nothing that is and has stayed as it was."""

from __future__ import annotations

import random

import pytest

import effort
from cotenant.backends.base import Observed
from cotenant.core.jobspec import parse_job
from cotenant.journal import Record
from cotenant.service.observer.sight import WHOLE_EVERY, Sight, is_settled, owner
from cotenant.service.store.book import Book

GPUS = (("n0", (0,)),)


class Diary:
    """A book, written record by record."""

    def __init__(self) -> None:
        self.book = Book()

    def write(self, kind: str, job: str, **data: object) -> None:
        self.book.apply(Record(self.book.seq + 1, float(self.book.seq), kind, job, dict(data)))

    def submit(self, job: str) -> None:
        self.write("submit", job, spec=parse_job({"run": "train"}).as_dict(), tenant="t", user="u")

    def run(self, job: str) -> str:
        self.write("launch", job, gpus=GPUS)
        return self.book.jobs[job].key


def settled(sight: Sight, book: Book, items: list[Observed]) -> None:
    owned = [(job, item) for item in items if (job := owner(book, item.key)) is not None]
    sight.settle(item.key for job, item in owned if is_settled(job, item))


def test_who_only_runs_on_is_passed_over() -> None:
    diary, sight = Diary(), Sight()
    for job in ("1", "2"):
        diary.submit(job)
        key = diary.run(job)
        diary.write("started", job, at_s=1.0)
    seen = [Observed("1-1", "running", True), Observed("2-1", "running", True)]
    first = sight.compare(seen, diary.book)
    assert [item.key for item in first.items] == ["1-1", "2-1"]
    settled(sight, diary.book, first.items)
    assert sight.compare(list(seen), diary.book).items == []
    diary.write("stop", "2", why="cancel")
    assert [item.key for item in sight.compare(seen, diary.book).items] == [key]
    ended = Observed("1-1", "exited", exit_code=0)
    assert [item.key for item in sight.compare([ended, seen[1]], diary.book).items] == ["1-1", "2-1"]


def test_a_launch_that_the_world_does_not_know_is_told_until_it_does() -> None:
    diary, sight = Diary(), Sight()
    diary.submit("1")
    sight.compare([], diary.book)
    key = diary.run("1")
    assert sight.compare([], diary.book).absent == {key}
    assert sight.compare([], diary.book).absent == {key}
    found = sight.compare([Observed(key, "starting", True)], diary.book)
    assert (found.absent, [item.key for item in found.items]) == (set(), [key])
    assert sight.compare([], diary.book).absent == {key}, "and so is one that is gone again"


def test_a_look_that_came_to_no_end_is_made_up_for() -> None:
    diary, sight = Diary(), Sight()
    diary.submit("1")
    key = diary.run("1")
    diary.write("started", "1", at_s=1.0)
    seen = [Observed(key, "running", True)]
    settled(sight, diary.book, sight.compare(seen, diary.book).items)
    sight.begin_anew()
    assert sight.compare(seen, diary.book).items == seen


@pytest.mark.parametrize("seed", effort.first(3, range(20)))
def test_nobody_is_forgotten(seed: int) -> None:
    """Whatever happens in book and world: who is not settled, or not there, is told at every look."""
    chance, diary, sight = random.Random(seed), Diary(), Sight()
    world: dict[str, Observed] = {}
    for turn in range(3 * WHOLE_EVERY):
        if chance.random() < 0.3:
            diary.submit(str(turn + 1))
        for job in list(diary.book.active.values()):
            act = chance.random()
            if job.state == "pending" and act < 0.3:
                key = diary.run(job.id)
                if chance.random() < 0.8:
                    world[key] = Observed(key, "starting", True)
            elif job.state == "starting" and act < 0.3 and job.key in world:
                world[job.key] = Observed(job.key, "running", True, started_s=1.0)
                if chance.random() < 0.5:
                    diary.write("started", job.id, at_s=1.0)
            elif job.attempts and act < 0.1:
                diary.write("exit", job.id, to=chance.choice(("pending", "failed")), why="it ended")
            elif job.attempts and act < 0.15:
                world.pop(job.key, None)
        for key in list(world):
            if owner(diary.book, key) is None and chance.random() < 0.3:
                del world[key]
        seen = [Observed(*_fields(world[key])) if chance.random() < 0.2 else world[key] for key in sorted(world)]
        found = sight.compare(seen, diary.book)
        told = {item.key for item in found.items}
        for key, item in world.items():
            job_of = owner(diary.book, key)
            assert key in told or (job_of is not None and is_settled(job_of, item))
        assert found.absent == {job.key for job in diary.book.alive()} - world.keys()
        settled(sight, diary.book, found.items)


def _fields(item: Observed) -> tuple[object, ...]:
    return tuple(getattr(item, name) for name in Observed.__slots__)
