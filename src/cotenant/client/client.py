"""The service from Python, over HTTP: a method per thing that can be asked, values and errors of `service.facade`."""

from __future__ import annotations

import base64
import math
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from types import TracebackType
from typing import Any

from cotenant.client import codec, sse
from cotenant.client.channel import ClientChannel
from cotenant.client.connection import READ_S, open_http, timeout
from cotenant.client.errors import STANDBY, Denied, NotThere, Unreachable, error_for
from cotenant.client.home import PIN, find
from cotenant.client.slim import httpx
from cotenant.core.cluster import Cluster
from cotenant.core.errors import CotenantError, InputError
from cotenant.core.jobspec import JobSpec
from cotenant.core.lifecycle import FINAL
from cotenant.service.facade import (
    EVERY,
    EventInfo,
    JobInfo,
    JobList,
    JobOutcome,
    NodeStatus,
    Role,
    TokenInfo,
    Unavailable,
    Which,
)
from cotenant.service.node_windows import NodeWindow

TRIES = 3
LONG_POLL_S = 10.0
FOLLOW_S = 15.0  # how long a service of several addresses may be without a leader
RECHECK_S = 15.0
MOST_LISTED = 10_000  # per request
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
        self._urls = (target.url, *target.others)
        self._at = 0
        self._https = [open_http(place, timeout_s) for place in target.everywhere()]

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
        for http in self._https:
            http.close()

    @property
    def _http(self) -> httpx.Client:
        return self._https[self._at]

    def _move_on(self) -> None:
        """Ask at the next address from now on."""
        self._at = (self._at + 1) % len(self._urls)
        self.url = self._urls[self._at]

    # --- jobs -------------------------------------------------------------------------------------------------------

    def submit(self, jobs: Sequence[JobSpec | Mapping[str, Any]], *, key: str = "") -> list[list[str]]:
        """Durable when it returns: the ids per job, several for an array. Jobs are specs or mappings as in the YAML.

        Where the answer is lost, the same call with the same `key` gives it again (while the service lives).
        """
        key = key or uuid.uuid4().hex
        body = {"jobs": [codec.mapping(item) if isinstance(item, JobSpec) else dict(item) for item in jobs]}
        try:
            ids: list[list[str]] = self._ask("POST", "/v1/jobs", json=body, headers={"Idempotency-Key": key})["ids"]
        except NotThere:
            raise
        except Unreachable as error:
            raise Unreachable(f"{error}; it may have been taken: look with `cotenant ps` (key {key})") from None
        return ids

    def jobs(
        self, which: Which = EVERY, *, states: Sequence[str] = (), limit: int = 1000, skip: int | None = None
    ) -> JobList:
        """Jobs that you may see, newest last; without spec and attempts.

        Of too many those that run, then the next in line; with `skip` those that follow so many, in order.
        """
        meant = {"id": which.jobs, "name": which.names, "user": which.users, "tenant": which.tenants}
        params = {key: list(value) for key, value in meant.items() if value}
        if skip is not None:
            params["skip"] = [str(skip)]
        states = [str(item) for item in (*states, *which.states)]
        found = self._ask("GET", "/v1/jobs", params={**params, "state": states, "limit": limit})
        jobs = JobList(codec.job(item) for item in found["jobs"])
        jobs.left_out = int(found.get("left_out", 0))
        return jobs

    def job(self, job: str) -> JobInfo:
        """One job with spec and attempts."""
        return codec.job(self._ask("GET", _path("/v1/jobs", job)))

    def why(self, job: str) -> dict[str, Any]:
        """The reason of one job, as `Reason.as_dict`."""
        return self._ask("GET", _path("/v1/jobs", job, "why"))

    def deadline(self, job: str, wait_s: float = 0.0) -> dict[str, Any]:
        """What the policy has told of its deadline: verdict, text, and the earliest end that can be promised.

        Waits up to `wait_s` for the decision that answers it.
        """
        until_s, after = time.monotonic() + wait_s, 0
        while True:
            found = self._ask("GET", _path("/v1/jobs", job, "deadline"))
            left_s = until_s - time.monotonic()
            if not found.get("soon") or left_s <= 0:
                return found
            _, after = self._events(_path("/v1/jobs", job, "events"), after, 1000, min(left_s, LONG_POLL_S))

    def cancel(self, job: str, *, force: bool = False) -> JobInfo:
        """Ask a job to end for good; with `force` by SIGKILL, at once."""
        params = {"force": "true"} if force else None
        return codec.job(self._ask("POST", _path("/v1/jobs", job, "cancel"), params=params))

    def requeue(self, job: str) -> JobInfo:
        """Stop a job and let it wait again."""
        return codec.job(self._ask("POST", _path("/v1/jobs", job, "requeue")))

    def change(
        self, verb: str, which: Which, *, every: bool = False, force: bool = False,
        changes: Mapping[str, Any] | None = None,
    ) -> list[JobOutcome]:  # fmt: skip
        """Cancel, hold, resume, requeue or set all jobs that are meant: what came of each. `every`: without filters."""
        body = {**asdict(which), "all": every, "force": force, **({"changes": dict(changes)} if changes else {})}
        return [codec.outcome(item) for item in self._ask("POST", _path("/v1/changes", verb), json=body)["jobs"]]

    def resubmit(self, which: Which, changes: Mapping[str, Any]) -> list[list[str]]:
        """New jobs like these, but for some fields as in the YAML file: their ids as of `submit`."""
        body = {**asdict(which), "changes": dict(changes)}
        ids: list[list[str]] = self._ask("POST", "/v1/resubmit", json=body)["ids"]
        return ids

    def hold(self, job: str) -> JobInfo:
        """Keep a job from starting; a running one is preempted and then held."""
        return codec.job(self._ask("POST", _path("/v1/jobs", job, "hold")))

    def resume(self, job: str) -> JobInfo:
        """Let a held job go on."""
        return codec.job(self._ask("POST", _path("/v1/jobs", job, "resume")))

    def set(self, job: str, changes: Mapping[str, Any]) -> JobInfo:
        """Change priority, deadline, max_runtime, retries, name or expected of a job that has not ended."""
        return codec.job(self._ask("PATCH", _path("/v1/jobs", job), json=dict(changes)))

    def select(self, jobs: Sequence[str]) -> list[JobInfo]:
        """All that are meant by ids, arrays (`7`), elements (`7_3`), ranges (`7_[1-4]`) or names, each once."""
        found: dict[str, JobInfo] = {}
        for text in jobs:
            skip = 0
            while True:
                part = self.jobs(Which((text,)), limit=MOST_LISTED, skip=skip)
                found.update({info.id: info for info in part})
                skip += MOST_LISTED
                if not part.left_out:
                    break
        return list(found.values())

    def wait(self, jobs: Sequence[str], timeout_s: float | None = None) -> list[JobInfo]:
        """Block until all have ended or time is up; how each stands then, in the order given, element by element."""
        end = math.inf if timeout_s is None else time.monotonic() + timeout_s
        last = self._events("/v1/events", -1, 1, 0.0)[1]
        stand = {info.id: info for info in self.select(jobs)}
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
        return list(stand.values())

    # --- output -----------------------------------------------------------------------------------------------------

    def read_log(
        self, job: str, *, stream: str = "stdout", attempt: int = 0, offset: str = "0", limit: int = 1 << 20,
        **more: Any,
    ) -> tuple[bytes, str]:  # fmt: skip
        """Some bytes of output, and the offset to go on from, which stays right when it is rotated or moved.

        `stream` is stdout, stderr or merged; `tail`, `since` (Unix seconds) and `timestamps` as in `output`.
        """
        params = {"stream": stream, "attempt": attempt, "offset": offset, "limit": limit, **more}
        answer = self._send("GET", _path("/v1/jobs", job, "logs"), params=params)
        return answer.content, answer.headers["X-Offset-Next"]

    def logs(self, job: str, **asked: Any) -> Iterator[str]:
        """As `output`, as text; what is none is shown by replacement characters."""
        decode = _decoder()
        for data in self.output(job, **asked):
            if text := decode(data):
                yield text
        if text := decode(b"", True):
            yield text

    def output(
        self, job: str, *, follow: bool = False, stream: str = "stdout", attempt: int = 0, tail: int | None = None,
        since_s: float | None = None, timestamps: bool = False, on_gap: Callable[[], None] = lambda: None,
    ) -> Iterator[bytes]:  # fmt: skip
        """The output so far; with `follow` on until the job ends. A lost connection is taken up where it broke.

        `stream` is stdout, stderr or merged. It begins with the last `tail` lines, or with what came at `since_s` or
        later. `timestamps` puts before each line when it came. `on_gap` is told of output that went before it was read.
        """
        params: dict[str, Any] = {"stream": stream, "attempt": attempt}
        params |= {"tail": tail} if tail is not None else {}
        params |= {"since": since_s} if since_s is not None else {}
        params |= {"timestamps": "true"} if timestamps else {}
        if follow:
            yield from self._follow(job, {**params, "follow": "true", "encoding": "base64"}, on_gap)
            return
        offset = "0"
        while True:
            data, offset = self.read_log(job, offset=offset, **params)
            if not data:
                return
            yield data

    def _follow(self, job: str, params: dict[str, Any], on_gap: Callable[[], None]) -> Iterator[bytes]:
        last, failures = "", 0
        tries = TRIES if len(self._urls) == 1 else int(FOLLOW_S / 0.5)
        while True:
            try:
                with self._stream(_path("/v1/jobs", job, "logs"), params, last) as lines:
                    for sent in sse.read(lines):
                        failures = 0
                        last = sent.id or last
                        if sent.kind == "log":
                            yield base64.b64decode(sent.data["base64"])
                        elif sent.kind == "gap":
                            on_gap()
                        elif sent.kind == "end":
                            return
                        elif sent.kind == "error":
                            raise CotenantError(sent.data["error"])
            except Unreachable:
                failures += 1
                if failures >= tries:
                    raise
            else:
                failures += 1
                if failures >= tries:
                    raise Unreachable(f"the service at {self.url} closed the stream")
            time.sleep(min(0.2 * failures, 0.5))

    # --- ways into a running job -----------------------------------------------------------------------------------

    def open_channel(self, job: str, kind: str, **asked: Any) -> ClientChannel:
        """`exec` with argv, env and tty; `attach` to its terminal; or `port`. Read its output soon."""
        found = self._ask("POST", _path("/v1/jobs", job, "channels"), json={"kind": kind, **asked})
        return ClientChannel(self._send, self._bytes, _path("/v1/channels", found["channel"]))

    @contextmanager
    def _bytes(self, path: str) -> Iterator[Iterator[bytes]]:
        try:
            with self._http.stream("GET", path) as answer:
                if answer.status_code >= 400:
                    answer.read()
                    raise self._error(answer)
                yield answer.iter_raw()
        except httpx.TransportError as error:
            raise self._wrong(error) from None

    # --- history ----------------------------------------------------------------------------------------------------

    def events(
        self, job: str = "", after: int = 0, limit: int = 1000, *, wait_s: float = 0.0, newest: bool = False
    ) -> list[EventInfo]:
        """History of one job, or of everything that you may see; waits up to `wait_s` for the first.

        Of more than `limit` the oldest, or the `newest`.
        """
        path = _path("/v1/jobs", job, "events") if job else "/v1/events"
        return self._events(path, after, limit, wait_s, newest)[0]

    def _events(
        self, path: str, after: int, limit: int, wait_s: float, newest: bool = False
    ) -> tuple[list[EventInfo], int]:
        params: dict[str, Any] = {"after": after, "limit": limit, "wait": min(30.0, wait_s)}
        if newest:
            params["newest"] = "true"
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
            time.sleep(min(0.2 * failures, 0.5))

    # --- cluster ----------------------------------------------------------------------------------------------------

    def nodes(self) -> list[NodeStatus]:
        """All nodes."""
        return [codec.node(item) for item in self._ask("GET", "/v1/nodes")["nodes"]]

    def drain(self, node: str, undo: bool = False) -> list[NodeStatus]:
        """Let nothing new start on a node, or again (admin)."""
        found = self._ask("DELETE" if undo else "POST", _path("/v1/nodes", node, "drain"))
        return [codec.node(item) for item in found["nodes"]]

    def windows(self) -> list[NodeWindow]:
        """Maintenance and reservations to come or in force."""
        return [codec.window(item) for item in self._ask("GET", "/v1/windows")["windows"]]

    def add_window(self, window: NodeWindow, gpus: int = 0) -> NodeWindow:
        """Shut nodes for a time (admin); `gpus`: as few nodes as have so many."""
        body = {key: value for key, value in asdict(window).items() if key != "id"}
        return codec.window(self._ask("POST", "/v1/windows", json={**body, "gpus": gpus}))

    def remove_window(self, window: str) -> None:
        """Give nodes back before their time is over (admin)."""
        self._send("DELETE", _path("/v1/windows", window))

    def tenants(self) -> dict[str, Any]:
        """The tree of tenants with what each holds, how past use counts, and what is said of nodes."""
        return self._ask("GET", "/v1/tenants")

    def add_tenant(self, name: str, parent: str = "", fields: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A new tenant, with fields as in the cluster file; all of them then, and what was `done`."""
        body = {"name": name, "parent": parent, "fields": dict(fields or {})}
        return self._ask("POST", "/v1/tenants", json=body)

    def set_tenant(self, name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Other fields of a tenant; None: as by default."""
        return self._ask("PATCH", _path("/v1/tenants", name), json={"fields": dict(fields)})

    def remove_tenant(self, name: str) -> dict[str, Any]:
        """Take a tenant away that has neither children nor unfinished jobs."""
        return self._ask("DELETE", _path("/v1/tenants", name))

    def set_fair_share(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """half_life, min_run and reserve_after, in seconds or e.g. 7d (admin)."""
        return self._ask("PATCH", "/v1/tenants", json=dict(fields))

    def take_cluster(self, cluster: Cluster) -> dict[str, Any]:
        """The tenants of a cluster file, and what it says of nodes (admin); what of it is `unmatched`."""
        keys = ("count", "gpus_per_node", "gpu_type", "dedicated", "labels", "names")
        groups = [{key: getattr(group, key) for key in keys} for group in cluster.groups]
        tree = cluster.tenants.as_dict() if cluster.tenants is not None else {}
        return self._ask("PUT", "/v1/tenants", json={**tree, "groups": groups})

    def policy(self) -> str:
        """The live policy."""
        return str(self._ask("GET", "/v1/policy")["policy"])

    def set_policy(self, policy: str) -> str:
        """Change the live policy (admin)."""
        return str(self._ask("PUT", "/v1/policy", json={"policy": policy})["policy"])

    def whatif(
        self, policies: Sequence[str], told: Callable[[Mapping[str, Any]], None] = lambda progress: None
    ) -> dict[str, Any]:
        """Per job the expected finish now and under each policy; `told` hears how far it has come."""
        found = self._ask("POST", "/v1/whatif", json={"policies": list(policies), "later": True})
        while "progress" in found:
            told(found["progress"])
            found = self._ask("GET", _path("/v1/whatif", found["id"]), params={"wait": 1.0})
        return found

    def evaluation(self) -> dict[str, Any]:
        """How right forecasts were: errors by moment and policy, calibration, and forecasts one by one."""
        return self._ask("GET", "/v1/forecasts/evaluation")

    def usage(
        self, by: Sequence[str] = ("tenant",), from_s: float | None = None, to_s: float | None = None
    ) -> dict[str, Any]:
        """GPU-hours, jobs, waits, failures and lost work between two moments, by tenant, user, day, model or state."""
        borders = {"from": from_s, "to": to_s}
        params = {"by": ",".join(by), **{name: at_s for name, at_s in borders.items() if at_s is not None}}
        return self._ask("GET", "/v1/usage", params=params)

    def share(self, tenant: str = "") -> dict[str, Any]:
        """How tenants stand, all or one with those below it: guaranteed, entitled, used, borrowed, lent, in words."""
        return self._ask("GET", "/v1/share", params={"tenant": tenant} if tenant else None)

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

    def sign_in_code(self) -> str:
        """A code by which a browser signs in as this caller, once and within a minute."""
        return str(self._ask("POST", "/v1/session/link")["code"])

    def backup(self, path: str) -> str:
        """A consistent copy of the journal, as a new file in the service's own folder (admin)."""
        return str(self._ask("POST", "/v1/backup", json={"path": path}, timeout=timeout(600.0))["path"])

    def shut_down(self, jobs: str) -> None:
        """End the service; its jobs `keep` running, or `stop` and wait for the next start."""
        self._ask("POST", "/v1/shutdown", json={"jobs": jobs})

    def answers(self) -> bool:
        """Whether the service is there at all."""
        try:
            return self._http.get("/healthz").status_code == 200
        except httpx.TransportError:
            return False

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
        """Where there are several addresses, the one that leads is looked for while a new leader may come up."""
        until_s = time.monotonic() + (FOLLOW_S if len(self._urls) > 1 else 0.0)
        while True:
            try:
                answer = self._send_here(method, path, **more)
                if STANDBY not in answer.headers:
                    return answer
                error: CotenantError = self._error(answer)
            except NotThere as nobody:
                error = nobody
            if time.monotonic() >= until_s:
                raise error
            self._move_on()
            if self._at == 0:
                time.sleep(0.2)

    def _send_here(self, method: str, path: str, **more: Any) -> httpx.Response:
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
            if answer.status_code >= 400 and STANDBY not in answer.headers:
                raise self._error(answer)
            return answer
        raise AssertionError("unreachable")

    @contextmanager
    def _stream(self, path: str, params: dict[str, Any], last: str) -> Iterator[Iterator[str]]:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
        try:
            with self._http.stream("GET", path, params=params, headers=headers) as answer:
                if answer.status_code >= 300:
                    answer.read()
                    raise self._error(answer)
                yield answer.iter_lines()
        except (httpx.TransportError, Unavailable) as error:
            self._move_on()  # whoever goes on asks the next one
            raise self._wrong(error) if isinstance(error, httpx.TransportError) else error from None

    def _wrong(self, error: Exception) -> CotenantError:
        if isinstance(error, httpx.ConnectError) and "CERTIFICATE" in str(error):
            return Denied(f"nobody vouches for {self.url}: take the whole line of `cotenant token create`")
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return NotThere(f"no service at {self.url}: start it with `cotenant serve`")
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
        return error_for(503 if STANDBY in answer.headers else answer.status_code, text)


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
