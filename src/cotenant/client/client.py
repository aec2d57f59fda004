"""The service from Python, over HTTP: the methods, values and errors of `cotenant.service.facade.Service`."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import httpx

from cotenant.client import codec, sse
from cotenant.client.connection import READ_S, open_http, timeout
from cotenant.client.errors import Denied, Unreachable, error_for
from cotenant.client.home import PIN, find
from cotenant.core.errors import CotenantError, InputError
from cotenant.core.jobspec import JobSpec
from cotenant.core.lifecycle import FINAL
from cotenant.service.facade import EventInfo, JobInfo, NodeStatus, Role, TokenInfo

TRIES = 3
LONG_POLL_S = 10.0
RECHECK_S = 15.0
_SAFE = frozenset({"GET", "HEAD"})


class Client:
    """A connection to a service. Only what changes nothing is tried again by itself.

    Url and token come from the arguments, else COTENANT_URL and COTENANT_TOKEN, else from what the service left in
    COTENANT_HOME: its socket, or the files `url` and `token`. A token is sent only to who has proved to be its service
    (`cotenant.client.connection`). May be shared by threads, and closed or used with `with`.
    """

    def __init__(self, url: str | None = None, token: str | None = None, *, timeout_s: float = READ_S) -> None:
        target = find(url, token)
        self.url, self._read_s = target.url, timeout_s
        self._has_token, self._signed_on = bool(target.secret), target.signed_on
        self._http = open_http(target, timeout_s)

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    # --- jobs -------------------------------------------------------------------------------------------------------

    def submit(self, jobs: Sequence[JobSpec | Mapping[str, Any]], *, key: str = "") -> list[list[str]]:
        """Durable when it returns: the ids per job, several for an array. Jobs are specs or mappings as in the YAML.

        Where the answer is lost, the same call with the same `key` gives it again (while the service lives).
        """
        key = key or uuid.uuid4().hex
        body = {"jobs": [codec.mapping(item) if isinstance(item, JobSpec) else dict(item) for item in jobs]}
        try:
            ids: list[list[str]] = self._ask("POST", "/v1/jobs", json=body, headers={"Idempotency-Key": key})["ids"]
        except Unreachable as error:
            if "no service at" in str(error):
                raise
            raise Unreachable(f"{error}; it may have been taken: look with `cotenant ps` (key {key})") from None
        return ids

    def jobs(self, *, states: Sequence[str] = (), limit: int = 1000) -> list[JobInfo]:
        """Jobs that you may see, newest last; without spec and attempts."""
        found = self._ask("GET", "/v1/jobs", params={"state": [str(item) for item in states], "limit": limit})
        return [codec.job(item) for item in found["jobs"]]

    def job(self, job: str) -> JobInfo:
        """One job with spec and attempts."""
        return codec.job(self._ask("GET", _path("/v1/jobs", job)))

    def why(self, job: str) -> dict[str, Any]:
        """The reason of one job, as `Reason.as_dict`."""
        return self._ask("GET", _path("/v1/jobs", job, "why"))

    def deadline(self, job: str) -> dict[str, Any]:
        """What is said about its deadline: verdict, text, and the earliest end that can be promised."""
        return self._ask("GET", _path("/v1/jobs", job, "deadline"))

    def cancel(self, job: str) -> JobInfo:
        """Ask a job to end for good."""
        return codec.job(self._ask("POST", _path("/v1/jobs", job, "cancel")))

    def hold(self, job: str) -> JobInfo:
        """Keep a job from starting; a running one is preempted and then held."""
        return codec.job(self._ask("POST", _path("/v1/jobs", job, "hold")))

    def resume(self, job: str) -> JobInfo:
        """Let a held job go on."""
        return codec.job(self._ask("POST", _path("/v1/jobs", job, "resume")))

    def set(self, job: str, changes: Mapping[str, Any]) -> JobInfo:
        """Change priority, deadline, max_runtime, retries, name or expected of a job that has not ended."""
        return codec.job(self._ask("PATCH", _path("/v1/jobs", job), json=dict(changes)))

    def wait(self, jobs: Sequence[str], timeout_s: float | None = None) -> list[JobInfo]:
        """Block until all have ended or time is up; how each stands then, in the order given."""
        end = math.inf if timeout_s is None else time.monotonic() + timeout_s
        last = self._events("/v1/events", -1, 1, 0.0)[1]
        stand = {name: self.job(name) for name in jobs}
        checked = time.monotonic()
        while any(info.state not in FINAL for info in stand.values()):
            now = time.monotonic()
            if now >= end:
                break
            events, last = self._events("/v1/events", last, 1000, min(LONG_POLL_S, end - now))
            named = {item.job for item in events} & stand.keys()
            if not events or now - checked > RECHECK_S:  # nothing heard for long: look at each, to be safe
                named, checked = set(stand), now
            stand.update({name: self.job(name) for name in named if stand[name].state not in FINAL})
        return [stand[name] for name in jobs]

    # --- output -----------------------------------------------------------------------------------------------------

    def read_log(
        self, job: str, *, stream: str = "stdout", attempt: int = 0, offset: str = "0", limit: int = 1 << 20
    ) -> tuple[bytes, str]:
        """Some bytes of output, and the offset to go on from, which stays right when the file is rotated."""
        params = {"stream": stream, "attempt": attempt, "offset": offset, "limit": limit}
        answer = self._send("GET", _path("/v1/jobs", job, "logs"), params=params)
        return answer.content, answer.headers["X-Offset-Next"]

    def logs(self, job: str, *, follow: bool = False, stream: str = "stdout", attempt: int = 0) -> Iterator[str]:
        """The output so far; with `follow` on until the job ends. A lost connection is taken up where it broke."""
        if follow:
            yield from self._follow(job, {"stream": stream, "attempt": attempt, "follow": "true"})
            return
        offset = "0"
        decode = _decoder()
        while True:
            data, offset = self.read_log(job, stream=stream, attempt=attempt, offset=offset)
            if text := decode(data, not data):
                yield text
            if not data:
                return

    def _follow(self, job: str, params: dict[str, Any]) -> Iterator[str]:
        last, failures = "", 0
        while True:
            try:
                with self._stream(_path("/v1/jobs", job, "logs"), params, last) as lines:
                    for sent in sse.read(lines):
                        failures = 0
                        last = sent.id or last
                        if sent.kind == "log":
                            yield sent.data["text"]
                        elif sent.kind == "end":
                            return
                        elif sent.kind == "error":
                            raise CotenantError(sent.data["error"])
            except Unreachable:
                failures += 1
                if failures >= TRIES:
                    raise
            else:
                failures += 1
                if failures >= TRIES:
                    raise Unreachable(f"the service at {self.url} closed the stream")
            time.sleep(0.2 * failures)

    # --- history ----------------------------------------------------------------------------------------------------

    def events(self, job: str = "", after: int = 0, limit: int = 1000, *, wait_s: float = 0.0) -> list[EventInfo]:
        """History of one job, or of everything that you may see; waits up to `wait_s` for the first."""
        return self._events(_path("/v1/jobs", job, "events") if job else "/v1/events", after, limit, wait_s)[0]

    def _events(self, path: str, after: int, limit: int, wait_s: float) -> tuple[list[EventInfo], int]:
        params = {"after": after, "limit": limit, "wait": min(30.0, wait_s)}
        found = self._ask("GET", path, params=params, timeout=timeout(wait_s + self._read_s))
        return [codec.event(item) for item in found["events"]], found["next"]

    def follow_events(self, job: str = "", after: int = 0) -> Iterator[EventInfo]:
        """History from a number on (-1: from now), without end."""
        path, failures = "/v1/events/stream", 0
        while True:
            try:
                with self._stream(path, {"after": after, **({"job": job} if job else {})}, "") as lines:
                    for sent in sse.read(lines):
                        if sent.kind == "error" and "seq" not in sent.data:
                            raise CotenantError(sent.data["error"])
                        item = codec.event(sent.data)
                        after, failures = item.seq, 0
                        yield item
            except Unreachable:
                if failures + 1 >= TRIES:
                    raise
            failures += 1
            if failures >= TRIES:
                raise Unreachable(f"the service at {self.url} closed the stream")
            time.sleep(0.2 * failures)

    # --- cluster ----------------------------------------------------------------------------------------------------

    def nodes(self) -> list[NodeStatus]:
        """All nodes."""
        return [codec.node(item) for item in self._ask("GET", "/v1/nodes")["nodes"]]

    def drain(self, node: str, undo: bool = False) -> list[NodeStatus]:
        """Let nothing new start on a node, or again (admin)."""
        found = self._ask("DELETE" if undo else "POST", _path("/v1/nodes", node, "drain"))
        return [codec.node(item) for item in found["nodes"]]

    def policy(self) -> str:
        """The live policy."""
        return str(self._ask("GET", "/v1/policy")["policy"])

    def set_policy(self, policy: str) -> str:
        """Change the live policy (admin)."""
        return str(self._ask("PUT", "/v1/policy", json={"policy": policy})["policy"])

    def whatif(self, policies: Sequence[str]) -> dict[str, Any]:
        """Per job the expected finish now and under each policy."""
        return self._ask("POST", "/v1/whatif", json={"policies": list(policies)}, timeout=timeout(600.0))

    def tokens(self) -> list[TokenInfo]:
        """All tokens (admin)."""
        return [codec.token(item) for item in self._ask("GET", "/v1/tokens")["tokens"]]

    def create_token(
        self, name: str = "", role: Role | str = Role.USER, tenant: str = "", *,
        scopes: Sequence[str] = (), expires: str | float | None = None,
    ) -> tuple[TokenInfo, str]:  # fmt: skip
        """A new token and its secret, which is shown this once (admin).

        Where the service speaks TLS, the fingerprint of its certificate follows the secret: clients read both.
        """
        body = {"name": name, "role": str(role), "tenant": tenant}
        more = {"scopes": list(scopes)} if scopes else {}
        made = self._ask("POST", "/v1/tokens", json=body | more | ({} if expires is None else {"expires": expires}))
        pin = made.get("fingerprint", "")
        return codec.token(made["token"]), made["secret"] + (f"{PIN}{pin}" if pin else "")

    def revoke_token(self, token: str, *, force: bool = False) -> None:
        """Make a token useless at once (admin); the last of an admin only by force."""
        self._send("DELETE", _path("/v1/tokens", token), params={"force": "true"} if force else None)

    def audit(self, *, since_s: float = 0.0, limit: int = 1000) -> list[dict[str, Any]]:
        """Who did what since a moment, oldest first (admin)."""
        found: list[dict[str, Any]] = self._ask("GET", "/v1/audit", params={"since": since_s, "limit": limit})["audit"]
        return found

    def sign_on(self) -> dict[str, Any]:
        """The provider at which people sign on."""
        return self._ask("GET", "/v1/signon")

    def backup(self, path: str) -> str:
        """A consistent copy of the journal, as a new file in the service's own folder (admin)."""
        return str(self._ask("POST", "/v1/backup", json={"path": path}, timeout=timeout(600.0))["path"])

    def metrics(self) -> str:
        """Numbers in the text format of Prometheus."""
        return self._send("GET", "/metrics").text

    def ready(self) -> bool:
        """Whether the service takes requests; False also where nobody answers."""
        try:
            return self._http.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    # --- requests ---------------------------------------------------------------------------------------------------

    def _ask(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        found = self._send(method, path, **more).json()
        if not isinstance(found, dict):
            raise CotenantError(f"the answer of {self.url} is not one of Cotenant's: is COTENANT_URL right?")
        return found

    def _send(self, method: str, path: str, **more: Any) -> httpx.Response:
        for left in reversed(range(TRIES if method in _SAFE else 1)):
            try:
                answer = self._http.request(method, path, **more)
            except (httpx.TransportError, httpx.InvalidURL, TypeError, ValueError) as error:
                if (
                    left
                    and isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError)
                    and not isinstance(error, httpx.ConnectError)
                ):
                    time.sleep(0.1 * (TRIES - left))
                    continue
                raise self._wrong(error) from None
            if answer.status_code >= 400:
                raise self._error(answer)
            return answer
        raise AssertionError("unreachable")

    @contextmanager
    def _stream(self, path: str, params: dict[str, Any], last: str) -> Iterator[Iterator[str]]:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
        try:
            with self._http.stream("GET", path, params=params, headers=headers) as answer:
                if answer.status_code >= 400:
                    answer.read()
                    raise self._error(answer)
                yield answer.iter_lines()
        except httpx.TransportError as error:
            raise self._wrong(error) from None

    def _wrong(self, error: Exception) -> CotenantError:
        if isinstance(error, httpx.ConnectError) and "CERTIFICATE" in str(error):
            return Denied(f"nobody vouches for {self.url}: take the whole line of `cotenant token create`")
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return Unreachable(f"no service at {self.url}: start it with `cotenant serve`")
        if isinstance(error, httpx.TransportError):
            if isinstance(error, httpx.TimeoutException):
                return Unreachable(f"the service at {self.url} took too long to answer: it hangs or is overloaded")
            return Unreachable(f"the answer of {self.url} was lost")
        return InputError(f"cannot send this to {self.url}: {error}")

    def _error(self, answer: httpx.Response) -> CotenantError:
        try:
            text = str(answer.json()["error"])
        except (ValueError, KeyError, TypeError):
            text = f"{self.url} answered {answer.status_code}, which is not Cotenant's: is COTENANT_URL right?"
        if answer.status_code == 401:
            have = "the token is not valid" if self._has_token else "there is no token"
            if self._signed_on:
                return Denied(f"the sign-on is over, or not for {self.url}: `cotenant login`")
            return Denied(f"{have} for {self.url}: set COTENANT_TOKEN, or COTENANT_HOME to where `cotenant serve` runs")
        return error_for(answer.status_code, text)


def _path(*parts: str) -> str:
    """A path whose parts cannot escape it."""
    from urllib.parse import quote

    for part in parts[1:]:
        if not part or part in (".", ".."):
            raise InputError(f"'{part}' is no name")
    return "/".join([parts[0], *(quote(part, safe="") for part in parts[1:])])


def _decoder() -> Any:
    import codecs

    return codecs.getincrementaldecoder("utf-8")("replace").decode
