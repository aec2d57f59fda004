"""What besiegers do, each in a process of its own: `python -m bench.siege_attacks PORT SECONDS NAME TOKENS`.

Loopback only and bounded: so many connections, so many tries a second. They run at low priority, for in life they
would not share the service's processors.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

HALF_OPEN, SLOW, MANY = 1100, 300, 1000
RATE = 200.0  # tries a second
GET = "GET {path} HTTP/1.1\r\nHost: siege\r\nAuthorization: Bearer {token}\r\n\r\n"
POST = "POST /v1/jobs HTTP/1.1\r\nHost: siege\r\nAuthorization: Bearer {token}\r\nContent-Length: {length}\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Target:
    """Where to, and with whose tokens."""

    port: int
    tokens: list[str]


@contextlib.asynccontextmanager
async def connected(target: Target):  # type: ignore[no-untyped-def]
    reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
    try:
        yield reader, writer
    finally:
        writer.close()


Attack = Callable[[Target, int], Awaitable[None]]


async def half_open(target: Target, number: int) -> None:
    async with connected(target) as (reader, writer):
        writer.write(b"GET /v1/jobs HTTP/1.1\r\nHos")
        await reader.read(100)


async def slow(target: Target, number: int) -> None:
    """A header, or the body of a good caller, one byte a second."""
    async with connected(target) as (_, writer):
        if number % 2:
            writer.write(POST.format(token=target.tokens[0], length=1000).encode())
        for byte in itertools.cycle(b"X-Slow: 1\r\n"):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(1.0)


async def oversized(target: Target, number: int) -> None:
    async with connected(target) as (reader, writer):
        if number % 2:
            writer.write(b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000)
        else:
            writer.write(POST.format(token=target.tokens[0], length=4 << 20).encode() + b"x" * (4 << 20))
        await writer.drain()
        await reader.read(1000)


async def malformed(target: Target, number: int) -> None:
    async with connected(target) as (reader, writer):
        writer.write(random.Random(number).randbytes(200) + b"\r\n\r\n")
        await reader.read(1000)


async def wrong_tokens(target: Target, number: int) -> None:
    async with connected(target) as (reader, writer):
        for guess in range(20):
            writer.write(GET.format(path="/v1/jobs", token=f"ct_{number}-{guess}").encode())
            if not await reader.read(1000):
                return


async def streams(target: Target, number: int) -> None:
    token = target.tokens[number % len(target.tokens)]
    async with connected(target) as (reader, writer):
        writer.write(GET.format(path="/v1/events/stream?after=-1", token=token).encode())
        while await reader.read(65536):
            pass


async def polls(target: Target, number: int) -> None:
    token = target.tokens[number % len(target.tokens)]
    async with connected(target) as (reader, writer):
        while True:
            writer.write(GET.format(path="/v1/events?after=-1&wait=30", token=token).encode())
            if b" 200 " not in await reader.read(65536):
                return


ATTACKS: dict[str, tuple[Attack, int]] = {
    "half-open": (half_open, HALF_OPEN),
    "slow": (slow, SLOW),
    "oversized": (oversized, 20),
    "malformed": (malformed, 50),
    "wrong-tokens": (wrong_tokens, 50),
    "streams": (streams, MANY),
    "polls": (polls, MANY),
}


async def besiege(name: str, target: Target, seconds: float) -> int:
    """Keep as many at it as the attack has, begun anew at a bounded rate; how many were begun."""
    attack, most = ATTACKS[name]
    running: set[asyncio.Task[None]] = set()
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in itertools.count():
        if loop.time() - began >= seconds:
            break
        if len(running) < most:
            task = asyncio.create_task(_tolerant(attack, target, number))
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.sleep(max(0.0, began + number / RATE - loop.time()))
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    return number


async def _tolerant(attack: Attack, target: Target, number: int) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        await attack(target, number)


def main() -> None:
    port, seconds, name, tokens = sys.argv[1:]
    os.nice(10)
    begun = asyncio.run(besiege(name, Target(int(port), json.loads(tokens)), float(seconds)))
    print(begun)


if __name__ == "__main__":
    main()
