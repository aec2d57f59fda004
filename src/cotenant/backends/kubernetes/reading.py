"""Reads logs of pods into what is kept of them: when somebody asks, now and then, and to the end if one is stopped.

A node forgets the log of a deleted pod at once. So before a pod is told to go somebody begins to follow its output.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from cotenant.backends.base import BackendError, LogPart, Stream
from cotenant.backends.kubernetes.client import Body, KubeClient, KubeRefused, KubeStream
from cotenant.backends.kubernetes.output import STREAMS, KeptOutput, Place, split_line
from cotenant.backends.kubernetes.pods import ERRORS, KEY, facts, main_of
from cotenant.backends.local.logs import LocalLog

FRESH_S = 0.1  # what was read so lately is not asked for again
_BATCH = 1000


class LogKeeper:
    """One per backend. `pods_of`: the pods of a key; `lives`: whether it can still print."""

    def __init__(
        self, client: KubeClient, namespace: str, folder: Path, pods_of: Callable[[str], Sequence[Body]],
        lives: Callable[[str], bool],
    ) -> None:  # fmt: skip
        self._client, self._namespace, self._folder = client, namespace, folder
        self._pods_of, self.lives = pods_of, lives
        self._lock = threading.Lock()
        self._asked_s: dict[str, float] = {}
        self._followed: dict[str, threading.Thread] = {}
        self._streams: set[KubeStream] = set()
        self._closed = False

    def kept(self, key: str) -> KeptOutput:
        """What is kept of a key."""
        return KeptOutput(self._folder / key)

    def pull(self, key: str, final: bool = False) -> None:
        """Take in what has come since the last time. Where nobody answers there is nothing new."""
        now_s = time.monotonic()
        with self._lock:
            if not final and now_s - self._asked_s.get(key, -FRESH_S) < FRESH_S:
                return
            self._asked_s[key] = now_s
        for pod in self._pods_of(key):
            thread = self._followed.get(pod["metadata"]["uid"])
            if thread is None:
                self._read(pod, follow=False)
            elif final:
                thread.join(5.0)

    def follow(self, pod: Body) -> None:
        """Read on to the end, whatever becomes of the pod. Returns when it is connected."""
        uid = pod["metadata"]["uid"]
        with self._lock:
            if uid in self._followed or self._closed or not pod["spec"].get("nodeName"):
                return
            ready = threading.Event()
            thread = threading.Thread(target=self._follow, args=(pod, ready), name="follow log", daemon=True)
            self._followed[uid] = thread
        thread.start()
        ready.wait(2.0)

    def _follow(self, pod: Body, ready: threading.Event) -> None:
        readers = [threading.Thread(target=self._read_one, args=(pod, stream, True), daemon=True) for stream in STREAMS]
        for reader in readers:
            reader.start()
        until_s = time.monotonic() + 1.0
        while len(self._streams) < len(readers) and any(r.is_alive() for r in readers) and time.monotonic() < until_s:
            time.sleep(0.005)
        ready.set()
        for reader in readers:
            reader.join()

    def _read(self, pod: Body, follow: bool) -> None:
        if pod["spec"].get("nodeName"):
            for stream in STREAMS:
                self._read_one(pod, stream, follow)

    def _read_one(self, pod: Body, stream: Stream, follow: bool) -> None:
        meta, container = pod["metadata"], main_of(pod) if stream == "stdout" else ERRORS
        if all(one["name"] != container for one in pod["spec"]["containers"]):
            return
        key, source = meta["annotations"][KEY], f"{meta['uid']}/{container}"
        last, limits = self.kept(key).place(source), facts(pod)["limits"]
        query = {"container": container, "timestamps": "true"}
        if last[0]:
            query["sinceTime"] = f"{datetime.fromtimestamp(last[0] // 10**9, UTC):%Y-%m-%dT%H:%M:%SZ}"
        if follow:
            query["follow"] = "true"
        path = f"/api/v1/namespaces/{self._namespace}/pods/{meta['name']}/log"
        try:
            with self._client.stream(path, query, 3600.0 if follow else 30.0) as response:
                self._take(response, self.kept(key), source, stream, limits)
        except KubeRefused:
            return  # it has not begun, or its node has forgotten it
        except BackendError:
            return  # nobody answers: another time

    def _take(self, response: KubeStream, kept: KeptOutput, source: str, stream: Stream, limits: Sequence[int]) -> None:
        """Number lines of one time, which the API gives all or none of, and write them down."""
        with self._lock:
            if self._closed:
                return
            self._streams.add(response)
        rest, at, batch = b"", (0, 0), list[tuple[Place, bytes]]()
        try:
            for data in response.chunks():
                *raw, rest = (rest + data).split(b"\n")
                for line in raw:
                    at, text = _numbered(line + b"\n", at)
                    batch.append((at, text))
                kept.add(source, stream, limits, batch)
                batch = []
            if rest:
                at, text = _numbered(rest, at)
                kept.add(source, stream, limits, [(at, text)])
        finally:
            with self._lock:
                self._streams.discard(response)

    def forget(self, key: str) -> None:
        """Nothing more will come of it."""
        with self._lock:
            self._asked_s.pop(key, None)
            for pod in self._pods_of(key):
                self._followed.pop(pod["metadata"]["uid"], None)

    def close(self) -> None:
        """End what follows."""
        with self._lock:
            self._closed = True
            streams, threads = list(self._streams), list(self._followed.values())
        for stream in streams:
            stream.stop()
        for thread in threads:
            thread.join(2.0)


def _numbered(raw: bytes, before: Place) -> tuple[Place, bytes]:
    at_ns, text = split_line(raw)
    at_ns = at_ns or before[0]
    return (at_ns, before[1] + 1 if at_ns == before[0] else 1), text


class PodLog:
    """One stream of a key: asks the cluster for what is new, then reads what is kept."""

    def __init__(self, keeper: LogKeeper, key: str, stream: Stream) -> None:
        self.key, self._keeper = key, keeper
        self._files = LocalLog(key, stream, (keeper.kept(key).folder,), lambda: keeper.lives(key))
        self._complete = False

    def _pull(self) -> None:
        if not self._complete:
            ended = not self._keeper.lives(self.key)
            self._keeper.pull(self.key, final=ended)
            self._complete = ended

    def span(self) -> tuple[int, int]:
        """The oldest byte that is kept, and the end."""
        self._pull()
        return self._files.span()

    def read(self, offset: int, size: int) -> LogPart:
        """Bytes from an offset on."""
        self._pull()
        return self._files.read(offset, size)

    def ended(self) -> bool:
        """Whether no more can come."""
        if self._keeper.lives(self.key):
            return False
        self._pull()
        return True
