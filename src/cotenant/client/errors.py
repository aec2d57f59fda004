"""An answer that is an error, as the exception that the service raised."""

from __future__ import annotations

from cotenant.core.errors import CotenantError, InputError
from cotenant.service.facade import Conflict, NotFound, TooMany, Unavailable

STANDBY = "Cotenant-Standby"  # the header of whoever waits while another service leads


class Denied(CotenantError):
    """No valid token, or one that is not for this."""


class Unreachable(Unavailable):
    """Nobody answered. What was asked may or may not have been done, unless the text says more."""


class NotThere(Unreachable):
    """Nobody listens: nothing was asked of anybody."""


def error_for(status: int, text: str) -> CotenantError:
    """The exception for a status."""
    kinds: dict[int, type[CotenantError]] = {
        401: Denied, 403: Denied, 404: NotFound, 409: Conflict, 413: InputError, 422: InputError,
        429: TooMany, 503: Unavailable,
    }  # fmt: skip
    return kinds.get(status, CotenantError)(text or f"the service answered {status}")
