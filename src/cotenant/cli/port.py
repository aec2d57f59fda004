"""`cotenant port`: a port of a running job, here."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.cli import remote, terminal

if TYPE_CHECKING:
    from cotenant.client import Client

_PART = 64 << 10
_LOOK_S = 2.0


def port(
    job: remote.Job,
    ports: Annotated[str, typer.Argument(help="REMOTE, or REMOTE:LOCAL; LOCAL 0 takes one that is free.")],
) -> None:
    """Reach a port at which a job listens from here: `cotenant port 7 8888`, then http://127.0.0.1:8888.

    It listens on 127.0.0.1 only, and ends with the job or with Ctrl-C, which leaves the job alone.
    """
    from cotenant.core.errors import InputError
    from cotenant.core.lifecycle import FINAL

    far, near = _numbers(ports)
    with remote.detaching(f"job {job} goes on", code=0), remote.connected() as client:
        client.open_channel(job, "port", port=far).close()  # whatever is wrong is said now
        try:
            listener = socket.create_server(("127.0.0.1", near))
        except OSError as error:
            fix = f"cotenant port {job} {far}:0 takes a free one"
            raise InputError(f"cannot listen at 127.0.0.1:{near}: {error.strerror or error}: {fix}") from None
        with listener:
            listener.settimeout(_LOOK_S)
            typer.echo(f"127.0.0.1:{listener.getsockname()[1]} leads to port {far} of job {job}; Ctrl-C ends it")
            while True:
                try:
                    local = listener.accept()[0]
                except TimeoutError:
                    if client.job(job).state in FINAL:
                        terminal.say(f"job {job} has ended")
                        return
                    continue
                threading.Thread(target=_carry, args=(client, job, far, local), daemon=True).start()


def _numbers(text: str) -> tuple[int, int]:
    from cotenant.core.errors import InputError

    far, colon, near = text.partition(":")
    good = far.isdigit() and (near.isdigit() or not colon) and 0 < int(far) < 65536 and int(near or 0) < 65536
    if not good:
        raise InputError(f"port '{text}': write 8888, or 8888:9999 to listen at 9999 here")
    return int(far), int(near) if colon else int(far)


def _carry(client: Client, job: str, far: int, local: socket.socket) -> None:
    """One connection, both ways."""
    from cotenant.core.errors import CotenantError

    with local:
        local.settimeout(None)
        try:
            channel = client.open_channel(job, "port", port=far)
        except CotenantError as error:
            terminal.say(str(error))
            return

        def inward() -> None:
            with suppress(CotenantError, OSError):
                while data := local.recv(_PART):
                    channel.write(data)
                channel.end_input()

        threading.Thread(target=inward, daemon=True).start()
        with suppress(CotenantError, OSError):
            for _, data in channel.output():
                local.sendall(data)
        with suppress(OSError):
            local.shutdown(socket.SHUT_RDWR)
