"""The client through a real server: the same values and the same errors as the service's own."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import pytest
from client_server import Server
from fake_service import ADMIN, USER_A, VIEWER, FakeService

from cotenant.api.front import Doors
from cotenant.api.standby import StandbyDoor
from cotenant.client import Client, Conflict, Denied, NotFound, Role, Unavailable, Unreachable
from cotenant.client.codec import mapping, ranges
from cotenant.core.errors import InputError
from cotenant.core.jobspec import JobSpec, parse_job
from cotenant.core.lifecycle import JobState
from cotenant.service.facade import JobInfo

FULL = {
    "run": "python a.py", "name": "full", "setup": "make", "workdir": "/tmp", "env": {"A": "1"}, "gpus": "h200:4",
    "cpus": 2.5, "mem": "512M", "nodes": 2, "tenant": "t", "priority": -3, "deadline": "2h:10,4h:5",
    "max_runtime": "30m", "expected": 60, "retries": 2, "gpu_mem": "20G", "model": "bert", "image": "docker://python:3.11",
    "elastic": {"min_gpus": 1, "max_gpus": 8}, "batch": {"size": 64, "min": 8, "max": 512},
    "checkpoint": {"dir": "ck", "interval": "5m"}, "preemptible": False, "exclusive": True, "tty": True,
    "movable": False, "weight": 2.5, "gpu_mem_min": "12G", "gpu_mem_speeds": {12: 0.5, 16: 0.75},
    "array": "0-3,9%2", "after": ["1", "any:2"],
    "notify": {"to": ["https://example.org/hook", "ann@example.org"], "when": ["start"]},
}  # fmt: skip


SERVICE = {"run": "x", "service": {"target_ms": 50, "service_ms": 8, "rate": 3, "beside": 0.5, "replicas": 2}}


@pytest.mark.parametrize("data", [FULL, {"run": "x"}, {"run": "x", "gpus": 0}, {"run": "x", "slice": "2/7"}, SERVICE])
def test_a_spec_survives_the_way_there(data: dict[str, object]) -> None:
    spec = parse_job(data)
    assert parse_job(mapping(spec)) == spec
    if data is FULL:
        plain = JobSpec("python a.py")
        same = [item.name for item in fields(spec) if getattr(spec, item.name) == getattr(plain, item.name)]
        one_gpu = {"slice", "service"}  # only of jobs of one GPU: tried by themselves
        assert [name for name in same if name not in one_gpu] == ["run", "foreign"], (
            "a field that nobody tries; nobody can write `foreign`"
        )
    assert ranges((0, 1, 2, 5, 7, 8)) == "0-2,5,7-8"


def test_jobs_come_back_as_they_are(client: Client, service: FakeService) -> None:
    ids = client.submit([JobSpec("python a.py", gpus=2), {"run": "x", "array": "0-1"}])
    assert ids == [["1"], ["2_0", "2_1"]]
    service.start("1")
    got, own = client.job("1"), service.infos["1"]
    assert math.isnan(got.metrics["loss"])
    assert _but_metrics(got) == _but_metrics(own)
    assert [job.id for job in client.jobs(states=["pending"])] == ["2_0", "2_1"]
    assert client.why("1")["text"] == "running"
    assert client.hold("2_0").reason == "held"
    assert client.resume("2_0").state is JobState.PENDING
    assert client.set("2_0", {"priority": 7}).priority == 7
    assert client.cancel("2_0").state is JobState.CANCELLED
    assert client.events("1") == service.events(service.secrets[ADMIN][1], "1")


def _but_metrics(job: JobInfo) -> dict[str, object]:
    return {**job.as_dict(), "metrics": None}


def test_the_rest_of_the_facade(client: Client, service: FakeService) -> None:
    assert [node.state for node in client.drain("n0")] == ["draining", "up"]
    assert client.drain("n0", undo=True) == client.nodes() == service.nodes(service.secrets[ADMIN][1])
    assert (client.set_policy("srtf"), client.policy()) == ("srtf", "srtf")
    assert client.whatif(["fifo"])["now"] == "srtf"
    token, secret = client.create_token("x", Role.USER, "t")
    assert client.tokens()[-1] == token
    with Client(client.url, secret) as other:
        assert other.jobs() == []
        client.revoke_token(token.id)
        with pytest.raises(Denied, match="token is not valid"):
            other.jobs()
    assert client.backup("b.db") == "b.db"
    assert "cotenant_queue_length 3.0" in client.metrics()
    assert client.ready()


def test_errors_are_the_same_classes(client: Client, service: FakeService) -> None:
    with pytest.raises(NotFound, match="no job '7'"):
        client.job("7")
    client.submit([{"run": "x"}])
    with pytest.raises(Conflict, match="not held"):
        client.resume("1")
    with pytest.raises(InputError, match="field 'run' is missing"):
        client.submit([{}])
    with pytest.raises(InputError, match="no name"):
        client.job("..")
    with pytest.raises(InputError, match="larger than"):
        client.submit([{"run": "x" * 1_100_000}])
    service.full = True
    with pytest.raises(Unavailable, match="disk is full"):
        client.submit([{"run": "x"}])
    with Client(client.url, VIEWER) as viewer, pytest.raises(Denied, match="only reads"):
        viewer.cancel("1")


def test_a_key_used_at_the_same_time_submits_once(client: Client, service: FakeService) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: client.submit([{"run": "x"}], key="same"), range(8)))
    assert answers == [[["1"]]] * 8
    assert service.submits == 1


def test_nobody_there_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with Client(url, "x") as client:
        with pytest.raises(Unreachable, match=f"^no service at {url}: start it with `cotenant serve`$"):
            client.jobs()
        with pytest.raises(Unreachable, match="no service at"):
            client.submit([{"run": "x"}])
        assert not client.ready()


class _Rude:
    """Takes requests and hangs up on the first few."""

    def __init__(self, rude: int, answer: bytes) -> None:
        self.socket, self.rude, self.answer, self.seen = socket.create_server(("127.0.0.1", 0)), rude, answer, 0
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            connection, _ = self.socket.accept()
            with connection:
                connection.recv(65536)
                self.seen += 1
                if self.seen > self.rude:
                    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(self.answer)}\r\nConnection: close\r\n\r\n"
                    connection.sendall(head.encode() + self.answer)


def test_only_what_changes_nothing_is_tried_again() -> None:
    server = _Rude(2, b'{"policy": "fifo"}')
    with Client(server.url) as client:
        assert client.policy() == "fifo"
        assert server.seen == 3
        server.rude = 100
        with pytest.raises(Unreachable, match="may have been taken"):
            client.submit([{"run": "x"}])
        assert server.seen == 4
        with pytest.raises(Unreachable, match="lost"):
            client.cancel("1")
        assert server.seen == 5


def test_a_stranger_at_the_port_is_noticed() -> None:
    with Client(_Rude(0, b"[1]").url, "x") as client, pytest.raises(Exception, match="is COTENANT_URL right"):
        client.policy()


def test_where_url_and_token_come_from(at_home: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client() as client:
        assert client.tokens()
        assert ADMIN not in repr(client) + repr(vars(client))
    monkeypatch.setenv("COTENANT_TOKEN", USER_A)
    with Client() as client, pytest.raises(Denied, match="admin"):
        client.tokens()
    with Client(token=ADMIN) as client:
        assert client.tokens()
    monkeypatch.setenv("COTENANT_URL", "ftp://x")
    with pytest.raises(InputError, match="http://"):
        Client()


def test_of_several_addresses_the_one_that_leads(server: Server, tmp_path: Path) -> None:
    """Nobody listens at the first, the second stands by; whoever knows only that one is told."""
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        waits = f"http://127.0.0.1:{tcp.getsockname()[1]}"
        with StandbyDoor(Doors(tmp_path), tcp, lambda: server.url):
            with Client(f"http://127.0.0.1:9, {waits},{server.url}/", ADMIN) as client:
                assert client.submit([{"run": "x"}]) == [["1"]]
                assert client.url == server.url
            with Client(waits, ADMIN) as client, pytest.raises(Unavailable, match="stands by"):
                client.tokens()
            answers = [httpx.get(f"{waits}{path}", trust_env=False) for path in ("/healthz", "/readyz", "/v1/jobs?a=b")]
            assert [answer.status_code for answer in answers] == [200, 503, 307]
            assert answers[2].headers["Location"] == f"{server.url}/v1/jobs?a=b"


def test_logs_and_following(client: Client, service: FakeService) -> None:
    client.submit([{"run": "x"}])
    path = service.start("1")
    path.write_text("ä" * 1000)
    assert "".join(client.logs("1")) == "ä" * 1000
    assert client.read_log("1", limit=4)[0] == "ää".encode()
    got = []
    for text in client.logs("1", follow=True):
        got.append(text)
        if len(got) == 1:
            with path.open("a", encoding="utf-8") as file:
                file.write("the end")
            service.move("1", JobState.SUCCEEDED)
    assert "".join(got) == "ä" * 1000 + "the end"
    with pytest.raises(NotFound):
        list(client.logs("9", follow=True))


def test_following_events(client: Client, service: FakeService) -> None:
    client.submit([{"run": "x"}])
    stream = client.follow_events("1")
    assert next(stream).kind == "submitted"
    service.event("other")
    service.start("1")
    assert next(stream) == service.history_[-1]
    stream.close()


def test_wait(client: Client, service: FakeService) -> None:
    client.submit([{"run": "x"}, {"run": "y"}])
    service.move("1", JobState.SUCCEEDED)
    timer = threading.Timer(0.05, service.move, ("2", JobState.FAILED))
    timer.start()
    assert [job.state for job in client.wait(["2", "1"])] == [JobState.FAILED, JobState.SUCCEEDED]
    timer.join()
    client.submit([{"run": "z"}])
    assert [job.state for job in client.wait(["3"], timeout_s=0.05)] == [JobState.PENDING]


def test_a_what_if_that_takes_long_tells_how_far_it_is(client: Client, service: FakeService) -> None:
    service.foreseen.clear()
    heard: list[Mapping[str, Any]] = []

    def first(progress: Mapping[str, Any]) -> None:
        heard.append(progress)
        if len(heard) == 1:
            client.whatif(["fifo"], second)

    def second(progress: Mapping[str, Any]) -> None:
        heard.append(progress)
        with pytest.raises(Conflict, match="wait for one"):
            client.whatif(["fifo"])
        service.foreseen.set()

    assert client.whatif(["srsf"], first)["jobs"] == []
    assert heard[:2] == [{"policy": "srsf", "done": 0, "jobs": 0}, {"policy": "fifo", "done": 0, "jobs": 0}]
