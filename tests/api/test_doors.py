"""The doors of a served home: who gets in by socket, token, proof and certificate, and who is kept out."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from doors_kit import Served, served
from fake_service import ADMIN, NOW, USER_A, VIEWER, FakeService
from starlette.testclient import TestClient

from cotenant.api.front import Doors, Front
from cotenant.api.quiet import Repeats
from cotenant.api.shares import CallerLimits, read_limits
from cotenant.client import Client, Denied, Unreachable
from cotenant.core import proof
from cotenant.core.errors import InputError
from cotenant.service.facade import Caller, Role


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    (folder / "token").write_text(ADMIN)
    monkeypatch.setenv("COTENANT_HOME", str(folder))
    for name in ("COTENANT_URL", "COTENANT_TOKEN", "COTENANT_SERVICE_USER"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def service(tmp_path: Path) -> FakeService:
    return FakeService(tmp_path)


@contextmanager
def liar(answer: Callable[[bytes], bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Somebody else at a port, who remembers what he was sent."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            while True:
                try:
                    conn, _ = listener.accept()
                except OSError:
                    return
                with conn:
                    heard.append(conn.recv(65536))
                    conn.sendall(answer(heard[-1]))
                    conn.settimeout(0.2)
                    with suppress(OSError):
                        heard.append(conn.recv(65536))

        threading.Thread(target=run, daemon=True).start()
        yield listener.getsockname()[1], heard


def _http(body: object) -> bytes:
    text = json.dumps(body)
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


def test_the_owner_needs_no_token_on_the_socket(home: Path, service: FakeService) -> None:
    with served(home, service):
        (home / "token").unlink()
        assert oct((home / "api.sock").stat().st_mode)[-3:] == "600"
        with Client() as client:
            assert client.url.startswith("unix:")
            client.submit([{"run": "true"}])
            assert client.tokens()
    assert not (home / "api.sock").exists()


def test_a_token_wins_over_the_user_of_the_socket(home: Path, service: FakeService) -> None:
    with served(home, service), Client(token=VIEWER) as viewer, pytest.raises(Denied, match="only reads"):
        viewer.submit([{"run": "true"}])


def test_others_on_the_socket_are_who_peers_say(home: Path, service: FakeService) -> None:
    with served(home, service, peers={"root": Caller("r", Role.VIEWER)}), Client() as client:
        if os.geteuid() == 0:
            with pytest.raises(Denied, match="only reads"):
                client.submit([{"run": "true"}])


def test_a_stranger_at_the_port_gets_no_token(home: Path) -> None:
    """Defect 4: with the service down another user listened at its port, and `cotenant ps` sent him the token."""
    with liar(lambda _: _http({"at": "127.0.0.1:1", "proof": "0" * 64, "jobs": []})) as (port, heard):
        (home / "url").write_text(f"http://127.0.0.1:{port}")
        with Client() as client, pytest.raises(Denied, match="did not prove"):
            client.jobs()
    assert heard
    assert not any(b"Authorization" in text or ADMIN.encode() in text for text in heard)


def test_the_proof_cannot_be_passed_on(home: Path, service: FakeService) -> None:
    """Who listens elsewhere may ask the real service, but its proof holds for its own address only."""
    with served(home, service, socket="none") as real:

        def ask(request: bytes) -> bytes:
            path = request.split(b" ")[1].decode()
            return _http(httpx.get(real.url + path).json())

        with liar(ask) as (port, heard):
            (home / "url").write_text(f"http://127.0.0.1:{port}")
            with Client() as client, pytest.raises(Denied, match="did not prove"):
                client.jobs()
            assert not any(ADMIN.encode() in text for text in heard)
        (home / "url").write_text(real.url)
        with Client() as client:
            assert client.jobs() == []


def test_the_homes_token_goes_to_no_other_url(
    home: Path, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect 4: the token of the file went to whatever COTENANT_URL named."""
    with liar(lambda _: _http({"jobs": []})) as (port, heard):
        monkeypatch.setenv("COTENANT_URL", f"http://127.0.0.1:{port}")
        with Client() as client:
            client.jobs()
    assert heard
    assert not any(b"Authorization" in text for text in heard)


def test_a_socket_of_another_user_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant.client.connection.peer_uid", lambda sock: 54321)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home / "api.sock"))
        listener.listen()
        with Client() as client, pytest.raises(Denied, match="served by user 54321"):
            client.jobs()


def test_tls_with_a_pin(home: Path, service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(home, service, tls="auto", socket="none") as found:
        assert found.url.startswith("https://")
        assert oct((home / "tls" / "key.pem").stat().st_mode)[-3:] == "600"
        with Client() as client:
            _, line = client.create_token("ann", "user", "a")
        secret, _, pin = line.partition("~")
        assert pin == (home / "fingerprint").read_text().strip()
        with Client(found.url, line) as client:
            assert client.jobs() == []
        with Client(found.url, f"{secret}~{'0' * 64}") as client, pytest.raises(Denied, match="another certificate"):
            client.jobs()
        monkeypatch.setenv("COTENANT_HOME", str(home / "elsewhere"))
        with Client(found.url, secret) as client, pytest.raises(Denied, match="nobody vouches"):
            client.jobs()
        port = int(found.url.rsplit(":", 1)[1])
        shown = ssl.get_server_certificate(("127.0.0.1", port))
        assert "BEGIN CERTIFICATE" in shown


def test_what_cannot_be_listened_at_is_one_line(home: Path, service: FakeService) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"cannot listen at 127.0.0.1 port {port}"):
            asyncio.run(Front(service, Doors(home, port=port)).start())


def _until(what: Callable[[], bool], seconds: float = 15.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def _closed(sock: socket.socket) -> bool:
    sock.settimeout(0.01)
    try:
        return sock.recv(1000) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_half_open_connections_are_closed_and_keep_nobody_out(home: Path, service: FakeService) -> None:
    """Defect 5: 1,100 half-open requests, none of which was timed out, and nobody else got in."""
    limits = CallerLimits(header_s=1.0, all_connections=40)
    with served(home, service, limits=limits) as found:
        halves = [found.connect() for _ in range(60)]
        try:
            for half in halves:
                half.sendall(b"GET /v1/jobs HTTP/1.1\r\nHos") if not _closed(half) else None
            with Client(found.url, USER_A) as client:
                assert client.jobs() == []
            _until(lambda: all(map(_closed, halves)))
        finally:
            for half in halves:
                half.close()


def test_slow_bodies_are_answered_408(home: Path, service: FakeService) -> None:
    with served(home, service, limits=CallerLimits(body_s=0.3)) as found, found.connect() as sock:
        sock.sendall(f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {USER_A}\r\n".encode())
        sock.sendall(b"Content-Length: 100\r\n\r\n{")
        assert sock.recv(1000).startswith(b"HTTP/1.1 408")


def test_strangers_share_a_small_budget_and_callers_keep_theirs(home: Path, service: FakeService) -> None:
    with served(home, service, limits=CallerLimits(strangers=1.0)) as found:
        with httpx.Client(base_url=found.url, headers={"Authorization": "Bearer no"}) as stranger:
            assert stranger.get("/v1/jobs").status_code == 401
            _until(lambda: stranger.get("/v1/jobs").status_code == 429)
        with Client(found.url, USER_A) as client:
            assert client.jobs() == []
        assert httpx.get(f"{found.url}/healthz").status_code == 200


def test_who_hangs_up_at_once_gives_his_places_back(home: Path, service: FakeService) -> None:
    ask = f"GET /v1/events/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {USER_A}\r\n\r\n".encode()

    def opens(found: Served) -> bool:
        with found.connect() as sock:
            sock.sendall(ask)
            return b" 200 " in sock.recv(1000)

    with served(home, service, limits=CallerLimits(streams=2)) as found:
        for _ in range(20):
            with found.connect() as sock:
                sock.sendall(ask)
        _until(lambda: opens(found) and opens(found))


def test_requests_of_one_caller_are_bounded(home: Path, service: FakeService) -> None:
    with served(home, service, limits=CallerLimits(rate=0.001, burst=3.0)) as found:
        headers = {"Authorization": f"Bearer {USER_A}"}
        seen = [httpx.get(f"{found.url}/v1/jobs", headers=headers).status_code for _ in range(5)]
        assert (seen[:3], seen[-1]) == ([200] * 3, 429)
        assert httpx.get(f"{found.url}/v1/jobs", headers={"Authorization": f"Bearer {ADMIN}"}).status_code == 200


def test_every_write_and_every_refused_one_is_in_the_audit(home: Path, service: FakeService) -> None:
    with served(home, service) as found, Client() as owner:
        with Client(found.url, USER_A) as ann:
            ann.submit([{"run": "true"}])
            with pytest.raises(Denied):
                ann.audit()
        with Client(found.url, VIEWER) as viewer, pytest.raises(Denied):
            viewer.cancel("1")
        httpx.post(f"{found.url}/v1/jobs/1/cancel", headers={"Authorization": "Bearer wrong"})
        owner.jobs()
        rows = owner.audit()
        assert [(row["who"], row["method"], row["path"], row["status"]) for row in rows] == [
            ("user-a", "POST", "/v1/jobs", 201),
            ("viewer", "POST", "/v1/jobs/1/cancel", 403),
            ("", "POST", "/v1/jobs/1/cancel", 401),
        ]
        assert rows[0]["note"] == "jobs 1"
        assert owner.audit(since_s=rows[-1]["time_s"] + 1) == []
        assert not any(secret in (home / "audit.jsonl").read_text() for secret in (ADMIN, USER_A, VIEWER, "wrong"))


def test_a_hung_service_is_one_line_soon(home: Path) -> None:
    """Defect 23: a client of a hung service was silent for 180 s."""
    with socket.create_server(("127.0.0.1", 0)) as hung:
        url = f"http://127.0.0.1:{hung.getsockname()[1]}"
        began = time.monotonic()
        with Client(url, timeout_s=0.3) as client, pytest.raises(Unreachable, match="took too long"):
            client.jobs()
        assert time.monotonic() - began < 5.0


def test_the_read_time_is_half_a_minute_at_most() -> None:
    from cotenant.client.connection import CONNECT_S, READ_S, timeout

    assert (CONNECT_S, READ_S) == (5.0, 30.0)
    assert timeout(600.0).connect == CONNECT_S


def test_proofs_differ_by_token_nonce_and_address() -> None:
    base = proof.proof("d", "n", "a:1")
    assert len({base, proof.proof("e", "n", "a:1"), proof.proof("d", "m", "a:1"), proof.proof("d", "n", "a:2")}) == 4


@pytest.mark.parametrize("text", ["nope=1", "streams=x", "streams=0", "rate=-1"])
def test_bad_limits_are_one_line(text: str) -> None:
    with pytest.raises(InputError, match="--limits"):
        read_limits(text)


SCOPED = [
    (("read",), "GET", "/v1/jobs", 200),
    (("read",), "POST", "/v1/jobs", 403),
    (("read",), "POST", "/v1/jobs/1/cancel", 403),
    (("submit",), "GET", "/v1/jobs", 403),
    (("submit",), "POST", "/v1/jobs", 201),
    (("submit", "manage"), "POST", "/v1/jobs/1/cancel", 200),
    (("metrics",), "GET", "/metrics", 200),
    (("metrics",), "GET", "/v1/jobs", 403),
    (("read",), "GET", "/v1/audit", 403),
    (("read",), "POST", "/v1/changes/cancel", 403),
    (("submit",), "POST", "/v1/shutdown", 403),
    (("read", "submit"), "GET", f"/v1/channels/{'0' * 32}", 403),
    (("manage",), "GET", f"/v1/channels/{'0' * 32}", 404),
]


def test_a_token_reaches_as_far_as_its_scopes(admin: TestClient) -> None:
    for scopes, method, path, status in SCOPED:
        admin.post("/v1/jobs", json={"jobs": [{"run": "true"}]})
        made = admin.post("/v1/tokens", json={"role": "admin", "scopes": list(scopes), "expires": "30d"}).json()
        assert (made["token"]["scopes"], made["token"]["expires_s"]) == (list(scopes), NOW + 30 * 86400)
        body = {"jobs": [{"run": "true"}]} if path == "/v1/jobs" and method == "POST" else None
        headers = {"Authorization": f"Bearer {made['secret']}"}
        assert admin.request(method, path, json=body, headers=headers).status_code == status, (scopes, method, path)


def test_a_repeated_line_is_told_some_times_and_then_counted() -> None:
    """Defect 5: 1.35 GB of the same traceback in two minutes."""
    now = [0.0]
    repeats = Repeats(most=3, per_s=60.0, clock=lambda: now[0])

    def told() -> str:
        record = logging.LogRecord("asyncio", logging.ERROR, "", 1, "no more descriptors", (), None)
        return record.getMessage() if repeats.filter(record) else ""

    assert [bool(told()) for _ in range(1000)] == [True] * 3 + [False] * 997
    now[0] = 61.0
    assert told() == "no more descriptors (997 more like this in 61 s before)"


def test_a_process_without_descriptors_drops_newcomers_and_goes_on(
    home: Path, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect 5: without descriptors the accepting loop spun, two cores busy."""
    tries = 0
    with served(home, service, socket="none") as found:
        real = socket.socket.accept

        def accept(sock: socket.socket) -> tuple[socket.socket, object]:
            nonlocal tries
            tries += 1
            if tries % 2 and tries < 10:
                raise OSError(errno.EMFILE, "Too many open files")
            return real(sock)

        monkeypatch.setattr(socket.socket, "accept", accept)
        with found.connect() as dropped:
            assert _closed(dropped) or _until(lambda: _closed(dropped)) is None
        assert tries == 2
        tries = 10
        with Client(found.url, USER_A) as client:
            assert client.jobs() == []


@pytest.mark.slow
def test_a_small_siege(tmp_path: Path) -> None:
    """`python -m bench.siege` in short: nobody honest fails, log and memory stay small. Times are for the bench."""
    from bench.siege import besieged, measure

    with besieged(tmp_path / "home") as service:
        honest, enemy = service.token("honest", "user", "h"), service.token("enemy", "user", "e")
        quiet = measure(service, honest, "quiet", 3.0, [])
        for name in ("half-open", "malformed", "wrong-tokens", "streams", "polls"):
            found = measure(service, honest, name, 3.0, [name, json.dumps([enemy])])
            assert (found.failed, found.log_mb < 1.0) == (0, True), name
            assert found.decisions > 0
            assert found.memory_mib < 2 * quiet.memory_mib
