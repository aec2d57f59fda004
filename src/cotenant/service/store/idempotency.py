"""Submissions by idempotency key: asked again within a day, the answer is the first one, also after a restart.

A key belongs to who used it. It is kept as a digest, beside a digest of what was asked, so that the same key for
another request is seen. The record is in the same append as the jobs: both are on disk or neither is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from cotenant.core.jobspec import runs_of
from cotenant.service.facade import Caller, Conflict

KEEP_KEYS_S = 24 * 3600.0
MOST_KEYS = 10_000  # the oldest are dropped


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """What was asked (a digest of it), when (Unix seconds), and the ids that were given."""

    asked: str
    at_s: float
    ids: list[list[str]]


class Answers:
    """Known answers by digest of caller and key, oldest first."""

    def __init__(self, rows: list[list[Any]] | None = None) -> None:
        self._kept = {name: GivenAnswer(asked, at_s, unpacked(ids)) for name, asked, at_s, ids in rows or ()}

    def put(self, name: str, answer: GivenAnswer) -> None:
        """Keep one more, and drop those whose time is over: by the time of the new one, so that replays agree."""
        self._kept.pop(name, None)
        self._kept[name] = answer
        while len(self._kept) > MOST_KEYS or next(iter(self._kept.values())).at_s < answer.at_s - KEEP_KEYS_S:
            del self._kept[next(iter(self._kept))]

    def get(self, name: str, asked: str, now_s: float) -> list[list[str]] | None:
        """The ids of the first time; None when there was none within the time."""
        answer = self._kept.get(name)
        if answer is None or answer.at_s < now_s - KEEP_KEYS_S:
            return None
        return same(answer, asked).ids

    def shift(self, by_s: float) -> None:
        """The clock was set: every answer was given so much later."""
        self._kept = {name: replace(answer, at_s=answer.at_s + by_s) for name, answer in self._kept.items()}

    def rows(self) -> list[list[Any]]:
        """Everything as plain data."""
        return [[name, answer.asked, answer.at_s, packed(answer.ids)] for name, answer in self._kept.items()]


def same(answer: GivenAnswer, asked: str) -> GivenAnswer:
    """The answer itself, if it was to the same request."""
    if answer.asked != asked:
        raise Conflict("this Idempotency-Key was used for another request: take a new one")
    return answer


def name_of(caller: Caller, key: str) -> str:
    """A digest of whose key this is and which."""
    return hashlib.sha256("\0".join((caller.name, caller.role, caller.tenant, key)).encode()).hexdigest()


def packed(ids: Iterable[Iterable[str]]) -> list[list[Any]]:
    """Ids in short: of each spec its number and, for an array, the stretches of its indexes."""
    parts = [[job.partition(".") for job in mine] for mine in ids]
    return [[mine[0][0], runs_of(int(index) for _, _, index in mine if index)] for mine in parts]


def unpacked(rows: Iterable[list[Any]]) -> list[list[str]]:
    """The inverse of `packed`."""
    return [
        [f"{number}.{index}" for first, last in runs for index in range(first, last + 1)] if runs else [number]
        for number, runs in rows
    ]
