"""Ways into running jobs over plain HTTP: what comes out is one streamed answer, what goes in are small requests.

A channel is its caller's alone. It lives as long as its answer is read: who opens one and does not read it, or stops
reading, hangs up.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated, Any

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, model_validator

from cotenant.api import schemas as s
from cotenant.api.door import answer, caller_of, door_of, encode, places_of
from cotenant.api.limits import one_line
from cotenant.api.streams import Listener
from cotenant.backends.channels import Channel, ChannelKind, ChannelPart, ChannelSpec
from cotenant.core.errors import CotenantError
from cotenant.core.frames import frame
from cotenant.service.facade import Caller, Conflict, NotFound, Unavailable

MOST_CHANNELS = 256
MOST_PER_CALLER = 64
WAIT_S = 1.0
UNREAD_S = 15.0

router = APIRouter(tags=["channels"])
ChannelId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$", description="As the answer that opened it said.")]
_Word = Annotated[str, Field(max_length=100_000, pattern=r"^[^\x00]*$")]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]


class AskedChannel(BaseModel):
    """A program beside the job (`exec`), its terminal (`attach`), or a TCP port at which it listens (`port`)."""

    model_config = ConfigDict(extra="forbid")

    kind: ChannelKind
    argv: list[_Word] = Field(default=[], max_length=1000)
    env: dict[_Name, _Word] = Field(default={}, max_length=100)
    tty: bool = False
    port: int = Field(default=0, ge=0, le=65535)

    @model_validator(mode="after")
    def _whole(self) -> AskedChannel:
        if self.kind == "exec" and not (self.argv and self.argv[0]):
            raise ValueError("argv: give the program to run")
        if self.kind == "port" and not self.port:
            raise ValueError("port: give the number of a port")
        return self

    def spec(self) -> ChannelSpec:
        """As backends take it."""
        return ChannelSpec(self.kind, tuple(self.argv), tuple(self.env.items()), self.tty, self.port)


class OpenedChannel(BaseModel):
    """Its id."""

    channel: str


class Taken(BaseModel):
    """How many bytes of the body were taken; send the rest again."""

    taken: int


@dataclass(slots=True)
class _Open:
    channel: Channel
    caller: Caller
    opened_s: float = field(default_factory=time.monotonic)
    read: bool = False  # somebody has come for it
    begun: bool = False  # and has begun to get it


class OpenChannels:
    """All of an application. Each that is read may hold a thread: they are bounded, and have threads of their own."""

    def __init__(self) -> None:
        self._all: dict[str, _Open] = {}
        self.readers, self.writers = CapacityLimiter(MOST_CHANNELS), CapacityLimiter(MOST_CHANNELS)

    def add(self, channel: Channel, caller: Caller) -> str:
        """Take one in."""
        name = secrets.token_hex(16)
        self._all[name] = _Open(channel, caller)
        return name

    def check_room(self, caller: Caller) -> None:
        """Raise where there is none. Those that nobody came for are closed."""
        late_s = time.monotonic() - UNREAD_S
        for name in [name for name, one in self._all.items() if not one.begun and one.opened_s < late_s]:
            self.drop(name)
        mine = sum(one.caller == caller for one in self._all.values())
        if mine >= MOST_PER_CALLER or len(self._all) >= MOST_CHANNELS:
            raise Unavailable(f"{mine} channels of yours are open, of {len(self._all)}: close one")

    def of(self, caller: Caller, name: str) -> _Open:
        """One of the caller's own."""
        found = self._all.get(name)
        if found is None or found.caller != caller:
            raise NotFound(f"there is no channel '{name}'")
        return found

    def drop(self, name: str) -> None:
        """Close one, if it is there."""
        if (found := self._all.pop(name, None)) is not None:
            found.channel.close()


def _channels(request: Request) -> OpenChannels:
    found: OpenChannels = request.app.state.channels
    return found


@router.post("/v1/jobs/{job}/channels", status_code=201, responses=s.answers(OpenedChannel, 404, 409, status=201))
async def open_channel(request: Request, job: s.JobId, body: AskedChannel) -> Response:
    """Open a way into a running job; then read it with `GET /v1/channels/{id}`, which has to come soon."""
    door, caller, channels = door_of(request), caller_of(request), _channels(request)
    channels.check_room(caller)
    channel = await door.call(door.desk.open_channel, caller, job, body.spec())
    return answer(encode({"channel": channels.add(channel, caller)}), 201)


_OUTPUT: dict[int | str, dict[str, Any]] = {
    **s.answers(None, 404, 409),
    200: {
        "description": "Messages of a letter, four bytes of length (big-endian) and that many bytes: `O`, `E` output, "
        "`N` nothing new, `Q` the end (`code 3`, `signal 9` or nothing), `F` what went wrong.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
}


@router.get("/v1/channels/{channel}", responses=_OUTPUT, response_class=Response)
async def output(request: Request, channel: ChannelId) -> Response:
    """What comes out, until its end. Once only: who stops reading hangs up."""
    channels = _channels(request)
    found = channels.of(caller_of(request), channel)
    if found.read:
        raise Conflict(f"channel '{channel}' is read already")
    places = places_of(request)
    seat = places.enter_context(door_of(request).shares.streams.taken(caller_of(request)))
    places.callback(channels.drop, channel)
    found.read = True

    async def frames() -> AsyncIterator[bytes]:
        found.begun = True
        try:
            async for text in _frames(Listener(request, seat), found.channel, channels.readers):
                yield text
        except CotenantError as error:
            yield frame("F", one_line(str(error)).encode())

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(frames(), headers=headers, media_type="application/octet-stream")


async def _frames(listener: Listener, channel: Channel, threads: CapacityLimiter) -> AsyncIterator[bytes]:
    yield frame("N", b"")
    while await listener.may_go_on():
        part = await to_thread.run_sync(channel.read, WAIT_S, limiter=threads)
        if part is None:
            if listener.heartbeat(False):
                yield frame("N", b"")
            continue
        listener.heartbeat(True)
        yield _framed(part)
        if part.kind == "end":
            return
    yield frame("F", b"the token is no longer valid, or the service ends")


def _framed(part: ChannelPart) -> bytes:
    if part.kind != "end":
        return frame("O" if part.kind == "stdout" else "E", part.data)
    how = f"code {part.exit_code}" if part.exit_code is not None else f"signal {part.signal}" if part.signal else ""
    return frame("Q", how.encode())


_INPUT = {"requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}}


@router.post("/v1/channels/{channel}/input", responses=s.answers(Taken, 404), openapi_extra=_INPUT)
async def put_in(request: Request, channel: ChannelId, end: s.Flag = s.Flag.FALSE) -> Response:
    """Input, the bytes of the body; one request at a time. `end=true` says that no more will come."""
    channels, body = _channels(request), await request.body()
    into = channels.of(caller_of(request), channel).channel

    def act() -> int:
        taken, until = 0, time.monotonic() + WAIT_S
        while taken < len(body) and (count := into.write(body[taken:], until - time.monotonic())):
            taken += count
        if end is s.Flag.TRUE and taken == len(body):
            into.end_input()
        return taken

    return answer(encode({"taken": await to_thread.run_sync(act, limiter=channels.writers)}))


_Side = Annotated[int, Query(ge=1, le=65535)]


@router.post("/v1/channels/{channel}/size", status_code=204, responses=s.answers(None, 404, status=204))
async def resize(request: Request, channel: ChannelId, rows: _Side, cols: _Side) -> Response:
    """How large the caller's terminal is."""
    _channels(request).of(caller_of(request), channel).channel.resize(rows, cols)
    return Response(status_code=204)


@router.delete("/v1/channels/{channel}", status_code=204, responses=s.answers(None, 404, status=204))
async def hang_up(request: Request, channel: ChannelId) -> Response:
    """Close it."""
    channels = _channels(request)
    channels.of(caller_of(request), channel)
    await asyncio.to_thread(channels.drop, channel)
    return Response(status_code=204)
