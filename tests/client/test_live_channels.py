"""Into running jobs as a user goes there: real processes, terminals and a tunnel, over HTTP and the command line."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cli_runner import ROOT, SCRIPT
from live_kit import PATIENCE_S, Live, live

from cotenant.client import Client, Conflict
from cotenant.client.channel import ClientChannel
from cotenant.service.facade import Role

NOTEBOOK = ROOT / "examples" / "notebook_server.py"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("live") / "home", "fifo", gpus=4, grace_s=1.0) as made:
        yield made


@pytest.fixture
def env(rig: Live) -> dict[str, str]:
    """Of a user at his own machine: no home of the service."""
    return {**os.environ, "COTENANT_URL": rig.url, "COTENANT_TOKEN": rig.secret, "COTENANT_HOME": "/nowhere"}


def _running(rig: Live, run: str = "sleep 1000", **fields: Any) -> str:
    job = rig.submit(run, **fields)
    rig.runs(job)
    return job


def _all(channel: ClientChannel) -> dict[str, bytes]:
    found = {"stdout": b"", "stderr": b""}
    for stream, data in channel.output():
        found[stream] += data
    return found


def _until(channel: Iterator[tuple[str, bytes]], enough: Callable[[bytes], bool]) -> bytes:
    got = b""
    for _, data in channel:
        got += data
        if enough(got):
            return got
    raise AssertionError(got)


def test_a_program_runs_as_the_job_does(rig: Live, tmp_path: Path) -> None:
    """Its environment, folder, GPUs and group of processes; both streams, input, exit code; it ends with the job."""
    job = _running(rig, env={"MINE": "of the job"}, gpus=2, workdir=str(tmp_path))
    first = rig.client.open_channel(job, "exec", argv=["sh", "-c", "echo $MINE, $CUDA_VISIBLE_DEVICES; pwd; exit 7"])
    assert _all(first) == {"stdout": f"of the job, 0,1\n{tmp_path}\n".encode(), "stderr": b""}
    assert first.exit_code == 7
    fed = rig.client.open_channel(job, "exec", argv=["sh", "-c", "cat; echo $MORE >&2; kill -9 $$"], env={"MORE": "x"})
    data = os.urandom(300_000)
    threading.Thread(target=lambda: (fed.write(data), fed.end_input())).start()
    assert _all(fed) == {"stdout": data, "stderr": b"x\n"}
    assert fed.exit_code == 128 + 9
    missing = rig.client.open_channel(job, "exec", argv=["/no/such"])
    assert (_all(missing)["stderr"], missing.exit_code) == (b"/no/such: No such file or directory\n", 127)
    lasting = rig.client.open_channel(job, "exec", argv=["sh", "-c", "echo here; sleep 1000"])
    out = lasting.output()
    assert next(out) == ("stdout", b"here\n")
    rig.client.cancel(job)
    assert [*out] == []
    assert lasting.exit_code in (128 + 9, 128 + 15, None)
    rig.client.wait([job])
    with pytest.raises(Conflict, match="cancelled"):
        rig.client.open_channel(job, "exec", argv=["true"])


def test_who_hangs_up_ends_his_program(rig: Live, tmp_path: Path) -> None:
    mark = tmp_path / "hung-up"
    job = _running(rig)
    program = f"trap 'touch {mark}; exit' HUP; echo ready; while :; do sleep 0.05; done"
    out = rig.client.open_channel(job, "exec", argv=["bash", "-c", program]).output()
    assert next(out) == ("stdout", b"ready\n")
    out.close()  # type: ignore[attr-defined]
    rig.until(mark.exists)
    assert rig.client.job(job).state == "running"
    rig.client.cancel(job)


def test_a_terminal_is_joined_by_several_and_resized(rig: Live) -> None:
    job = _running(rig, "exec bash --norc", tty=True, env={"TERM": "dumb"})
    one, other = (rig.client.open_channel(job, "attach") for _ in range(2))
    shown = one.output()
    _until(shown, lambda text: text.endswith((b"# ", b"$ ")))
    one.resize(33, 99)
    one.write(b"stty size; test -t 0 && echo a $((1 + 1))-way terminal\n")
    seen = _until(shown, lambda text: b"a 2-way terminal" in text)
    assert b"33 99" in seen
    also = other.output()
    _until(also, lambda text: b"a 2-way terminal" in text)  # what was shown lately comes first
    one.write(b"sh -c 'echo it; echo runs; exec sleep 1000'\n")
    _until(shown, lambda text: b"it\r\nruns\r\n" in text)
    one.write(b"\x03")
    one.write(b"exit 4\n")
    for channel, rest in ((one, shown), (other, also)):
        assert b"exit" in b"".join(data for _, data in rest)
        assert channel.exit_code == 4
    rig.client.wait([job])
    info = rig.client.job(job)
    assert (str(info.state), info.attempts[-1].exit_code) == ("failed", 4)
    assert b"a 2-way terminal" in b"".join(rig.client.output(job))
    plain = _running(rig)
    with pytest.raises(Exception, match="no terminal"):
        _all(rig.client.open_channel(plain, "attach"))
    rig.client.cancel(plain)


def test_another_tenant_finds_nothing_and_a_viewer_may_not(rig: Live) -> None:
    job = _running(rig)
    asked = {"exec": {"argv": ["true"]}, "attach": {}, "port": {"port": 80}}
    mine = rig.client.open_channel(job, "exec", argv=["cat"])
    for role, tenant, error in ((Role.USER, "others", "no job"), (Role.VIEWER, "", "only reads")):
        _, secret = rig.client.create_token(f"{role}-x", role, tenant)
        with Client(rig.url, secret) as stranger:
            for kind, more in asked.items():
                with pytest.raises(Exception, match=error):
                    stranger.open_channel(job, kind, **more)
        headers = {"Authorization": f"Bearer {secret}"}
        read = httpx.get(f"{rig.url}{mine.path}", headers=headers)
        fed = httpx.post(f"{rig.url}{mine.path}/input", headers=headers, content=b"x")
        assert (read.status_code, fed.status_code) == (404, 404 if role is Role.USER else 403)
    mine.end_input()
    assert _all(mine) == {"stdout": b"", "stderr": b""}
    rig.client.cancel(job)


def test_a_notebook_is_reached_through_the_service(rig: Live, env: dict[str, str]) -> None:
    """And no port of anybody else: neither another job's nor the service's own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        far = free.getsockname()[1]
    job, other = _running(rig, f"exec python3 {NOTEBOOK} --port {far}"), _running(rig)
    rig.until(lambda: b"listens" in b"".join(rig.client.output(job)))
    for who, port in ((other, far), (job, int(rig.url.rpartition(":")[2]))):
        with pytest.raises(Conflict, match=f"does not listen at port {port}"):
            rig.client.open_channel(who, "port", port=port)
    tunnel = subprocess.Popen([SCRIPT, "port", job, f"{far}:0"], env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert tunnel.stdout is not None
        near = int(re.findall(r"127\.0\.0\.1:(\d+)", tunnel.stdout.readline())[0])
        for text in ("21 * 2", "'x' * 200_000"):
            with urllib.request.urlopen(f"http://127.0.0.1:{near}/", data=text.encode(), timeout=20) as answer:
                assert answer.read().decode() == str(eval(text))
        rig.client.cancel(job)
        assert tunnel.wait(PATIENCE_S) == 0
    finally:
        tunnel.kill()
        tunnel.wait()
    rig.client.cancel(other)


class Terminal:
    """A command with a terminal of its own, as a person has it."""

    def __init__(self, env: dict[str, str], *words: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(SCRIPT, ["cotenant", *words], {**env, "TERM": "dumb"})
        self.seen = b""

    def until(self, pattern: str) -> str:
        end = time.monotonic() + PATIENCE_S
        while not (found := re.search(pattern.encode(), self.seen)):
            assert time.monotonic() < end, self.seen
            if select.select([self.fd], [], [], 0.5)[0]:
                self.seen += os.read(self.fd, 4096)
        self.seen = self.seen[found.end() :]
        return found[0].decode()

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def end(self) -> int:
        try:
            while os.read(self.fd, 4096):
                pass
        except OSError:
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_a_shell(rig: Live, env: dict[str, str]) -> None:
    """Typed into, left, joined again, a command beside it, and ended with its own exit code."""
    shell = Terminal({**env, "SHELL": "/bin/sh"}, "shell", "--env", "SHELL=/bin/sh", "--gpus", "2")
    job = shell.until(r"job \d+").split()[1]
    shell.until("[#$] $")
    shell.type("echo on $CUDA_VISIBLE_DEVICES\r")
    shell.until("on 0,1|on [0-9],[0-9]")
    shell.type("\x10\x11")
    shell.until("detached")
    assert shell.end() == 0
    beside = Terminal(env, "exec", "-t", job, "--", "sh", "-c", "test -t 1 && echo also $CUDA_VISIBLE_DEVICES; exit 5")
    beside.until("also [0-9],[0-9]")
    assert beside.end() == 5
    again = Terminal(env, "attach", job)
    again.until("on [0-9],[0-9]")
    again.type("exit 3\r")
    assert again.end() == 3
    assert str(rig.client.job(job).state) == "failed"


def test_run_is_as_if_it_ran_here(rig: Live, env: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [SCRIPT, "run", "--name", "mine", "--", "sh", "-c", "printf '\\377out'; echo err >&2; pwd; exit 6"],
        env=env, capture_output=True, cwd=tmp_path, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (6, b"\xffout" + f"{tmp_path}\n".encode())
    assert re.fullmatch(rb"cotenant: job \d+\nerr\n", done.stderr)


@pytest.mark.parametrize(("choice", "state"), [("detach", "running"), ("cancel", "cancelled"), ("ask", "running")])
def test_ctrl_c_in_a_pipe(rig: Live, env: dict[str, str], choice: str, state: str) -> None:
    words = [SCRIPT, "run", "--on-interrupt", choice, "--", "sh", "-c", "echo begun; exec sleep 1000"]
    process = subprocess.Popen(
        words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    job = re.findall(r"job (\d+)", err)[0]
    assert (process.returncode, str(rig.client.job(job).state)) == (130, state)
    if state == "running":
        rig.client.cancel(job)


@pytest.mark.parametrize(("answer", "state"), [("y", "cancelled"), ("n", "running")])
def test_ctrl_c_at_a_terminal_asks(rig: Live, env: dict[str, str], answer: str, state: str) -> None:
    run = Terminal(env, "run", "--", "sh", "-c", "echo begun; exec sleep 1000")
    job = run.until(r"job \d+").split()[1]
    run.until("begun")
    run.type("\x03")
    run.until(r"Cancel job \d+\?")
    run.type(f"{answer}\r")
    assert run.end() == 130
    assert str(rig.client.job(job).state) == state
    if state == "running":
        rig.client.cancel(job)


@pytest.mark.parametrize(
    "words",
    [
        ("exec", "1"), ("run",), ("run", "--on-interrupt", "x", "--", "true"), ("port", "1", "x"), ("port", "1", "0"),
        ("exec", "99", "--", "true"), ("attach", "99"), ("port", "99", "80"),
    ],
)  # fmt: skip
def test_what_means_nothing_is_one_line(env: dict[str, str], words: tuple[str, ...]) -> None:
    done = subprocess.run([SCRIPT, *words], env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
