"""The user's terminal and a channel into a job, put together; and how the end of a job becomes an exit code."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from cotenant.client import Client
    from cotenant.client.channel import ClientChannel
    from cotenant.service.facade import JobInfo

_PART = 64 << 10
_LEAVE = b"\x10\x11"  # Ctrl-P Ctrl-Q, as elsewhere


class Left(Exception):
    """The user has typed that he leaves."""


def exit_code(info: JobInfo) -> int:
    """Of a job that has ended: its own, 128 and the signal's number, 130 if it was cancelled."""
    if info.state == "succeeded":
        return 0
    last = info.attempts[-1] if info.attempts else None
    if info.state == "cancelled" or last is None:
        return 130 if info.state == "cancelled" else 1
    return last.exit_code or (128 + last.signal if last.signal else 1)


def show_output(client: Client, job: str, tail: int | None = None) -> None:
    """Follow a job to its end. On a terminal both streams as they came, else each to its own."""
    from cotenant.cli import remote

    if sys.stdout.isatty():
        for data in client.output(job, follow=True, stream="merged", tail=tail, on_gap=remote.tell_gap):
            remote.write(data)
        return

    def errors() -> None:
        with suppress(Exception):  # whatever it is, the other stream tells it
            for data in client.output(job, follow=True, stream="stderr", tail=tail):
                os.write(2, data)

    thread = threading.Thread(target=errors, daemon=True)
    thread.start()
    for data in client.output(job, follow=True, tail=tail, on_gap=remote.tell_gap):
        remote.write(data)
    thread.join()


def talk(channel: ClientChannel, tty: bool) -> None:
    """Until its end: standard input goes in, what comes out is shown. With `tty` every key goes there, Ctrl-C too.

    Ctrl-P Ctrl-Q leaves a terminal (`Left`).
    """
    left = threading.Event()
    raw = tty and sys.stdin.isatty()
    with _raw() if raw else nullcontext(), _sized(channel) if tty else nullcontext():
        threading.Thread(target=_feed, args=(channel, left if raw else None), daemon=True).start()
        try:
            for stream, data in channel.output():
                _write(1 if stream == "stdout" else 2, data)
        except KeyboardInterrupt:
            with suppress(Exception):
                channel.close()
            raise
        except Exception:
            if left.is_set():
                raise Left from None
            raise
        if left.is_set() and channel.exit_code is None:
            raise Left


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _feed(channel: ClientChannel, left: threading.Event | None) -> None:
    """In a thread of its own: it ends with the process, since nothing can wake it. Nobody waits for what fails here."""
    before = b""
    with suppress(Exception):
        while data := os.read(0, _PART):
            if left is not None and _LEAVE in before + data:
                left.set()
                channel.close()
                return
            before = data[-1:]
            channel.write(data)
        channel.end_input()


@contextmanager
def _raw() -> Iterator[None]:
    import termios
    import tty

    before = termios.tcgetattr(0)
    tty.setraw(0, termios.TCSADRAIN)  # what was typed ahead is for the job
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


@contextmanager
def _sized(channel: ClientChannel) -> Iterator[None]:
    """Tell the channel how large the terminal is, now and whenever that changes."""

    def tell(*_: object) -> None:
        size = shutil.get_terminal_size()
        with suppress(Exception):
            channel.resize(size.lines, size.columns)

    tell()
    before = signal.signal(signal.SIGWINCH, lambda *_: threading.Thread(target=tell, daemon=True).start())
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


def terminal_name() -> str:
    """TERM for a program that is to draw on this terminal."""
    return os.environ.get("TERM") or "xterm"


def say(text: str) -> None:
    """A line of ours, apart from what the job prints."""
    typer.echo(f"cotenant: {text}", err=True)
