"""A container of the fake kubelet: a local process with its output kept line by line, as container runtimes do."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cotenant.backends.local import procs
from cotenant.backends.local.keeper_files import text_of
from cotenant.testing.kube_store import stamp

MARK = "COTENANT_FAKE_POD"
END = "/dev/termination-log"


class ContainerLog:
    """Lines with the time at which they were complete."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, bytes]] = []
        self._news, self._open = threading.Condition(), True

    def fill(self, read: Callable[[], bytes]) -> None:
        """Take in what comes until there is no more."""
        rest = b""
        while data := read():
            *lines, rest = (rest + data).split(b"\n")
            self._add([line + b"\n" for line in lines])
        self._add([rest] if rest else [])
        with self._news:
            self._open = False
            self._news.notify_all()

    def _add(self, lines: list[bytes]) -> None:
        with self._news:
            self._lines += [(time.time_ns(), line) for line in lines]
            self._news.notify_all()

    def read(self, query: Mapping[str, str]) -> Iterator[bytes]:
        """As `pods/log` asks: sinceTime (whole seconds), timestamps, limitBytes, follow."""
        since_ns = _seconds(query["sinceTime"]) * 10**9 if "sinceTime" in query else 0
        left, place = int(query.get("limitBytes", 1 << 40)), 0
        while left > 0:
            with self._news:
                if place == len(self._lines):
                    if not self._open or query.get("follow") != "true":
                        return
                    self._news.wait(1.0)
                lines, place = self._lines[place:], len(self._lines)
            for at_ns, line in lines:
                if at_ns >= since_ns:
                    data = (f"{_nano(at_ns)} ".encode() if query.get("timestamps") == "true" else b"") + line
                    yield data[:left]
                    left -= len(data)
                    if left <= 0:
                        return


def _seconds(text: str) -> int:
    return int(datetime.fromisoformat(re.sub(r"\.\d+", "", text).replace("Z", "+00:00")).timestamp())


def _nano(at_ns: int) -> str:
    return f"{datetime.fromtimestamp(at_ns // 10**9, UTC):%Y-%m-%dT%H:%M:%S}.{at_ns % 10**9:09}Z"


class Container:
    """One of a pod. There are no images, mounts or namespaces: paths of volumes are replaced where they are named."""

    def __init__(self, spec: Mapping[str, Any], uid: str, folders: Mapping[str, str], over: Callable[[], None]) -> None:
        self.name, self.log, self._over = str(spec["name"]), ContainerLog(), over
        self._mark, self._end = f"{MARK}={uid}/{self.name}", Path(folders[""]) / f"{self.name}.end"
        places = {**{path: place for path, place in folders.items() if path}, END: str(self._end)}
        self.began, self.ended, self.code, self.message = stamp(), "", 0, ""
        self._began_s = time.monotonic()
        env: dict[str, str] = {}
        for one in spec.get("env", ()):
            env[one["name"]] = _placed(_expanded(one.get("value", ""), env), places)
        command = [_placed(_expanded(word, env), places) for word in (*spec.get("command", ()), *spec.get("args", ()))]
        env = {"PATH": os.environ["PATH"], **env, MARK: f"{uid}/{self.name}"}
        try:
            self._process = subprocess.Popen(
                command, cwd=spec.get("workingDir") or folders[""], env=env, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, bufsize=0,
            )  # fmt: skip
        except OSError as error:
            self.code, self.message, self.ended = 128, f"failed to start container: {error}", stamp()
            self.log.fill(lambda: b"")
            return
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            reader = threading.Thread(target=self.log.fill, args=(lambda: pipe.read(65536) or b"",), daemon=True)
            reader.start()
            code = self._process.wait()
            self._kill_all()  # as the kernel does when the first process of a namespace ends
            reader.join()
        self.code = 128 - code if code < 0 else code
        with suppress(OSError):
            self.message = self._end.read_text(encoding="utf-8", errors="replace").strip()[:4096]
        self.ended = stamp()
        self._over()

    def _kill_all(self) -> None:
        while left := {pid for pid in procs.marked(self._mark.encode()) if procs.state_of(pid) not in "ZX"}:
            for pid in left:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)

    def listens(self) -> bool:
        """Whether its first process catches or ignores SIGTERM by now; one that never does has had two seconds."""
        if self.ended or time.monotonic() - self._began_s > 2.0:
            return True
        words = text_of(f"/proc/{self._process.pid}/status").split()
        masks = [words[words.index(name) + 1] for name in ("SigIgn:", "SigCgt:") if name in words]
        return any(int(mask, 16) & (1 << (signal.SIGTERM - 1)) for mask in masks)

    def tell(self, number: signal.Signals) -> None:
        """A signal to its first process. As in a container, one that it neither catches nor ignores does nothing."""
        if not self.ended and (number == signal.SIGKILL or self.listens()):
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def status(self) -> dict[str, Any]:
        """As the kubelet reports it."""
        state: dict[str, Any] = {"running": {"startedAt": self.began}}
        if self.ended:
            reason = "StartError" if self.code == 128 else "Completed" if self.code == 0 else "Error"
            ended = {"exitCode": self.code, "reason": reason, "startedAt": self.began, "finishedAt": self.ended}
            state = {"terminated": {**ended, "message": self.message}}
        told = {"ready": not self.ended, "restartCount": 0, "image": "fake", "imageID": ""}
        return {"name": self.name, "state": state, **told}


def _expanded(text: str, env: Mapping[str, str]) -> str:
    """As the kubelet does: `$(NAME)` is a variable that is known, `$$` a dollar."""
    return re.sub(r"\$\$|\$\(([^)]*)\)", lambda found: "$" if found[0] == "$$" else env.get(found[1], found[0]), text)


def _placed(text: str, places: Mapping[str, str]) -> str:
    for path, place in places.items():
        text = text.replace(path, place)
    return text
