from __future__ import annotations

import asyncio
import contextlib
import json
import math
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.runtime import protocol as p
from cotenant.runtime.server import RuntimeServer

COUNT = st.integers(0, 10**12)
SECONDS = st.floats(0, 1e9)
TEXT = st.text(max_size=50)
SETTINGS = {
    "batch_size": st.none() | st.integers(1, 10**6),
    "accumulation": st.none() | st.integers(1, 1000),
    "workers": st.none() | st.integers(0, 1000),
    "gpus": st.none() | st.integers(0, 1000),
    "throttle_s": st.none() | SECONDS,
    "learning_rate_scale": st.none() | st.floats(1e-6, 1e6),
    "gpu_mem_gib": st.none() | st.floats(1e-3, 1e6),
}
MESSAGES = st.one_of(
    st.builds(p.Hello, TEXT, TEXT, COUNT, COUNT, COUNT),
    st.builds(p.Progress, COUNT, st.none() | COUNT, SECONDS, st.dictionaries(TEXT, st.floats(allow_nan=False))),
    st.builds(p.Restored, COUNT, TEXT, SECONDS),
    st.builds(p.Checkpoint, COUNT, TEXT, SECONDS),
    st.builds(p.Stopping, COUNT, st.booleans()),
    st.builds(p.Declined, COUNT, TEXT),
    st.builds(p.Done, COUNT),
    st.builds(p.Welcome, **SETTINGS),
    st.builds(p.Set, **SETTINGS),
    st.builds(p.Stop, SECONDS),
    st.builds(p.Refused, TEXT),
)


@given(MESSAGES)
def test_every_message_survives_the_wire(message: p.Message) -> None:
    line = p.encode(message)
    assert line.count(b"\n") == 1
    assert p.decode(line) == message


@given(st.binary(max_size=200))
def test_garbage_is_a_protocol_error_and_nothing_else(line: bytes) -> None:
    with pytest.raises(p.ProtocolError):
        p.decode(line)


@given(st.dictionaries(st.sampled_from(["type", "step", "batch_size", "metrics", "token"]), st.text() | COUNT))
def test_wrong_types_are_a_protocol_error_or_an_unknown_message(body: dict[str, object]) -> None:
    with contextlib.suppress(p.ProtocolError):
        p.decode(json.dumps(body).encode())


def test_a_loss_that_is_no_number_is_valid_json() -> None:
    line = p.encode(p.Progress(3, None, 0.1, {"loss": math.nan, "norm": math.inf}))
    assert b'"nan"' in line
    assert b'"inf"' in line
    back = p.decode(line)
    assert isinstance(back, p.Progress)
    assert math.isnan(back.metrics["loss"])
    assert back.metrics["norm"] == math.inf


def test_unknown_fields_and_types_are_ignored() -> None:
    assert p.decode(b'{"type":"dance"}') is None
    assert p.decode(b'{"type":"stop","grace_s":2,"mood":"calm"}') == p.Stop(2.0)


@pytest.mark.parametrize("field", ['"batch_size":0', '"workers":-1', '"throttle_s":"nan"', '"gpus":1.5', '"gpus":true'])
def test_impossible_settings_are_refused(field: str) -> None:
    with pytest.raises(p.ProtocolError):
        p.decode(b'{"type":"set",' + field.encode() + b"}")


def test_a_line_has_a_limit() -> None:
    with pytest.raises(p.ProtocolError):
        p.encode(p.Refused("x" * p.MAX_LINE))


def test_the_token_stays_out_of_logs() -> None:
    assert "secret" not in repr(p.Hello("secret", "j", 0, 1))


def test_settings_on_top_of_settings() -> None:
    assert p.Settings(batch_size=8, gpus=1).updated(p.Set(gpus=2)) == p.Settings(batch_size=8, gpus=2)


def test_a_job_that_was_killed_with_words_unread_is_no_news(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its kernel resets the connection."""

    async def play() -> None:
        server = RuntimeServer([f"unix:{tmp_path / 's'}"], lambda hello: p.Settings(), lambda hello, message: None)
        await server.start()
        job = socket.socket(socket.AF_UNIX)
        await asyncio.to_thread(job.connect, str(tmp_path / "s"))
        job.sendall(p.encode(p.Hello("token", "1", 1, 1)))
        while not server.send("1", p.Stop(1.0)):
            await asyncio.sleep(0)
        job.close()
        while server._tasks:
            await asyncio.sleep(0)
        await server.stop()

    asyncio.run(play())
    assert caplog.messages == []
