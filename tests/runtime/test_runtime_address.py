"""Calling home over TCP, over the socket, and over both at once; strangers, and services that come back."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from runtime_service import PATIENCE_S, Service, finish, job_env, spawn

from cotenant import runtime
from cotenant.runtime import _address, server
from cotenant.runtime.protocol import MAX_LINE, Checkpoint, Done, Hello, Progress, Stop, encode


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Service]:
    running = Service("tcp:127.0.0.1:0", f"unix:{tmp_path / 'runtime.sock'}")
    yield running
    running.close()


@pytest.mark.parametrize("which", [0, 1])
def test_a_real_process_calls_home(both: Service, tmp_path: Path, which: int) -> None:
    assert "answers" in finish(spawn("-m", "cotenant.runtime", env=job_env(both.addresses[which], tmp_path / "c")))
    hello = both.wait_for(lambda message: isinstance(message, Hello))
    assert (hello.job, hello.attempt) == ("j1", 3)  # type: ignore[union-attr]
    both.wait_for(lambda message: isinstance(message, Done))


def test_a_job_of_before_knows_a_socket_only(both: Service, tmp_path: Path) -> None:
    env = job_env("", tmp_path / "c") | {"COTENANT_SOCKET": str(tmp_path / "runtime.sock")}
    finish(spawn("-m", "cotenant.runtime", env=env))
    both.wait_for(lambda message: isinstance(message, Done))


def test_who_finds_nobody_says_so(tmp_path: Path) -> None:
    env = job_env("tcp:127.0.0.1:1", tmp_path / "c")
    assert "no service" in finish(spawn("-m", "cotenant.runtime", env=env), code=1)


def test_a_job_finds_the_service_again_at_the_same_port(
    both: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in job_env(both.addresses[0], tmp_path / "ckpt").items():
        monkeypatch.setenv(name, value)
    until = time.monotonic() + PATIENCE_S
    stopped = 0
    with runtime.job() as job:
        job.save(lambda path: (path / "s").write_text("s"))
        for step in job.steps():
            assert time.monotonic() < until
            if step == 3:
                both.wait_for(lambda message: isinstance(message, Hello))
                both.stop()
                both.heard.clear()
            elif step == 6:
                both.start()
            elif step > 6 and both.of(Checkpoint):
                stopped = step
                break
    assert len(both.of(Hello)) == 1
    assert stopped
    both.wait_for(lambda message: isinstance(message, Progress))


def test_a_wish_to_stop_arrives_over_tcp(both: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in job_env(both.addresses[0], tmp_path / "ckpt").items():
        monkeypatch.setenv(name, value)
    both.react = lambda message: both.server.send("j1", Stop(5.0)) if isinstance(message, Hello) else None
    with runtime.job() as job:
        job.save(lambda path: (path / "s").write_text("s"))
        with pytest.raises(SystemExit) as left:
            list(job.steps())
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # who leaves on request keeps it to the end of the process
    assert left.value.code == runtime.EXIT_PREEMPTED


def _connect(service: Service) -> socket.socket:
    sock = _address.connect(service.addresses[0], 5.0)
    sock.settimeout(PATIENCE_S)
    return sock


def test_strangers_get_nothing(both: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong token, no line at all, one that never ends, other protocols: refused or cut off, and never heard."""
    monkeypatch.setattr(server, "HELLO_TIMEOUT_S", 0.2)
    for words, answer in (
        (encode(Hello("guess", "j1", 3, 1)), b"refused"),
        (b"GET / HTTP/1.1\r\n\r\n", b""),
        (b"x" * (2 * MAX_LINE), b""),
        (b'{"type": "progress", "step": 1}\n', b""),
        (b"", b""),
    ):
        with _connect(both) as sock:
            sock.sendall(words)
            said = b""
            try:
                while part := sock.recv(4096):
                    said += part
            except ConnectionResetError:
                pass
            assert answer in said
            assert b"welcome" not in said
    assert both.heard == []


def test_strangers_are_bounded(both: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who opens many connections and says nothing keeps out others like him only for the time of a hello."""
    monkeypatch.setattr(server, "MOST_STRANGERS", 2)
    silent = [_connect(both) for _ in range(2)]
    time.sleep(0.1)
    with _connect(both) as third:
        assert third.recv(1) == b""
    for sock in silent:
        sock.close()
    finish(spawn("-m", "cotenant.runtime", env=job_env(both.addresses[0], tmp_path / "c")))


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("unix:/a/b", "/a/b"),
        ("tcp:localhost:80", ("localhost", 80)),
        ("tcp:10.0.0.1:65535", ("10.0.0.1", 65535)),
        ("tcp:[::1]:8471", ("::1", 8471)),
    ],
)
def test_addresses(text: str, where: object) -> None:
    assert _address.parse(text) == where


@pytest.mark.parametrize("text", ["", "unix:", "tcp:", "tcp:host", "tcp:host:", "tcp::1", "tcp:a:b", "tcp:h:65536",
                                  "udp:h:1", "/path", "tcp:::1:80", "tcp:a b:1"])  # fmt: skip
def test_no_addresses(text: str) -> None:
    with pytest.raises(ValueError, match="no address"):
        _address.parse(text)


def test_a_token_of_strange_letters_is_refused_like_any_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    service = Service(f"unix:{tmp_path / 'jobs.sock'}")
    try:
        with _address.connect(service.addresses[0], 10.0) as sock:
            sock.sendall(encode(Hello("ключ", "j1", 1, 1)))
            assert b"unknown job or token" in sock.recv(1000)
            assert sock.recv(1000) == b""
    finally:
        service.close()
    assert caplog.records == []
