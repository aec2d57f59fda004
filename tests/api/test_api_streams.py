"""Output and history as they come: rotation, following, ending."""

from __future__ import annotations

import itertools
import json
import socket
import threading
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fake_service import USER_A, VIEWER, FakeService
from starlette.testclient import TestClient

from cotenant.api.listening import tcp_socket
from cotenant.api.logs import AttemptOutput, Chunk, read_chunk, read_on, start_of
from cotenant.api.shares import Seats
from cotenant.backends.base import LogMark, LogPart
from cotenant.core.errors import InputError
from cotenant.core.lifecycle import JobState
from cotenant.service.facade import Caller, Role, TooMany


def _rotate(path: Path) -> None:
    path.replace(path.with_name(path.name + ".1"))
    path.touch()


def _append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def _events(text: str) -> list[tuple[str, Any]]:
    blocks = [dict(line.split(": ", 1) for line in block.splitlines()) for block in text.split("\n\n") if block]
    return [(block["event"], json.loads(block["data"])) for block in blocks if "event" in block]


class Memory:
    """A log of which only the newest bytes are kept."""

    key = "1-1"

    def __init__(self, text: str = "", keeps: int = 10**6) -> None:
        self.whole, self.keeps = text.encode(), keeps

    def span(self) -> tuple[int, int]:
        return max(0, len(self.whole) - self.keeps), len(self.whole)

    def read(self, offset: int, size: int) -> LogPart:
        at = max(offset, self.span()[0])
        return LogPart(at, self.whole[at : at + size])

    def ended(self) -> bool:
        return False


class Marked:
    """Marks in memory."""

    def __init__(self, *marks: tuple[float, int, int]) -> None:
        self.all = [LogMark(*mark) for mark in marks]

    def marks(self, at_s: float, stdout: float, stderr: float, most: int) -> list[LogMark]:
        before = sum(m.at_s <= at_s and m.stdout <= stdout and m.stderr <= stderr for m in self.all)
        return self.all[max(before - 1, 0) :][:most]


def _one(log: Memory, attempt: int = 1) -> AttemptOutput:
    return AttemptOutput(attempt, ("stdout",), (log,), Marked())


def test_a_reader_goes_on_while_older_output_goes() -> None:
    """Read in all sizes: nothing twice, nothing lost, as long as the reader is not too late."""
    for size, often in itertools.product((1, 3, 7, 100), (1, 2, 4)):
        log, got, cursor = Memory(keeps=10), b"", "0"
        for number in range(99):
            log.whole += f"{number:02d}".encode()
            while number % often == 0:
                chunk = read_chunk(_one(log), cursor, size)
                assert not chunk.gap
                got, cursor = got + chunk.data, chunk.cursor
                if not chunk.data:
                    break
        while (chunk := read_chunk(_one(log), cursor, size)).data:
            got, cursor = got + chunk.data, chunk.cursor
        assert got == log.whole


def test_what_is_gone_is_a_gap() -> None:
    log = Memory("first", keeps=11)
    cursor = read_chunk(_one(log), "0", 100).cursor
    log.whole += b" lost second third"
    chunk = read_chunk(_one(log), cursor, 100)
    assert (chunk.data, chunk.gap) == (b"econd third", True)
    assert read_chunk(_one(log), chunk.cursor, 100) == Chunk((), chunk.cursor)


def test_a_cursor_stays_with_its_attempt_and_then_goes_on_to_each_later_one() -> None:
    """Also past one that printed nothing, and to one whose beginning is gone, which is told."""
    logs = [Memory("hello world"), Memory(), Memory("again", keeps=3)]
    opened = [_one(log, number) for number, log in enumerate(logs, 1)]
    got, gaps, cursor = b"", [], read_on(lambda n: opened[n - 1], 1, 0, "0", 5).cursor
    for _ in range(3):
        chunk = read_on(lambda n: opened[n - 1], 3, 0, cursor, 100)
        got, cursor, gaps = got + chunk.data, chunk.cursor, [*gaps, chunk.gap]
    assert (got, gaps, cursor) == (b" worldain", [False, True, False], "3.5")
    assert read_on(lambda n: opened[n - 1], 3, 1, "0", 100).data == b"hello world"
    assert read_on(lambda n: opened[n - 1], 3, 0, "0", 100).data == b"ain"


def test_a_cursor_of_an_older_version_still_leads_on() -> None:
    """`PLACE-CHECKSUM`, before that with the number of a file; where other bytes are there it is a gap."""
    log, place = Memory("hello world"), f"5-{zlib.crc32(b'hello'):08x}"
    for cursor in (place, f"1f-{place}"):
        assert read_chunk(_one(log), cursor, 100).data == b" world"
    again = read_chunk(_one(Memory("HELLO again")), place, 100)
    assert (again.data, again.gap) == (b"HELLO again", True)


def test_offsets() -> None:
    log = Memory("01234567890123456789abcde", keeps=15)
    assert read_chunk(_one(log), "8", 4).data == b"89ab"
    assert read_chunk(_one(log), "-3", 100).data == b"cde"
    assert read_chunk(_one(log), "-999", 100).data == b"0123456789abcde"
    assert read_chunk(_one(log), "999", 100).data == b""
    assert read_chunk(_one(Memory()), "0", 100).data == b""
    with pytest.raises(InputError):
        read_on(_one_only(log), 1, 0, "x", 100)


def _one_only(log: Memory) -> Callable[[int], AttemptOutput]:
    return lambda attempt: _one(log, attempt)


def _both(out: str, err: str, *marks: tuple[float, int, int]) -> AttemptOutput:
    return AttemptOutput(1, ("stdout", "stderr"), (Memory(out), Memory(err)), Marked(*marks))


def test_both_streams_come_in_the_order_of_their_marks() -> None:
    """However they are cut; before the first mark and after the last stdout comes first."""
    output = _both("a1\na2\na3\n", "b1\nb2\n", (1.0, 0, 0), (2.0, 3, 0), (3.0, 3, 3), (4.5, 6, 3))
    order = b"a1\nb1\na2\na3\nb2\n"
    for size in (1, 2, 5, 100):
        got, cursor = b"", "0"
        while (chunk := read_chunk(output, cursor, size)).pieces:
            got, cursor = got + chunk.data, chunk.cursor
        assert (got, cursor) == (order, "1.9.6")
    stamps = read_chunk(output, "0", 100, stamped=True).data.decode().splitlines()
    assert stamps[1] == "1970-01-01T00:00:02.000Z b1"
    assert stamps[-1] == "1970-01-01T00:00:04.500Z b2"
    assert read_chunk(output, "1.1.0", 3, stamped=True).data == b"1\n1970-01-01T00:00:02.000Z b"  # no line begins at 1
    assert (
        read_chunk(
            _both(
                "x\n",
                "",
            ),
            "0",
            9,
            stamped=True,
        ).data
        == b"- x\n"
    )


def test_the_last_lines_and_those_since_a_time() -> None:
    output = _both("a1\na2\na3", "b1\nb2\n", (1.0, 0, 0), (2.0, 3, 0), (3.0, 3, 3), (4.5, 6, 3))
    whole = [b"a1\n", b"b1\n", b"a2\n", b"a3", b"b2\n"]
    for count in range(7):
        start = start_of(output, count, None)
        assert read_chunk(output, start, 100).data == b"".join(whole[5 - count if count < 5 else 0 :])
    for since_s, expected in ((0.0, whole), (1.5, whole[1:]), (3.0, whole[2:]), (4.6, [])):
        assert read_chunk(output, start_of(output, None, since_s), 100).data == b"".join(expected)
    assert read_chunk(output, start_of(output, 1, 3.0), 100).data == b"b2\n"
    single = AttemptOutput(1, ("stderr",), (Memory("b1\nb2\n"),), output.times)
    assert read_chunk(single, start_of(single, None, 3.0), 100).data == b"b2\n"
    assert read_chunk(single, start_of(single, 1, None), 100).data == b"b2\n"


def _job(client: TestClient) -> str:
    job: str = client.post("/v1/jobs", json={"jobs": [{"run": "true"}]}).json()["ids"][0][0]
    return job


def test_logs_in_pieces(admin: TestClient, service: FakeService) -> None:
    job = _job(admin)
    assert admin.get(f"/v1/jobs/{job}/logs").content == b""
    path = service.start(job)
    path.write_bytes(b"bytes \xff\x00 as they are")
    first = admin.get(f"/v1/jobs/{job}/logs?limit=6")
    assert (first.content, first.headers["content-type"]) == (b"bytes ", "application/octet-stream")
    _rotate(path)
    _append(path, "!")
    rest = admin.get(f"/v1/jobs/{job}/logs", params={"offset": first.headers["x-offset-next"]})
    assert rest.content == b"\xff\x00 as they are!"
    assert "x-log-gap" not in rest.headers
    assert admin.get(f"/v1/jobs/{job}/logs?stream=stderr").content == b""
    assert admin.get(f"/v1/jobs/{job}/logs?attempt=2").status_code == 404


def test_following_ends_with_the_job(admin: TestClient, service: FakeService) -> None:
    job = _job(admin)
    path = service.start(job)
    path.write_text("so far\n")
    looked = threading.Event()
    real = service.open_log
    service.open_log = lambda *args: looked.set() or real(*args)  # type: ignore[func-returns-value, method-assign]

    def go_on() -> None:
        looked.wait(10)
        _append(path, "half of ü: \u00fc\n")
        _rotate(path)
        _append(path, "after rotation\n")
        service.move(job, JobState.FAILED)

    thread = threading.Thread(target=go_on)
    thread.start()
    found = _events(admin.get(f"/v1/jobs/{job}/logs?follow=true").text)
    thread.join()
    assert "".join(data["text"] for kind, data in found if kind == "log") == ("so far\nhalf of ü: ü\nafter rotation\n")
    assert found[-1] == ("end", {"state": "failed"})


def test_following_goes_on_from_the_last_event(admin: TestClient, service: FakeService) -> None:
    job = _job(admin)
    path = service.start(job)
    path.write_text("one\n")
    cursor = admin.get(f"/v1/jobs/{job}/logs").headers["x-offset-next"]
    _append(path, "two\n")
    service.move(job, JobState.SUCCEEDED)
    answer = admin.get(f"/v1/jobs/{job}/logs?follow=true", headers={"Last-Event-ID": cursor})
    assert _events(answer.text) == [("log", {"text": "two\n"}), ("end", {"state": "succeeded"})]


def test_a_pending_job_that_is_cancelled_ends_its_followers(admin: TestClient, service: FakeService) -> None:
    job = _job(admin)
    admin.post(f"/v1/jobs/{job}/cancel")
    assert _events(admin.get(f"/v1/jobs/{job}/logs?follow=true").text) == [("end", {"state": "cancelled"})]


def test_a_stream_ends_when_its_token_is_revoked(
    user_a: TestClient, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cotenant.api.streams.WAIT_S", 0.01)
    _job(user_a)
    real, calls = service.authenticate, itertools.count()

    def authenticate(secret: str) -> Any:
        return real(secret) if next(calls) < 3 else None

    service.authenticate = authenticate  # type: ignore[method-assign]
    assert USER_A in service.secrets
    found = _events(user_a.get("/v1/events/stream").text)
    assert [data["seq"] for _, data in found] == [1]
    assert user_a.get("/v1/events").status_code == 401


def test_events_stream_until_shutdown(
    user_a: TestClient, user_b: TestClient, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cotenant.api.streams.WAIT_S", 0.01)
    _job(user_b)
    job = _job(user_a)
    service.start(job)
    service.is_ready = False
    found = _events(user_a.get("/v1/events/stream?after=1").text)
    assert found[:2] in ([], [("submitted", found[0][1]), ("state", found[1][1])]) if found else True
    assert all(data["job"] == job for _, data in found)


def test_events_wait_for_the_first(admin: TestClient, user_a: TestClient, service: FakeService) -> None:
    assert admin.get("/v1/events?after=-1").json() == {"events": [], "next": 0}
    timer = threading.Timer(0.05, service.event, ("hello",))
    timer.start()
    answer = admin.get("/v1/events?after=0&wait=20").json()
    timer.join()
    assert ([event["kind"] for event in answer["events"]], answer["next"]) == (["hello"], 1)
    assert user_a.get("/v1/events?wait=0.05").json() == {"events": [], "next": 1}  # past what is not his


def test_one_callers_streams_and_polls_leave_the_others_theirs(
    admin: TestClient, viewer: TestClient, service: FakeService
) -> None:
    """Defect 15: 256 streams of one viewer took `logs -f` from all, 300 long polls made an admin wait."""
    job = _job(admin)
    admin.post(f"/v1/jobs/{job}/cancel")
    shares, who = admin.app.state.door.shares, service.authenticate(VIEWER)  # type: ignore[attr-defined]
    with ExitStack() as taken:
        for _ in range(shares.limits.streams):
            taken.enter_context(shares.streams.taken(who))
        for _ in range(shares.limits.polls):
            taken.enter_context(shares.polls.taken(who))
        assert viewer.get(f"/v1/jobs/{job}/logs?follow=true").status_code == 429
        assert viewer.get("/v1/events?after=-1&wait=1").status_code == 429
        assert viewer.get("/v1/jobs").status_code == 200
        assert _events(admin.get(f"/v1/jobs/{job}/logs?follow=true").text) == [("end", {"state": "cancelled"})]
        assert admin.get("/v1/events?after=0&wait=1").json()["next"] == 2


def test_when_all_places_are_taken_who_has_most_gives_one_up() -> None:
    ann, bob = Caller("ann", Role.USER, "a"), Caller("bob", Role.USER, "b")
    seats = Seats("streams", most=3, most_of_all=3)
    with seats.taken(ann) as first, seats.taken(ann) as second, seats.taken(ann), seats.taken(bob):
        assert (first.lost, second.lost) == (True, False)
        assert (seats.of(ann), seats.of(bob)) == (2, 1)
        with pytest.raises(TooMany), seats.taken(bob):
            pass
    assert (seats.of(ann), seats.of(bob)) == (0, 0)


def test_answers_do_not_wait_for_the_other_sides_word() -> None:
    """Over TCP each took 40 ms longer: head and body are two writes, and the second waited for an acknowledgement."""
    with tcp_socket("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted = listener.accept()[0]
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        accepted.close()
