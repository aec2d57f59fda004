"""The pilots: one Slurm job per node, which holds it and runs our agent there.

What pilots there are is read from Slurm, by their comments; where their agents listen, from the home. A pilot that runs
and whose agent answers makes a node; one that waits in Slurm's queue is a node that is waking. Shortly before an
allocation ends its node is to be left, and when nothing is on it any more it is given back.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shlex
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TookTooLong
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cotenant
from cotenant.backends.base import Unreachable
from cotenant.backends.slurm.commands import Slurm, SlurmJob
from cotenant.backends.slurm.nodes import NodeList, SlurmNode
from cotenant.backends.slurm.pilot_agent import node_folder
from cotenant.backends.slurm.poll import Poll
from cotenant.backends.slurm.wire import Wire, WrongSecret, secret_of
from cotenant.core.errors import CotenantError

_LOOK_S = 0.25
_LONG_POLL_S = 2.0
_STALE_S = 5.0
_PATIENCE_S = 10.0  # for which a pilot waits for a node where others are, while there is a free one
_PILOT = "pilot/"
_SCRIPT = """#!/bin/bash
export PYTHONPATH={path}
until {agent} $PPID; do sleep 1; done
"""


@dataclass(frozen=True, slots=True)
class PilotSettings:
    """How pilots are asked for. `time_s`: 0 is as long as the partition allows. `margin_s` before its end a node is
    left; an agent that nobody calls for `idle_s` gives its node back."""

    time_s: float = 0.0
    margin_s: float = 120.0
    idle_s: float = 3600.0
    account: str = ""
    qos: str = ""


class AgentLine:
    """A connection to one agent: calls and their answers, in any order, and news."""

    def __init__(self, wire: Wire, job: int, news: Callable[[], None]) -> None:
        self._wire, self.job, self._news = wire, job, news
        self._lock, self._waiting, self._number = threading.Lock(), dict[int, Future[tuple[str, Any]]](), 0
        self.heard_s, self.broken = time.monotonic(), False
        self.facts: dict[str, Any] | None = None
        self._threads = [threading.Thread(target=call, daemon=True) for call in (self._hear, self._watch)]
        for thread in self._threads:
            thread.start()

    def _hear(self) -> None:
        with contextlib.suppress(OSError, ValueError, WrongSecret):
            while True:
                number, kind, what = self._wire.receive()
                self.heard_s = time.monotonic()
                with self._lock:
                    waits = self._waiting.pop(number, None)
                if waits is not None:
                    waits.set_result((kind, what))
        with self._lock:
            self.broken, waiting, self._waiting = True, self._waiting, {}
        for one in waiting.values():
            one.set_result(("away", "its agent hung up"))
        self._wire.close()
        self._news()

    def _watch(self) -> None:
        """News, and the certainty that somebody is there."""
        version = 0
        while not self.broken:
            kind, what = self.wait_for(self.begin("wait", (version, _LONG_POLL_S)), _LONG_POLL_S + _STALE_S)
            if kind == "ok" and what != version:
                version = what
                self._news()

    def begin(self, act: str, given: tuple[Any, ...]) -> Future[tuple[str, Any]]:
        """Ask for something."""
        waits: Future[tuple[str, Any]] = Future()
        with self._lock:
            self._number += 1
            number = self._number
            if not self.broken:
                self._waiting[number] = waits
        try:
            if self.broken:
                raise OSError("it hung up")
            self._wire.send((number, act, given))
        except OSError as error:
            with self._lock:
                self._waiting.pop(number, None)
            if not waits.done():
                waits.set_result(("away", str(error)))
        return waits

    @staticmethod
    def wait_for(waits: Future[tuple[str, Any]], timeout_s: float) -> tuple[str, Any]:
        """What came of it."""
        try:
            return waits.result(max(timeout_s, 0.0))
        except TookTooLong:
            return "away", f"no answer within {timeout_s:g} s"

    def close(self) -> None:
        """Hang up, and wait until nobody uses the line any more."""
        self._wire.close()
        for thread in self._threads:
            thread.join(_LONG_POLL_S)


class Pilots:
    """What `AgentBackend` asks of a link: a table of nodes, a small store, acts at agents. And pilots come and go."""

    def __init__(self, home: Path, slurm: Slurm, nodes: NodeList, settings: PilotSettings, poll_s: float) -> None:
        self._home, self.slurm, self.list, self._settings, self._poll_s = home, slurm, nodes, settings, poll_s
        self._root, self._store = home / "slurm", home / "slurm" / "store"
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._secret = secret_of(self._root / "secret")
        self._poll = Poll(slurm)
        self._lines: dict[str, AgentLine] = {}
        self._jobs: dict[str, SlurmJob] = {}
        self._asked: dict[str, tuple[float, SlurmJob]] = {}  # pilots that no poll can know yet, and when they came in
        self._since_s: dict[str, float] = {}  # since when pilots wait for others
        self._lock, self._ending, self._fresh_s = threading.Lock(), threading.Event(), 0.0
        self.table: list[dict[str, Any]] = []
        self.news: list[Callable[[], object]] = []
        self.host = socket.gethostname()
        self._look()
        self._thread = threading.Thread(target=self._run, name="pilots", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hang up. Pilots stay."""
        self._ending.set()
        self._thread.join()
        for line in self._lines.values():
            line.close()

    def _tell(self) -> None:
        for call in tuple(self.news):
            call()

    # -- which there are -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ending.wait(_LOOK_S):
            try:
                self._look()
            except (CotenantError, OSError):
                continue  # Slurm does not answer, or cannot be asked: agents do, and pilots stay as they were

    def _look(self) -> None:
        found = self._poll.latest(self._poll_s)
        jobs = {what.removeprefix(_PILOT): job for what, job in found.items() if what.startswith(_PILOT)}
        with self._lock:
            self._asked = {name: one for name, one in self._asked.items() if one[0] >= self._poll.asked_s}
            alive = {name: job for name, job in jobs.items() if not job.over}
            before, self._jobs = self._jobs, {name: job for name, (_, job) in self._asked.items()} | alive
            jobs = dict(self._jobs)
        for name, job in jobs.items():
            line = self._lines.get(name)
            if line is not None and (line.broken or line.job != job.id):
                line.close()
                del self._lines[name]
            if job.state == "RUNNING" and name not in self._lines:
                self._connect(name, job.id)
        for name in self._lines.keys() - jobs.keys():
            self._lines.pop(name).close()
        self._give_up(jobs)
        table = [self._row(name, job) for name, job in sorted(jobs.items()) if job.state == "RUNNING"]
        if table != self.table or {n: j.state for n, j in before.items()} != {n: j.state for n, j in jobs.items()}:
            self.table = table
            self.list.stale()
            self._tell()

    def _connect(self, name: str, job: int) -> None:
        with contextlib.suppress(OSError, ValueError, KeyError, WrongSecret):
            facts = json.loads((node_folder(self._home, name) / "agent.json").read_text())
            if facts["job"] != job:
                return
            where = facts["address"], facts["port"]
            line = AgentLine(_greeted(where, self._secret), job, self._tell)
            kind, what = line.wait_for(line.begin("hello", ()), _STALE_S)
            if kind == "ok":
                line.facts = what
                self._lines[name] = line
            else:
                line.close()

    def _row(self, name: str, job: SlurmJob) -> dict[str, Any]:
        line, node = self._lines.get(name), self.list.known().get(name)
        info = node.info if node is not None else None
        return {
            "id": str(job.id), "name": name, "alive": True, "address": name,
            "gpus": info.gpus if info else 0, "cpus": info.cpus if info else 1,
            "mem_gib": info.mem_gib if info else 0.0, "gpu_type": info.gpu_type if info else "gpu",
            "facts": line.facts if line is not None else None,
            "trouble": "" if line is not None else "its agent does not answer",
        }  # fmt: skip

    def nodes(self) -> list[dict[str, Any]]:
        """The table, unless no agent at all has been heard for a while."""
        with self._lock:
            lines = list(self._lines.values())
        now_s = time.monotonic()
        if lines and all(now_s - line.heard_s > _LONG_POLL_S + _STALE_S for line in lines):
            raise Unreachable("no agent of Slurm's pilots answers: nothing is known of jobs now")
        return self.table

    def state(self, node: SlurmNode) -> tuple[str, float]:
        """Whether a node is up, and from when on it must be left (0: never)."""
        with self._lock:
            job = self._jobs.get(node.info.name)
        if job is None:
            return ("asleep" if node.info.state == "up" else "down"), 0.0
        if job.state != "RUNNING":
            return "waking", 0.0
        line = self._lines.get(node.info.name)
        if line is None:
            return "waking", 0.0
        away = time.monotonic() - line.heard_s > _LONG_POLL_S + _STALE_S
        leaves_s = job.ends_s - self._settings.margin_s if job.ends_s else 0.0
        return ("down" if away else "up"), leaves_s

    def over(self, busy: set[str]) -> list[str]:
        """Nodes that are to be left by now, and on which nothing is."""
        now_s, margin_s = time.time(), self._settings.margin_s
        with self._lock:
            jobs = {name: job for name, job in self._jobs.items() if job.state == "RUNNING" and name not in busy}
        return [name for name, job in jobs.items() if job.ends_s and now_s > job.ends_s - margin_s]

    # -- asking for more, giving back ------------------------------------------------------------------------------

    def wake(self, names: Sequence[str]) -> None:
        """A pilot for each of these nodes that has none; where others are on one, for a free one that is like it."""
        nodes = self.list.all(fresh=True)
        for asked in names:
            with self._lock:
                if asked in self._jobs or asked not in nodes:
                    continue
                name = asked if nodes[asked].idle else next(iter(self._free(nodes, asked, names)), asked)
            number = self.slurm.submit(f"{_PILOT}{name}", self._options(nodes[name]), self._script(nodes[name]))
            with self._lock:
                self._jobs[name] = SlurmJob(number, "PENDING", "", 0.0, "", f"{_PILOT}{name}")
                self._asked[name] = time.monotonic(), self._jobs[name]
        self._poll.stale()

    def _free(self, nodes: dict[str, SlurmNode], like: str, but: Sequence[str]) -> list[str]:
        """Nodes as large as one, of the same type, on which nobody is and for which nobody waits."""
        shape = nodes[like].info.gpu_type, nodes[like].info.gpus
        return [
            name for name, node in sorted(nodes.items())
            if node.idle and (node.info.gpu_type, node.info.gpus) == shape and name not in (*but, *self._jobs)
        ]  # fmt: skip

    def _give_up(self, jobs: dict[str, SlurmJob]) -> None:
        """Pilots that wait for others to leave, while there is a free node like theirs: they are asked for anew."""
        now_s, nodes = time.monotonic(), self.list.known()
        waiting = {name for name, job in jobs.items() if job.waits and name in nodes and not nodes[name].idle}
        self._since_s = {name: self._since_s.get(name, now_s) for name in waiting}
        for name, since_s in self._since_s.items():
            if now_s - since_s > _PATIENCE_S and self._free(nodes, name, ()):
                self.slurm.cancel(jobs[name].id)
                self._poll.stale()

    def sleep(self, names: Sequence[str]) -> None:
        """Give these nodes back."""
        for name in names:
            with self._lock:
                job = self._jobs.get(name)
            if job is not None:
                self.slurm.cancel(job.id)
        self._poll.stale()

    def _options(self, node: SlurmNode) -> list[str]:
        most_s, time_s = self.list.partition.most_s, self._settings.time_s
        limit_s = min(time_s or math.inf, most_s or math.inf)
        folder = node_folder(self._home, node.info.name)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return [
            "--job-name=cotenant", f"--partition={self.list.partition.name}", f"--nodelist={node.info.name}",
            "--nodes=1", "--ntasks=1", "--exclusive", "--mem=0", f"--output={folder / 'pilot.log'}", "--chdir=/",
            *([f"--gres=gpu:{node.info.gpus}"] if node.info.gpus else []),
            *([f"--time={max(1, int(limit_s // 60))}"] if limit_s < math.inf else []),
            *([f"--account={self._settings.account}"] if self._settings.account else []),
            *([f"--qos={self._settings.qos}"] if self._settings.qos else []),
        ]  # fmt: skip

    def _script(self, node: SlurmNode) -> str:
        info = node.info
        agent = [
            sys.executable, "-m", "cotenant.backends.slurm.pilot_agent", str(self._home), info.name, node.address,
            info.gpu_type, str(info.gpus), str(self._settings.idle_s),
        ]  # fmt: skip
        return _SCRIPT.format(path=shlex.quote(str(Path(cotenant.__file__).parents[1])), agent=shlex.join(agent))

    # -- what is asked of agents, and kept -------------------------------------------------------------------------

    def ask(self, requests: list[tuple[str, str, tuple[Any, ...]]], timeout_s: float) -> list[tuple[str, Any]]:
        """One act at each of several agents, by the numbers of their pilots, at the same time."""
        lines = {str(line.job): line for line in self._lines.values()}
        begun = [lines[life].begin(act, given) if life in lines else None for life, act, given in requests]
        until_s = time.monotonic() + timeout_s
        return [
            AgentLine.wait_for(one, until_s - time.monotonic()) if one is not None else ("away", "there is no agent")
            for one in begun
        ]

    def call(self, op: str, name: str, *given: Any, timeout_s: float = 0.0) -> Any:
        """The store: small values by name, as files at home. `put` answers with what is there."""
        self.nodes()
        path = self._store / name
        if op == "list":
            found = sorted(path.glob("*")) if path.is_dir() else []
            return {f"{name}{one.name}": one.read_bytes() for one in found if not one.name.endswith("~")}
        if op == "drop":
            path.unlink(missing_ok=True)
            return None
        if op == "put":
            self._put(path, *given)
        try:
            return path.read_bytes()
        except OSError:
            return None

    def _put(self, path: Path, value: bytes, overwrite: bool) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{threading.get_ident()}.{os.getpid()}~")
        temporary.write_bytes(value)
        if overwrite:
            os.replace(temporary, path)
            return
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
        temporary.unlink()


def _greeted(where: tuple[str, int], secret: bytes) -> Wire:
    """A connection to an agent that knows the secret."""
    sock = socket.create_connection(where, timeout=_LOOK_S * 4)
    try:
        wire = Wire(sock, secret, caller=True)
    except BaseException:
        sock.close()
        raise
    wire.patience(None)
    return wire
