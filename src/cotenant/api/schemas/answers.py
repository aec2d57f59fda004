"""What a route may answer, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from cotenant.api.schemas.parameters import TEXT
from cotenant.api.schemas.shown import Error

Reason = dict[str, Any]
SENT: dict[str, Any] = {
    "description": "One server-sent event; data is JSON.",
    "type": "object",
    "required": ["event", "data"],
    "properties": {"event": TEXT, "data": TEXT, "id": TEXT},
}
_TEXTS = {
    401: "No valid token.",
    403: "The token is good, but not for this.",
    404: "No such thing, or not yours.",
    409: "Not in a state that allows it.",
    408: "The body took too long.",
    413: "The body is too large.",
    422: "The request is wrong; the text says where.",
    429: "You have had your share for now; others have not.",
    503: "Not now (disk full, starting, shutting down, too many streams); nothing was lost.",
}


def answers(model: Any, *more: int, status: int = 200, text: str = "Done.") -> dict[int | str, dict[str, Any]]:
    """The documented answers of a route: its own, and those that any route may give."""
    codes = sorted({401, 403, 408, 413, 422, 429, 503, *more})
    own: dict[str, Any] = {"description": text}
    if model is not None:
        own["model"] = model
    return {status: own, **{code: {"model": Error, "description": _TEXTS[code]} for code in codes}}
