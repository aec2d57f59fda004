"""The application: gate, limit, routes, and one form for every error."""

from __future__ import annotations

import logging
from math import ceil
from typing import TYPE_CHECKING, Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from cotenant import __version__
from cotenant.api import (
    accounts,
    channels,
    cluster,
    doors,
    jobs,
    pictures,
    several,
    simulations,
    tenants,
    whatif,
    window,
)
from cotenant.api.auth import Gate
from cotenant.api.door import Door, DoorSettings, Forbidden, answer, encode, known_query
from cotenant.api.limits import BodyLimit, one_line
from cotenant.backends.base import BackendError
from cotenant.core.errors import CotenantError, InputError
from cotenant.journal import JournalError
from cotenant.service.facade import Conflict, NotAllowed, NotFound, TooMany, Unavailable

if TYPE_CHECKING:
    from cotenant.service.core import CoreService

_log = logging.getLogger(__name__)
_STATUS: tuple[tuple[type[CotenantError], int], ...] = (
    (NotAllowed, 403),
    (NotFound, 404),
    (Conflict, 409),
    (TooMany, 429),
    (Unavailable, 503),
    (JournalError, 503),
    (BackendError, 503),
    (InputError, 422),
)


def make_app(service: CoreService, settings: DoorSettings | None = None, **more: Any) -> FastAPI:
    """The HTTP side of a service. Settings are given as an object, or one by one."""
    door = Door(service, settings or DoorSettings(**more))
    limits = door.settings.limits
    app = FastAPI(
        title="Cotenant",
        version=__version__,
        description="The scheduler for shared GPU clusters. Needs a token, or the cookie of a browser that signed in.",
        middleware=[
            Middleware(Gate, door=door),
            Middleware(BodyLimit, most=door.settings.most_body_bytes, most_s=limits.body_s, but=(simulations.PATH,)),
        ],
        redirect_slashes=False,
        docs_url=None,  # it would fetch scripts from elsewhere into the origin of the page
        redoc_url=None,
    )
    app.state.door, app.state.questions = door, whatif.Questions()
    app.state.channels = channels.OpenChannels()
    app.state.simulations = simulations.Simulations(door.settings.simulations)
    app.include_router(jobs.router, dependencies=[Depends(known_query)])
    app.include_router(doors.router, dependencies=[Depends(known_query)])
    app.include_router(cluster.router, dependencies=[Depends(known_query)])
    app.include_router(accounts.router, dependencies=[Depends(known_query)])
    app.include_router(channels.router, dependencies=[Depends(known_query)])
    app.include_router(pictures.router, dependencies=[Depends(known_query)])
    app.include_router(several.router, dependencies=[Depends(known_query)])
    app.include_router(simulations.router, dependencies=[Depends(known_query)])
    app.include_router(tenants.router, dependencies=[Depends(known_query)])
    app.include_router(whatif.router, dependencies=[Depends(known_query)])
    app.include_router(window.router, dependencies=[Depends(known_query)])
    app.add_exception_handler(CotenantError, _ours)
    app.add_exception_handler(Forbidden, _forbidden)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _bug)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    return app


def _error(status: int, text: str) -> Response:
    return answer(encode({"error": one_line(text)}), status)


def _ours(_: Request, error: Exception) -> Response:
    for kind, status in _STATUS:
        if isinstance(error, kind):
            response = _error(status, str(error))
            if isinstance(error, TooMany) and error.retry_s > 0:
                response.headers["Retry-After"] = str(ceil(error.retry_s))
            return response
    _log.error("a request failed: %s: %s", type(error).__name__, one_line(str(error)))
    return _error(500, "internal error: see the service's log")


def _forbidden(_: Request, error: Exception) -> Response:
    return _error(403, str(error))


def _http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = {404: "no such path", 405: "no such method for this path", 400: "the body is not JSON in UTF-8"}
    status = 422 if error.status_code == 400 else error.status_code
    response = _error(status, text.get(error.status_code, str(error.detail)))
    response.headers.update(error.headers or {})
    return response


def _invalid(_: Request, error: Exception) -> Response:
    """The first complaint in one line; what was sent is not repeated, it may be a secret."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    pattern = first["type"] == "string_pattern_mismatch"
    return _error(422, f"{where}: {'it has characters that it may not have, or too many' if pattern else first['msg']}")


def _bug(_: Request, error: Exception) -> Response:
    return _error(500, "internal error: see the service's log")


def _document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags
        )
        document.setdefault("components", {})["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"bearer": []}]
        app.openapi_schema = document
    return app.openapi_schema
