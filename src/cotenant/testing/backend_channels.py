"""What backends owe that offer ways into running jobs (`Capabilities.channels`): programs, terminals, ports."""

from __future__ import annotations

import socket
import sys
import time

import pytest

from cotenant.backends.base import Backend, BackendError
from cotenant.backends.channels import Channel, ChannelPart, ChannelSpec
from cotenant.testing.backend_kit import PATIENCE_S, BackendKit, until


def read_all(channel: Channel) -> tuple[bytes, bytes, ChannelPart]:
    """Everything up to the end: stdout, stderr, the end."""
    found, deadline = {"stdout": b"", "stderr": b""}, time.monotonic() + PATIENCE_S
    while (part := channel.read(1.0)) is None or part.kind != "end":
        assert time.monotonic() < deadline, found
        if part is not None:
            found[part.kind] += part.data
    channel.close()
    return found["stdout"], found["stderr"], part


class ChannelContract(BackendKit):
    """Skipped where a backend does not offer the kind."""

    def test_a_program_beside_a_job(self, backend: Backend) -> None:
        """Its output, its exit code, as often as asked; none beside a job that does not run."""
        program = ChannelSpec("exec", ("sh", "-c", "echo one; echo bad >&2; exit 3"))
        self._offered(backend, "exec")
        for key in ("never-1", "over-1"):
            if key == "over-1":
                backend.launch(self.spec(key, "exit 0"))
                until(backend, key, "exited")
            with pytest.raises(BackendError):
                backend.open_channel(key, program)
        backend.launch(self.spec("into-1", "sleep infinity"))
        until(backend, "into-1", "running")
        for _ in range(2):
            out, err, end = read_all(backend.open_channel("into-1", program))
            assert (out, err, end.exit_code, end.signal) == (b"one\n", b"bad\n", 3, None)
        assert until(backend, "into-1", "running").alive
        backend.kill("into-1")
        until(backend, "into-1", "exited")

    def test_a_terminal_is_joined(self, backend: Backend) -> None:
        """What is typed comes back, as terminals do; who leaves changes nothing; without `tty` there is none."""
        self._offered(backend, "attach")
        backend.launch(self.spec("typed-1", "sleep infinity", tty=True))
        until(backend, "typed-1", "running")
        channel = backend.open_channel("typed-1", ChannelSpec("attach"))
        channel.resize(30, 100)
        assert channel.write(b"hello\n", PATIENCE_S) == 6
        seen, deadline = b"", time.monotonic() + PATIENCE_S
        while b"hello" not in seen:
            assert time.monotonic() < deadline, seen
            part = channel.read(1.0)
            seen += part.data if part is not None else b""
        channel.close()
        assert until(backend, "typed-1", "running").alive
        backend.kill("typed-1")
        until(backend, "typed-1", "exited")
        backend.launch(self.spec("plain-1", "sleep infinity"))
        until(backend, "plain-1", "running")
        with pytest.raises(BackendError):
            read_all(backend.open_channel("plain-1", ChannelSpec("attach")))
        backend.kill("plain-1")
        until(backend, "plain-1", "exited")

    def test_a_port_is_reached(self, backend: Backend) -> None:
        """One at which the job listens, in whichever network it is; no other's, not even on the same machine."""
        self._offered(backend, "port")
        with socket.create_server(("127.0.0.1", 0)) as other:
            taken = ChannelSpec("port", port=other.getsockname()[1])
            with socket.create_server(("127.0.0.1", 0)) as free:
                asked = ChannelSpec("port", port=free.getsockname()[1])
            server = f"{sys.executable} -m http.server {asked.port} --bind 127.0.0.1 &"
            backend.launch(self.spec("serves-1", f"{server}\nsleep infinity"))
            until(backend, "serves-1", "running")
            channel, deadline = None, time.monotonic() + PATIENCE_S
            while channel is None:
                try:
                    channel = backend.open_channel("serves-1", asked)
                except BackendError:
                    assert time.monotonic() < deadline
                    backend.wait_change(0.05)
            channel.write(b"HEAD / HTTP/1.0\r\n\r\n", PATIENCE_S)
            channel.end_input()
            out, _, end = read_all(channel)
            assert b"HTTP/1.0" in out
            assert end.signal is None
            if self.real_processes:
                with pytest.raises(BackendError):
                    backend.open_channel("serves-1", taken)
        backend.kill("serves-1")
        until(backend, "serves-1", "exited")

    def _offered(self, backend: Backend, kind: str) -> None:
        if kind not in backend.capabilities().channels:
            pytest.skip(f"this backend does not offer {kind}")
