"""A small client of the Kubernetes API: plain HTTP, JSON objects as dictionaries, watches as iterators.

What goes wrong is a `BackendError`: `KubeRefused` when the API server said no, `KubeUnreachable` when nobody can tell.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import httpx

from cotenant.backends.base import BackendError, Unreachable
from cotenant.backends.kubernetes.access import KubeAccess

Body = dict[str, Any]

CONNECT_S, ANSWER_S = 3.0, 10.0
WATCH_S = 240  # after so long a watch is begun anew
QUIET_S = 90.0  # a watch from which nothing comes, not even a bookmark, is not believed any more
_MERGE = {"Content-Type": "application/merge-patch+json"}


class KubeUnreachable(Unreachable):
    """The API server does not answer: what runs there is not known."""


class KubeRefused(BackendError):
    """The API server refused: `code` is the HTTP status (404, 409, 410, ...)."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class KubeStream:
    """A response that comes bit by bit. `stop` ends it from any thread."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response

    def lines(self) -> Iterator[str]:
        """Whole lines; an end without warning is an end."""
        try:
            yield from self._response.iter_lines()
        except httpx.HTTPError as error:
            raise KubeUnreachable(f"the connection to the cluster broke: {error}") from None

    def chunks(self) -> Iterator[bytes]:
        """Bytes as they come."""
        try:
            yield from self._response.iter_raw()
        except httpx.HTTPError as error:
            raise KubeUnreachable(f"the connection to the cluster broke: {error}") from None

    def stop(self) -> None:
        """Whoever reads sees the end at once."""
        stream = self._response.extensions.get("network_stream")
        with suppress(OSError, AttributeError):
            stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]


class KubeClient:
    """One cluster. May be used from any thread."""

    def __init__(self, access: KubeAccess) -> None:
        self.access = access
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=16, keepalive_expiry=30.0)
        verify: Any = access.tls if access.tls is not None else True
        wait = httpx.Timeout(ANSWER_S, connect=CONNECT_S)
        self._http = httpx.Client(base_url=access.server, verify=verify, timeout=wait, limits=limits, trust_env=False)

    def get(self, path: str, **query: str) -> Body:
        """An object, or a list of them."""
        return self._ask("GET", path, params=query)

    def create(self, path: str, body: Body) -> Body:
        """A new object; `KubeRefused` 409 where there is one of the name."""
        return self._ask("POST", path, json=body)

    def patch(self, path: str, body: Body) -> Body:
        """A JSON merge patch."""
        return self._ask("PATCH", path, content=json.dumps(body), headers=_MERGE)

    def replace(self, path: str, body: Body) -> Body:
        """The whole object; 409 where it has changed since it was read."""
        return self._ask("PUT", path, json=body)

    def delete(self, path: str, grace_s: int | None = None, uid: str = "") -> Body:
        """Ask an object to go."""
        body: Body = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        if uid:
            body["preconditions"] = {"uid": uid}
        return self._ask("DELETE", path, json=body)

    @contextmanager
    def stream(self, path: str, query: Mapping[str, str], quiet_s: float = QUIET_S) -> Iterator[KubeStream]:
        """A response that is read while it comes; `KubeUnreachable` where nothing does for `quiet_s`."""
        wait = httpx.Timeout(quiet_s, connect=CONNECT_S)
        try:
            with self._http.stream("GET", path, params=query, headers=self._headers(), timeout=wait) as response:
                if response.status_code >= 300:
                    response.read()
                    raise _refusal(response)
                yield KubeStream(response)
        except httpx.HTTPError as error:
            raise self._away(error) from None

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    def _headers(self) -> dict[str, str]:
        token = self.access.token()
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _ask(self, method: str, path: str, headers: Mapping[str, str] | None = None, **more: Any) -> Body:
        try:
            response = self._http.request(method, path, headers={**self._headers(), **(headers or {})}, **more)
        except httpx.HTTPError as error:
            raise self._away(error) from None
        if response.status_code >= 300:
            raise _refusal(response)
        try:
            found: Body = response.json()
        except ValueError:
            raise KubeUnreachable(f"{self.access.server} answers, but not as a Kubernetes API server does") from None
        return found

    def _away(self, error: Exception) -> KubeUnreachable:
        why = str(error) or type(error).__name__
        return KubeUnreachable(f"the Kubernetes API server {self.access.server} does not answer ({why})")


def _refusal(response: httpx.Response) -> BackendError:
    """5xx and 429 say nothing about what was asked: the server is in trouble."""
    try:
        message = str(response.json().get("message") or response.text)
    except (ValueError, AttributeError):
        message = response.text[:300]
    if response.status_code >= 500 or response.status_code == 429:
        return KubeUnreachable(f"the Kubernetes API server is in trouble ({response.status_code}): {message}")
    if response.status_code == 401:
        return KubeUnreachable(f"the Kubernetes API server does not know us: {message}: check the kubeconfig's user")
    return KubeRefused(response.status_code, message)
