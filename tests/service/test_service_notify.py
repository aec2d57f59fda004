"""Notices: who is told what and when, by real servers on loopback; what must not be reached is not."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from service_kit import ADMIN, Rig

from cotenant.core.errors import InputError
from cotenant.core.jobspec import parse_job
from cotenant.service.notify.notifier import Notifier
from cotenant.service.notify.settings import NotifySettings, Smtp, read_settings

DEADLINE_S = 20.0


def until(condition: Callable[[], bool]) -> None:
    """Wait for threads and servers, for so long and no longer."""
    done = threading.Event()
    for _ in range(int(DEADLINE_S / 0.01)):
        if condition():
            return
        done.wait(0.01)
    raise AssertionError("it did not come true in time")


class Hook:
    """A web server that notes what it is sent; the first `fails` requests are answered 503."""

    def __init__(self) -> None:
        self.got: list[dict[str, object]] = []
        self.fails = 0
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                hook.got.append(body)
                hook.fails -= 1
                self.send_response(503 if hook.fails >= 0 else 302 if self.path == "/moved" else 204)
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.close()


class MailServer:
    """As much of SMTP as a sender needs."""

    def __init__(self) -> None:
        self.mails: list[tuple[list[str], str]] = []
        self.loop = asyncio.new_event_loop()
        server = self.loop.run_until_complete(asyncio.start_server(self._talk, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def say(text: str) -> None:
            writer.write(text.encode() + b"\r\n")

        say("220 stub")
        to: list[str] = []
        while line := (await reader.readline()).decode().strip():
            verb = line.split(" ")[0].upper()
            if verb == "RCPT":
                to.append(line)
                say("550 nobody" if "refused@" in line else "250 ok")
            elif verb == "DATA":
                say("354 go on")
                lines = []
                while (part := (await reader.readline()).decode()) != ".\r\n":
                    lines.append(part)
                self.mails.append((to, "".join(lines)))
                say("250 ok")
            else:
                say("221 bye" if verb == "QUIT" else "250 ok")
                if verb == "QUIT":
                    break
        writer.close()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def mail_server() -> Iterator[MailServer]:
    made = MailServer()
    yield made
    made.close()


LOCAL = NotifySettings(allow=("127.0.0.0/8",))


def test_start_end_and_failure_reach_whom_they_are_for(tmp_path: Path, hook: Hook, mail_server: MailServer) -> None:
    smtp = Smtp("127.0.0.1", "cotenant@example.org", mail_server.port)
    ran = tmp_path / "ran"
    settings = replace(LOCAL, smtp=smtp, commands=(f'echo "$COTENANT_JOB $COTENANT_STATE" >> {ran}',), on=("failure",))
    rig = Rig(tmp_path, notify=settings)
    good = rig.submit("sleep 2", notify={"to": hook.url, "when": ["start", "end"]})
    bad = rig.submit("exit 3", name="bad", notify=[f"{hook.url}/all", "ann@example.org"])
    secret = rig.submit("sleep 1", notify={"to": "https://example.org/a?key=1", "when": "start"})
    assert rig.service.desk.job(ADMIN, secret).spec["notify"] == ["https://example.org/a?***"]
    rig.service.desk.cancel(ADMIN, secret)
    rig.finish()
    until(lambda: len(hook.got) == 3 and len(mail_server.mails) == 1 and ran.exists())
    told = {(item["job"], item["event"], item["state"]) for item in hook.got}
    assert told == {(good, "start", "running"), (good, "end", "succeeded"), (bad, "failure", "failed")}
    ((to, text),) = mail_server.mails
    assert "ann@example.org" in to[0]
    assert f"Subject: [cotenant] job {bad} (bad): failed" in text
    assert "reason: exit code 3" in text
    until(lambda: ran.read_text() == f"{bad} failed\n")
    rig.service.close()


def test_a_notice_is_tried_again_and_given_up_in_the_end(hook: Hook, capsys: pytest.CaptureFixture[str]) -> None:
    hook.fails = 1
    notifier = Notifier(LOCAL, pauses_s=(0.01, 0.01))
    job, record = _ended(f"{hook.url}/?secret")
    notifier.heard(record, job)
    until(lambda: notifier.sent == 1)
    assert len(hook.got) == 2
    hook.fails = 100
    notifier.heard(record, job)
    until(lambda: notifier.dropped == 1)
    assert len(hook.got) == 2 + 3
    said = capsys.readouterr().err
    assert "it answered 503" in said
    assert "secret" not in said
    notifier.close()


def test_webhooks_follow_nobody_and_reach_no_private_address(hook: Hook, capsys: pytest.CaptureFixture[str]) -> None:
    """Also not by a name that leads to one, and not by being sent on."""
    port = hook.server.server_port
    for settings, url in ((NotifySettings(), f"http://localhost:{port}/"), (LOCAL, f"{hook.url}/moved")):
        notifier = Notifier(settings, pauses_s=())
        job, record = _ended(url)
        notifier.heard(record, job)
        until(lambda notifier=notifier: notifier.dropped == 1)
        notifier.close()
    assert len(hook.got) == 1
    said = capsys.readouterr().err
    assert "webhooks may not reach 'localhost'" in said
    assert "it answered 302" in said


def test_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant.service.notify.notifier.MOST_QUEUED", 3)
    monkeypatch.setattr("cotenant.service.notify.notifier.WORKERS", 0)
    notifier = Notifier(NotifySettings())
    job, record = _ended("https://example.org/")
    for _ in range(5):
        notifier.heard(record, job)
    assert notifier.dropped == 2
    notifier.close()


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("http://127.0.0.1/x", "webhooks may not reach '127.0.0.1'"), ("http://[::1]/x", "may not reach '::1'"),
        ("http://169.254.169.254/latest", "may not reach"), ("http://10.1.2.3", "may not reach"),
        ("http://[::ffff:127.0.0.1]/", "may not reach"), ("ann@example.org", "sends no mail"),
        ("https://:0/", "no host"), ("ftp://example.org", "write https://HOST/PATH or NAME@HOST"),
        ("a@b\nBcc: c@d", "write https"),
    ],
)  # fmt: skip
def test_who_could_never_be_told_is_refused_at_submission(tmp_path: Path, to: str, said: str) -> None:
    rig = Rig(tmp_path)
    with pytest.raises(InputError, match=said.replace(".", r"\.")):
        rig.submit(notify=to)
    assert rig.service.desk.jobs(ADMIN) == []


def test_the_operators_file(tmp_path: Path) -> None:
    path, secret = tmp_path / "notify.yaml", tmp_path / "secret"
    secret.write_text("pass\n")
    path.write_text(
        f"to: [ops@example.org]\nwhen: failure\ncommand: /bin/true\nallow: 10.0.0.0/8\nmail_to: Example.org\n"
        f"smtp: {{host: mail, from: c@example.org, port: 587, tls: starttls, user: u, password_file: {secret}}}\n"
    )
    smtp = Smtp("mail", "c@example.org", 587, "u", "pass", "starttls")
    found = read_settings(str(path))
    assert found == NotifySettings(
        ("mailto:ops@example.org",), ("failure",), ("/bin/true",), smtp, ("10.0.0.0/8",), ("example.org",)
    )
    with pytest.raises(InputError, match=r"no mail is sent to 'other\.org'"):
        found.check(parse_job({"run": "x", "notify": "ann@other.org"}))
    for text, said in (("colour: red", "unknown field 'colour'"), ("smtp: {}", "host and from"), ("- a", "mapping")):
        path.write_text(text)
        with pytest.raises(InputError, match=said):
            read_settings(str(path))


def _ended(to: str):  # type: ignore[no-untyped-def]
    from cotenant.core.lifecycle import JobState
    from cotenant.journal import Record
    from cotenant.service.store.job import LiveJob

    job = LiveJob("1", 1, parse_job({"run": "true", "notify": to}), "t", "u", 0.0, state=JobState.FAILED)
    return job, Record(2, 5.0, "exit", "1", {})
