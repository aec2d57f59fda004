"""A copy of one collection of the cluster, kept up to date by a watch; listed anew when the watch cannot go on.

Our own writes are taken in at once, so that whoever has just launched something finds it. While the API server does not
answer the copy is old: `check` says so, and nobody may decide by it.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from cotenant.backends.base import BackendError
from cotenant.backends.kubernetes.client import WATCH_S, Body, KubeClient, KubeRefused, KubeStream, KubeUnreachable

PROBE_S = 5.0  # nothing heard for so long: ask whether the server is still there
RETRY_S = 0.5
FIRST_S = 20.0  # how long the first list may take
PAGE = 500
MOST_GONE = 20_000


class Mirror:
    """Objects by name, as of the last news. `heard` is called after each change for which `matters` differs."""

    def __init__(
        self, client: KubeClient, path: str, query: Mapping[str, str], heard: Callable[[], None],
        matters: Callable[[Body], Any] = lambda body: body,
    ) -> None:  # fmt: skip
        self._client, self._path, self._query = client, path, dict(query)
        self._heard, self._matters = heard, matters
        self._lock = threading.Lock()
        self._objects: dict[str, Body] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()  # uids of what was removed: whatever is still told of them
        self._version, self._listed = "", threading.Event()
        self._trouble: BackendError | None = None
        self._news_s = 0.0
        self._stream: KubeStream | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {path}", daemon=True)

    def start(self) -> None:
        """Begin; returns when everything has been listed, or raises why it cannot be."""
        self._thread.start()
        until_s = time.monotonic() + FIRST_S
        while not self._listed.wait(0.05):
            if isinstance(self._trouble, KubeRefused) or time.monotonic() > until_s:
                raise self._trouble or KubeUnreachable(f"the cluster did not list {self._path} in {FIRST_S:g} s")

    def end(self) -> None:
        """End the watch."""
        self._ending.set()
        while self._thread.is_alive():  # one that was never begun is not
            if (stream := self._stream) is not None:
                stream.stop()
            self._thread.join(0.05)

    def objects(self) -> dict[str, Body]:
        """By name, as they are known. Nobody changes what is in it."""
        with self._lock:
            return dict(self._objects)

    def get(self, name: str) -> Body | None:
        """One of them."""
        with self._lock:
            return self._objects.get(name)

    def check(self) -> None:
        """Raise where what is known may be old: nobody answers."""
        if self._trouble is None and time.monotonic() - self._news_s > PROBE_S:
            try:
                self._client.get("/version")
                self._news_s = time.monotonic()
            except BackendError as error:
                self._trouble = error
        if self._trouble is not None:
            raise self._trouble

    def take(self, body: Body) -> None:
        """What an own write was answered with."""
        with self._lock:
            self._put(body)

    def drop(self, body: Body) -> None:
        """We have removed it."""
        with self._lock:
            self._bury(body)

    def _bury(self, body: Body) -> bool:
        meta = body["metadata"]
        self._gone[meta["uid"]] = None
        if len(self._gone) > MOST_GONE:
            self._gone.popitem(last=False)
        known = self._objects.get(meta["name"])
        if known is None or known["metadata"]["uid"] != meta["uid"]:
            return False
        del self._objects[meta["name"]]
        return True

    def _put(self, body: Body) -> bool:
        meta = body["metadata"]
        old = self._objects.get(meta["name"])
        if meta["uid"] in self._gone:
            return False
        if old is not None and int(old["metadata"]["resourceVersion"]) >= int(meta["resourceVersion"]):
            return False
        self._objects[meta["name"]] = body
        return old is None or self._matters(old) != self._matters(body)

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                if not self._version:
                    self._list()
                self._watch()
            except KubeRefused as error:
                self._version = ""  # 410: history is gone. Others too: begin from what is there
                self._fail(None if error.code == 410 else error)
            except BackendError as error:
                self._fail(error)

    def _fail(self, error: BackendError | None) -> None:
        if error is not None and not self._ending.is_set():
            self._trouble = error
            self._heard()
            self._ending.wait(RETRY_S)

    def _list(self) -> None:
        """All of it, in pages; what is not in it any more is gone."""
        found: dict[str, Body] = {}
        more = ""
        while True:
            page = self._client.get(self._path, **self._query, limit=str(PAGE), **({"continue": more} if more else {}))
            found |= {body["metadata"]["name"]: body for body in page["items"]}
            if not (more := page["metadata"].get("continue", "")):
                break
        self._version = page["metadata"]["resourceVersion"]
        with self._lock:
            alive = {body["metadata"]["uid"] for body in found.values()}
            for body in list(self._objects.values()):
                newer = int(body["metadata"]["resourceVersion"]) > int(self._version)  # written by us since
                if body["metadata"]["uid"] not in alive and not newer:
                    self._bury(body)
            for body in found.values():
                self._put(body)
        self._well()
        self._listed.set()
        self._heard()

    def _well(self) -> None:
        self._news_s = time.monotonic()
        if self._trouble is not None:
            self._trouble = None
            self._heard()

    def _watch(self) -> None:
        """Until the server ends it, which it does now and then."""
        query = {
            **self._query, "watch": "1", "resourceVersion": self._version, "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
        }  # fmt: skip
        with self._client.stream(self._path, query) as stream:
            self._stream = stream
            self._well()
            for line in stream.lines():
                if self._ending.is_set():
                    return
                if line:
                    self._take_event(json.loads(line))

    def _take_event(self, event: Body) -> None:
        kind, body = event["type"], event["object"]
        if kind == "ERROR":
            raise KubeRefused(int(body.get("code", 500)), str(body.get("message", "")))
        self._version = str(max(int(self._version), int(body["metadata"]["resourceVersion"])))
        self._news_s = time.monotonic()
        if kind == "BOOKMARK":
            return
        with self._lock:
            changed = self._bury(body) if kind == "DELETED" else self._put(body)
        if changed:
            self._heard()
