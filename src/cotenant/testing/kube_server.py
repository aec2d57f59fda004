"""An emulated Kubernetes API over HTTP: nodes, pods, bindings, logs, leases, events; lists, watches, patches.

Enough for a scheduler and its kubelets, and strict where they could be sloppy: versions, conflicts and 410
(`kube_store`), bindings of pods that are bound already (409), status apart from the rest, tokens that may do only what
the rules of their role say (403). Logs come from the kubelet of the pod's node, as in a real cluster. `away` makes it
hang up on everybody.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

from cotenant.testing.kube_store import ApiRefusal, KubeObject, KubeStore, merged, selector

GROUPS = {"nodes": "", "pods": "", "events": "", "leases": "coordination.k8s.io"}
KINDS = {"nodes": "Node", "pods": "Pod", "events": "Event", "leases": "Lease"}
BOOKMARK_S = 1.0
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}

Rule = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class _KubeAsked:
    """One request: what of whom, and what with it."""

    method: str
    kind: str
    namespace: str
    name: str
    part: str
    query: Mapping[str, str]
    body: KubeObject

    @property
    def verb(self) -> str:
        """As roles name it."""
        if self.method == "GET":
            return "get" if self.name else "watch" if self.query.get("watch") in ("1", "true") else "list"
        return _VERBS[self.method]


@dataclass(slots=True)
class KubeApi:
    """The answers, without HTTP. `tokens`: what each may do, None for everything."""

    store: KubeStore = field(default_factory=KubeStore)
    tokens: dict[str, Sequence[Rule] | None] = field(default_factory=lambda: {"admin": None})
    away: threading.Event = field(default_factory=threading.Event)

    def check(self, token: str, asked: _KubeAsked) -> None:
        """401 for strangers, 403 for what the role does not allow."""
        if token not in self.tokens:
            raise ApiRefusal(401, "Unauthorized", "Unauthorized")
        rules = self.tokens[token]
        what = f"{asked.kind}/{asked.part}" if asked.part else asked.kind
        if rules is not None and not any(_allows(rule, asked.verb, GROUPS[asked.kind], what) for rule in rules):
            raise ApiRefusal(
                403, "Forbidden", f'cannot {asked.verb} resource "{what}" in API group "{GROUPS[asked.kind]}"'
            )

    def answer(self, asked: _KubeAsked) -> KubeObject:
        """Everything but watches and logs."""
        store, place = self.store, (asked.kind, asked.namespace, asked.name)
        match asked.method, asked.part:
            case "GET", "":
                return store.get(*place) if asked.name else self._list(asked)
            case "POST", "binding":
                return self._bind(asked)
            case "POST", "" if not asked.name:
                return store.create(asked.kind, asked.namespace, asked.body)
            case "PUT" | "PATCH", "" | "status":
                return store.update(*place, lambda old: _changed(old, asked), _check_spec)
            case "DELETE", "" if asked.name:
                asks = {**asked.query, **asked.body}
                grace = asks.get("gracePeriodSeconds")
                uid = asked.body.get("preconditions", {}).get("uid", "")
                return store.delete(*place, None if grace is None else int(grace), uid)
        raise ApiRefusal(405, "MethodNotAllowed", "the emulator does not know this")

    def _list(self, asked: _KubeAsked) -> KubeObject:
        version, items = self.store.list(asked.kind, asked.namespace, lambda body: wanted(asked.query, body))
        name = f"{KINDS[asked.kind]}List"
        return {"kind": name, "apiVersion": "v1", "metadata": {"resourceVersion": str(version)}, "items": items}

    def _bind(self, asked: _KubeAsked) -> KubeObject:
        node = asked.body["target"]["name"]

        def bound(pod: KubeObject) -> KubeObject:
            if pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]:
                text = f'pod {asked.name} is being deleted, or already assigned to node "{pod["spec"].get("nodeName")}"'
                raise ApiRefusal(409, "Conflict", text)
            pod["spec"]["nodeName"] = node
            return pod

        self.store.update("pods", asked.namespace, asked.name, bound)
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}


def _allows(rule: Rule, verb: str, group: str, what: str) -> bool:
    return verb in rule["verbs"] and group in rule["apiGroups"] and what in rule["resources"]


def wanted(query: Mapping[str, str], body: KubeObject) -> bool:
    """Whether an object is one of those asked for, by labels and by the few fields that are known."""
    spec = {f"spec.{name}": body.get("spec", {}).get(name, "") for name in ("nodeName", "schedulerName")}
    fields = {"metadata.name": body["metadata"]["name"], **spec}
    for part in filter(None, query.get("fieldSelector", "").split(",")):
        name, _, value = part.partition("=")
        if fields[name] != value:
            return False
    return selector(query.get("labelSelector", ""))(body)


def _changed(old: KubeObject, asked: _KubeAsked) -> KubeObject:
    new = asked.body if asked.method == "PUT" else merged(old, asked.body)
    if asked.part == "status":
        own = old["metadata"] if asked.method == "PATCH" else new["metadata"]
        return {**old, "metadata": {**old["metadata"], **own}, "status": new.get("status", {})}
    if "status" in old and asked.kind in ("pods", "nodes"):
        new["status"] = old["status"]
    return new


def _check_spec(old: KubeObject, new: KubeObject) -> None:
    """Of what a pod is, hardly anything can be changed."""
    if "containers" in old.get("spec", {}):
        was, will = ({k: v for k, v in one["spec"].items() if k not in _MUTABLE} for one in (old, new))
        if was != will:
            raise ApiRefusal(
                422, "Invalid", f"spec: Forbidden: pod updates may not change fields other than {_MUTABLE}"
            )


_MUTABLE = ("activeDeadlineSeconds", "tolerations")


class _Handler(BaseHTTPRequestHandler):
    api: ClassVar[KubeApi]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: tests have their own output."""

    def _serve(self) -> None:
        if self.api.away.is_set():
            self.close_connection = True
            return
        asked: _KubeAsked | None = None
        try:
            asked = self._read()
            if asked is None:
                self._say(200, {"major": "1", "minor": "20", "gitVersion": "v1.20.2-emulated"})
                return
            self.api.check(self.headers.get("Authorization", "").removeprefix("Bearer "), asked)
            if asked.verb == "watch":
                self._watch(asked)
            elif asked.part == "log":
                self._log(asked)
            else:
                self._say(201 if asked.method == "POST" else 200, self.api.answer(asked))
        except ApiRefusal as refused:
            self._say(refused.code, refused.body())
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815

    def _read(self) -> _KubeAsked | None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size) or b"{}") if size else {}
        url = urlsplit(self.path)
        if url.path in ("/version", "/readyz"):
            return None
        parts = [part for part in url.path.split("/") if part]
        parts = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = ""
        if parts[0] == "namespaces" and len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
        kind, name, part, *_ = [*parts, "", ""]
        if kind not in GROUPS:
            raise ApiRefusal(404, "NotFound", f"the emulator has no {kind}")
        return _KubeAsked(self.command, kind, namespace, name, part, dict(parse_qsl(url.query)), body)

    def _say(self, code: int, body: KubeObject) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _begin(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _event(self, kind: str, body: KubeObject) -> None:
        self._chunk(json.dumps({"type": kind, "object": body}).encode() + b"\n")

    def _watch(self, asked: _KubeAsked) -> None:
        """Changes as they come; now and then a bookmark; an error event where history is gone."""
        store, until_s = self.api.store, time.monotonic() + float(asked.query.get("timeoutSeconds", 300))
        version = int(asked.query.get("resourceVersion") or store.version)
        self._begin("application/json")
        matching: set[str] = set()
        while time.monotonic() < until_s and not self.api.away.is_set():
            with store.changed:
                if store.version <= version:
                    store.changed.wait(BOOKMARK_S)
                try:
                    changes = list(store.since(version))
                except ApiRefusal as refused:
                    self._event("ERROR", refused.body())
                    break
                now = store.version
            for _, change, kind, body in changes:
                if kind == asked.kind and asked.namespace in ("", body["metadata"].get("namespace", "")):
                    self._tell(asked, change, body, matching)
            version = now
            if not changes and asked.query.get("allowWatchBookmarks"):
                meta = {"metadata": {"resourceVersion": str(version)}}
                self._event("BOOKMARK", {"kind": KINDS[asked.kind], **meta})
        self.close_connection = True
        if not self.api.away.is_set():
            self.wfile.write(b"0\r\n\r\n")

    def _tell(self, asked: _KubeAsked, change: str, body: KubeObject, matching: set[str]) -> None:
        """As the API server does: who no longer matches what is watched is told as deleted."""
        uid, fits = body["metadata"]["uid"], wanted(asked.query, body)
        if fits:
            matching.add(uid)
            self._event(change, body)
        elif uid in matching or change == "MODIFIED":
            matching.discard(uid)
            self._event("DELETED", body)

    def _log(self, asked: _KubeAsked) -> None:
        """From the kubelet of the node, piece by piece."""
        pod = self.api.store.get("pods", asked.namespace, asked.name)
        name = pod["spec"].get("nodeName")
        if not name:
            raise ApiRefusal(400, "BadRequest", f"pod {asked.name} does not have a host assigned")
        node = self.api.store.get("nodes", "", name)["status"]
        address = next(one["address"] for one in node["addresses"] if one["type"] == "InternalIP")
        port = node["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        container = asked.query.get("container") or pod["spec"]["containers"][0]["name"]
        query = urlsplit(self.path).query
        link = http.client.HTTPConnection(address, port, timeout=600)
        try:
            link.request("GET", f"/containerLogs/{asked.namespace}/{asked.name}/{container}?{query}")
            reply = link.getresponse()
            if reply.status != 200:
                raise ApiRefusal(reply.status, "BadRequest", reply.read().decode())
            self._begin("text/plain")
            while data := reply.read1(65536):
                self._chunk(data)
            self.wfile.write(b"0\r\n\r\n")
        except OSError as error:
            raise ApiRefusal(500, "InternalError", f"cannot reach the kubelet of {name}: {error}") from None
        finally:
            link.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: whoever hung up knows."""


def start(api: KubeApi, port: int = 0, host: str = "127.0.0.1") -> _Server:
    """Serve on loopback or another address, in threads of its own; `server_port` says where."""
    server = _Server((host, port), type("_Bound", (_Handler,), {"api": api}))
    threading.Thread(target=server.serve_forever, args=(0.05,), name="kube-api", daemon=True).start()
    return server
