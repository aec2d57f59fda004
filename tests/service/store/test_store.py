"""The store by itself: what is written is what is replayed, and readers get pictures that do not change."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cotenant.core.jobspec import JobSpec, parse_job
from cotenant.journal import Entry, open_journal
from cotenant.journal.memory import MemoryJournal, MemoryStore
from cotenant.service.facade import Unavailable
from cotenant.service.store import store as module
from cotenant.service.store.book import Book
from cotenant.service.store.job import LiveJob, frozen
from cotenant.service.store.store import Store

GPUS = [["n0", [0, 1]]]


@dataclass
class World:
    """A disk, a clock, and the store over both."""

    disk: MemoryStore = field(default_factory=MemoryStore)
    now_s: float = 100.0
    points: list[str] = field(default_factory=list)

    def open(self, journal: MemoryJournal | None = None) -> Store:
        journal = journal or MemoryJournal(self.disk, clock=lambda: self.now_s)
        return Store(journal, lambda: self.now_s, self.points.append)


def submit(job: str, **fields: Any) -> Entry:
    spec = parse_job({"run": "true", **fields})
    return Entry("submit", job, {"spec": spec.as_dict(), "tenant": "red", "user": "ann"})


def launch(job: str) -> Entry:
    return Entry("launch", job, {"gpus": GPUS})


def exit_(job: str, to: str = "succeeded", **more: Any) -> Entry:
    return Entry("exit", job, {"to": to, "why": "exit code 0", **more})


LIFE: list[list[Entry]] = [
    [submit("1", gpus=2, name="first", env={"A": "b"}), submit("2.0"), submit("2.5", after=["1"]), submit("3")],
    [Entry("once", data={"name": "k", "asked": "x", "ids": [["1", []]]})],
    [Entry("promise", "3", {"gpus": GPUS}), Entry("memory", data={"key": "pairs", "value": {"a": (1, 2)}})],
    [launch("1"), Entry("started", "1", {"at_s": 99.0})],
    [Entry("stop", "1", {"why": "preempt"}), Entry("rung", "1", {"rung": "suspend"})],
    [Entry("suspended", "1", {"unsaved_s": 3.0, "seconds": 0.5}), Entry("promise", "1", {"gpus": GPUS})],
    [Entry("set", "3", {"priority": 7}), Entry("hold", "2.0"), Entry("resume", "2.0")],
    [Entry("resize", "3", {"gpus": 2})],
    [Entry("continue", "1"), Entry("continued", "1", {"seconds": 0.1})],
    [exit_("1", "pending", failure=True, stop_s=1.0, rung="ask")],
    [launch("1"), exit_("1", restore_s=2.0), launch("3")],
    [Entry("policy", data={"policy": "srtf"}), Entry("drain", data={"node": "n0", "undo": False})],
    [Entry("token", data={"id": "t", "name": "x", "role": "admin", "tenant": "", "digest": "d"})],
    [Entry("revoke", data={"id": "t"}), Entry("reject", "2.0", {"why": "no"}), Entry("unheard", "3", {"of": 1})],
    [Entry("memory", "3", {"key": "speed/3", "value": 1.5}), Entry("forget", data={"jobs": ["2.0"]})],
]


def live(store: Store, world: World, life: Sequence[Sequence[Entry]] = LIFE) -> None:
    for entries in life:
        world.now_s += 1.5
        store.write(entries)


def same(one: Book, other: Book) -> bool:
    indexes = ("jobs", "active", "on_gpus", "suspended", "chained", "held", "arrays")
    return (
        one.freeze() == other.freeze()
        and (one.promises, one.memory, one.shared_gpus) == (other.promises, other.memory, other.shared_gpus)
        and all(getattr(one, name).keys() == getattr(other, name).keys() for name in indexes)
    )


@pytest.mark.parametrize("snapshot_at", [-1, 0, 5, 9, len(LIFE)])
def test_replay_equals_live(snapshot_at: int) -> None:
    world = World()
    store = world.open()
    live(store, world, LIFE[: max(snapshot_at, 0)])
    if snapshot_at >= 0:
        store.snapshot()
    live(store, world, LIFE[max(snapshot_at, 0) :])
    store.journal.close()
    again = world.open()
    assert same(store.book, again.book)
    assert same(Book.thaw(again.book.freeze()), again.book)
    assert again.book.jobs["3"].spec == JobSpec("true", gpus=2, priority=7)
    assert again.book.memory == {"pairs": {"a": [1, 2]}, "speed/3": 1.5}


def test_a_promise_ends_when_it_is_kept_taken_back_or_no_longer_needed() -> None:
    world = World()
    store = world.open()
    book = store.book
    store.write([submit(name) for name in "1234"])
    store.write([Entry("promise", name, {"gpus": GPUS}) for name in "1234"])
    assert book.promises == dict.fromkeys("1234", (("n0", (0, 1)),))
    store.write([launch("1"), Entry("promise", "2", {"gpus": None}), Entry("stop", "3", {"why": "cancel"})])
    assert book.promises.keys() == {"4"}
    store.write([Entry("promise", "3", {"gpus": GPUS}), Entry("promise", "9", {"gpus": GPUS})])
    assert book.promises.keys() == {"4"}, "nobody is promised anything after its end"
    store.write([Entry("started", "1"), Entry("stop", "1", {"why": "turn"}), Entry("rung", "1", {"rung": "suspend"})])
    store.write([Entry("suspended", "1", {"unsaved_s": 0.0}), Entry("promise", "1", {"gpus": GPUS})])
    assert book.promises.keys() == {"4", "1"}
    store.write([Entry("continue", "1")])
    assert book.promises.keys() == {"4"}


def test_what_is_remembered_is_kept_as_it_will_be_read_back() -> None:
    store = World().open()
    value = {"pairs": [(1, 2)]}
    store.write([Entry("memory", data={"key": "a", "value": value}), Entry("memory", data={"key": "b", "value": 0})])
    value["pairs"].append((3, 4))
    assert store.book.memory == {"a": {"pairs": [[1, 2]]}, "b": 0}
    store.write([Entry("memory", data={"key": "a", "value": None})])
    assert store.book.memory == {"b": 0}


def test_a_snapshot_of_an_older_version_has_no_promises_and_no_memory() -> None:
    world = World()
    store = world.open()
    live(store, world)
    old = {key: value for key, value in json.loads(store.book.freeze()).items() if key not in ("promises", "memory")}
    assert Book.thaw(json.dumps(old).encode()).promises == {}
    book = Book.thaw(json.dumps({**old, "once": None}).encode())
    assert book.jobs.keys() == store.book.jobs.keys()
    assert book.memory == {}


def test_what_was_begun_and_never_ended_is_there_after_a_crash() -> None:
    world = World()
    store = world.open()
    with store.lock:
        store.begin_write([submit("1")])
    assert store.book.jobs == {}, "the book waits for the answer"
    store.journal.close()
    assert world.open().book.jobs.keys() == {"1"}


def test_whoever_writes_next_takes_in_what_others_have_begun() -> None:
    world = World()
    store = world.open()
    with store.lock:
        first = store.begin_write([submit("1")])
    store.write([submit("2")])
    assert list(store.book.jobs) == ["1", "2"]
    assert store.end_write(first) == [1]
    assert list(store.book.jobs) == ["1", "2"]
    assert world.points == ["before:submit", "before:submit", "after:submit", "after:submit"]


class Late(MemoryJournal):
    """Answers only when it is flushed."""

    def __init__(self, disk: MemoryStore) -> None:
        super().__init__(disk)
        self.waiting: list[tuple[Future[list[int]], Sequence[Entry]]] = []

    def submit(self, entries: Sequence[Entry]) -> Future[list[int]]:
        self.waiting.append((future := Future(), entries))
        return future

    def flush(self) -> None:
        for future, entries in self.waiting:
            future.set_result(super().submit(entries).result())
        self.waiting.clear()


def test_submissions_that_wait_together_share_one_flush() -> None:
    world = World()
    journal = Late(world.disk)
    store = world.open(journal)
    with ThreadPoolExecutor(8) as pool:
        with store.lock:
            futures = [store.begin_write([submit(str(number))]) for number in range(1, 9)]
        ended = [pool.submit(store.end_write, future) for future in reversed(futures)]
        assert not any(one.done() for one in ended)
        assert store.view().jobs == {}
        journal.flush()
        assert [one.result(20) for one in ended] == [[number] for number in range(8, 0, -1)]
    assert list(store.book.jobs) == list("12345678")
    assert store.book.seq == journal.last_seq == 8


def test_a_real_journal_under_many_writers(tmp_path: Path) -> None:
    store = Store(open_journal(str(tmp_path / "journal.db")))

    def work(number: int) -> None:
        with store.lock:
            future = store.begin_write([submit(str(number)), Entry("hold", str(number))])
        store.end_write(future)
        store.write([Entry("resume", str(number))])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(1, 33)))
    assert store.book.seq == store.journal.last_seq == 96
    assert not store.book.held
    store.journal.close()
    again = Store(open_journal(str(tmp_path / "journal.db")))
    assert same(store.book, again.book)
    again.journal.close()


def test_nothing_happened_when_the_disk_is_full() -> None:
    world = World()
    store = world.open()
    live(store, world, LIFE[:2])
    before, seen = store.book.freeze(), store.view()
    world.disk.room = 0
    with pytest.raises(Unavailable):
        store.write([Entry("hold", "3")])
    with store.lock:
        future = store.begin_write([Entry("hold", "3")])
    with pytest.raises(Unavailable):
        store.end_write(future)
    assert store.book.freeze() == before
    assert store.view() is seen
    world.disk.room = None
    store.write([Entry("hold", "2.0")])
    assert store.book.held.keys() == {"2.0"}


def test_a_snapshot_is_made_without_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A submission that comes while the snapshot is being written down is not in it, and not lost."""
    world = World()
    store = world.open()
    live(store, world)
    seq, freeze, packed = store.book.seq, store.book.freeze(), module.packed

    def slow(jobs: Any, rest: Any) -> bytes:
        writer = threading.Thread(target=store.write, args=([submit("9"), Entry("hold", "3"), launch("9")],))
        writer.start()
        writer.join(20)
        assert not writer.is_alive(), "it had to wait"
        return packed(jobs, rest)

    monkeypatch.setattr(module, "packed", slow)
    store.snapshot()
    assert world.disk.snapshot == (seq, freeze)
    store.journal.close()
    assert same(world.open().book, store.book)


def test_snapshots_are_taken_when_the_replay_becomes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SNAPSHOT_EVERY", 10)
    world = World()
    store = world.open()
    store.write([submit(str(number)) for number in range(1, 10)])
    assert not store.snapshot_if_due()
    store.write([Entry("hold", "1")])
    assert store.snapshot_if_due()
    assert not store.snapshot_if_due()
    store.write([Entry("hold", str(number)) for number in range(2, 10)])
    store.journal.close()
    store = world.open()
    store.write([Entry("resume", str(number)) for number in range(1, 3)])
    assert store.snapshot_if_due(), "what was replayed at the start counts"


def test_changes_are_told_once() -> None:
    world = World()
    store = world.open()
    live(store, world)
    assert store.changes() == {"1", "2.0", "2.5", "3"}
    assert store.changes() == set()
    store.write([Entry("hold", "3"), Entry("policy", data={"policy": "fifo"})])
    assert store.changes() == {"3"}
    store.journal.close()
    assert world.open().changes() == {"1", "2.0", "2.5", "3"}, "all is new to whoever comes after a restart"


def test_the_story_of_a_job() -> None:
    world = World()
    store = world.open()
    live(store, world)
    kinds = [record.kind for record in store.story("3")]
    assert kinds == ["submit", "promise", "set", "resize", "launch", "unheard", "memory"]
    assert store.story("9") == []


def test_waiting_for_news() -> None:
    world = World()
    store = world.open()
    assert store.wait_beyond(0, 0.0) == 0
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.wait_beyond, 0, 20.0)
        store.write([submit("1")])
        assert waiting.result(20) == 1


def plain(jobs: dict[str, LiveJob]) -> dict[str, Any]:
    return {name: frozen(job) for name, job in jobs.items()}


def test_a_view_does_not_change_while_the_book_does() -> None:
    world = World()
    store = world.open()
    kept: list[tuple[Any, str]] = []
    for entries in LIFE:
        live(store, world, [entries])
        view = store.view()
        assert plain(view.jobs) == plain(store.book.jobs)
        assert list(view.on_gpus) == list(store.book.on_gpus)
        kept.append((view, json.dumps(plain(view.jobs))))
    assert all(json.dumps(plain(view.jobs)) == before for view, before in kept)
    assert [view.policy for view, _ in kept][-5:] == ["fifo", "srtf", "srtf", "srtf", "srtf"][-5:]
    assert store.view() is store.view(), "as long as nothing happens it is the same one"


@pytest.mark.parametrize("seed", range(5))
def test_views_of_a_long_random_life(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked at now and then, in few or many steps, a view has every job as it is, in the order of submission."""
    monkeypatch.setattr(module, "_PICTURES_AT_ONCE", 7)
    world, chance, names = World(), random.Random(seed), list[str]()
    store = world.open()
    for _ in range(300):
        free = [name for name in names if name in store.book.active and name not in store.book.on_gpus]
        act = chance.choice(("submit", "submit", "hold", "launch", "exit", "forget", "look", "restart"))
        if act == "submit":
            names.append(str(len(names) + 1))
            store.write([submit(names[-1])])
        elif act == "hold" and free:
            store.write([Entry("hold", chance.choice(free))])
        elif act == "launch" and free:
            store.write([launch(chance.choice(free))])
        elif act == "exit" and store.book.on_gpus:
            store.write([exit_(next(iter(store.book.on_gpus)), chance.choice(("pending", "failed")))])
        elif act == "forget" and (old := [job.id for job in store.book.jobs.values() if job.finished]):
            store.write([Entry("forget", data={"jobs": old[:2]})])
        elif act == "restart" and chance.random() < 0.1:
            store.journal.close()
            store = world.open()
        elif act == "look":
            view = store.view()
            assert plain(view.jobs) == plain(store.book.jobs)
            assert list(view.jobs) == list(store.book.jobs)
            assert [job.id for job in view.active] == list(store.book.active)
        for name in chance.sample(names, min(len(names), 2)):
            seen, job = store.around(name).jobs.get(name), store.book.jobs.get(name)
            assert (seen and frozen(seen)) == (job and frozen(job))
    assert plain(store.view().jobs) == plain(store.book.jobs)


def test_one_job_is_seen_with_those_that_matter_to_it() -> None:
    world = World()
    store = world.open()
    store.write([submit("1"), submit("2"), submit("3.0"), submit("3.1"), submit("4", after=["3"]), launch("1")])
    assert store.around("1").jobs.keys() == {"1"}
    assert store.around("4").jobs.keys() == {"4", "3.0"}
    assert [job.id for job in store.around("4").members("3")] == ["3.0"]
    store.write([launch("2"), launch("3.0"), exit_("3.0")])
    view = store.around("2")
    assert [job.id for job in view.company["2"]] == ["1"]
    assert view.company.keys() == store.view().company.keys() == {"1", "2"}
    assert store.around("4").jobs.keys() == {"4", "3.1"}
    assert store.around("9").jobs == {}
    assert [job.id for job in store.view().members("3")] == ["3.0", "3.1"]
