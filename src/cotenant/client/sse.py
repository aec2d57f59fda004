"""Server-sent events, as the HTML standard (9.2.6) reads them, as far as ours use it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Sent:
    """One event."""

    kind: str
    data: dict[str, Any]
    id: str = ""


def read(lines: Iterable[str]) -> Iterator[Sent]:
    """Events from lines; comments and empty ones vanish."""
    kind, data, id_ = "message", "", ""
    for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                yield Sent(kind, json.loads(data), id_)
            kind, data, id_ = "message", "", ""
        elif name == "event":
            kind = value
        elif name == "data":
            data += value
        elif name == "id":
            id_ = value
