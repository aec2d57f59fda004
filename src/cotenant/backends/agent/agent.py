"""What stays on a node: an agent around the local backend, so that jobs there are kept as on a single machine.

It may die at any time: keepers are not its children, and whoever is started in its place finds all it needs in the
records. What holds the node is its parent (Ray's own process there), or, of a pilot, Slurm's process above the script:
the node goes with that.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Literal

from cotenant._version import __version__
from cotenant.backends.base import BackendError, Observed, Stream
from cotenant.backends.channels import Channel, ChannelSpec
from cotenant.backends.local import LocalBackend, procs
from cotenant.backends.local import gpus as devices
from cotenant.backends.local.keeper_files import start_ticks
from cotenant.core.errors import CotenantError, InputError
from cotenant.core.node_faults import NodeFault

Answer = tuple[Literal["ok", "input", "backend", "away"], Any]
_ACTS = frozenset((
    *("launch", "terminate", "kill", "suspend", "resume", "set_limits", "forget", "drop_log", "launched", "ended"),
    *("gpu_use", "health", "observe", "check", "leave", "log_state", "log_read", "marks"),
    *("open_channel", "channel_read", "channel_write", "channel_do"),
))  # fmt: skip
_LINE = 64 << 10  # the longest line that is not cut between two machines of a gang


class NodeAgent:
    """One for each node. `folder` is of this node alone: records of this life of it, what is kept for longer beside.

    `holder`: the process that holds the node; else the parent.
    """

    def __init__(self, folder: str, life: str, node: str, gpu_type: str, gpus: int, holder: int = 0) -> None:
        root = Path(folder)
        for path in (root.parents[1], root.parent, root):
            own_folder(path)
        self._records = root / "lives" / life
        real = len(devices.find()) >= gpus > 0
        types = None if real else [gpu_type] * gpus
        self._backend = LocalBackend(
            self._records, gpus if real else None, types, name=node, home=root, alone=True
        )  # fmt: skip
        self._channels: dict[int, Channel] = {}
        self._lock, self._news = threading.Lock(), threading.Condition()
        self._version = 0
        self._parent = os.getppid()
        self._holder = holder or self._parent
        self._ticks = start_ticks(self._holder)
        hold_on_leash(self._records, root, node, self._holder, self._ticks)
        threading.Thread(target=self._watch, name="watch", daemon=True).start()

    def _watch(self) -> None:
        while True:
            if self._backend.wait_change(30.0):
                with self._news:
                    self._version += 1
                    self._news.notify_all()

    def hello(self) -> dict[str, Any]:
        """Who it is and what it found."""
        (node,) = self._backend.nodes()
        return {
            "version": __version__, "gpu_type": node.gpu_type, "gpu_mem_gib": node.gpu_mem_gib,
            "capabilities": self._backend.capabilities(),
        }  # fmt: skip

    def wait(self, version: int, timeout_s: float) -> int:
        """Return when something may have changed since a version, or the time is over; the present version."""
        with self._news:
            self._news.wait_for(lambda: self._version != version, timeout_s)
            return self._version

    def do(self, act: str, *given: Any) -> Answer:
        """Do one thing that the backend asks for; errors that are meant for people travel as words.

        When what holds the node is gone, so is the node: ends that the leash made are not told as the jobs' own.
        """
        answer = self._do(act, *given)
        return answer if self.is_held() else ("away", "what held this node has ended")

    def is_held(self) -> bool:
        """Whether what holds the node is there."""
        return os.getppid() == self._parent and procs.is_process(self._holder, self._ticks)

    def _do(self, act: str, *given: Any) -> Answer:
        if act not in _ACTS:
            return "backend", f"this agent knows no '{act}'"
        try:
            return "ok", getattr(self if hasattr(self, act) else self._backend, act)(*given)
        except InputError as error:
            return "input", str(error)
        except (CotenantError, OSError) as error:
            return "backend", str(error)

    def observe(self) -> list[Observed]:
        """All that is on this node; by one thread at a time."""
        with self._lock:
            (node,) = self._backend.nodes()
            return [
                dataclasses.replace(one, hint=f"{one.hint} on {node.name}") if one.hint else one
                for one in self._backend.observe()
            ]

    def health(self) -> tuple[NodeFault, ...]:
        """What is wrong with this node and its GPUs."""
        return tuple(fault for node in self._backend.nodes() for fault in node.faults)

    def check(self, spec: Any) -> None:
        """Refuse what could not be started here; nothing is started."""
        if spec.workdir and not os.path.isdir(spec.workdir):
            raise InputError(f"job {spec.key}: workdir '{spec.workdir}' is not an existing directory")

    def leave(self) -> None:
        """It is to end for good: so may its leash."""
        if not self._backend.observe():
            shutil.rmtree(self._records, ignore_errors=True)

    # -- output ----------------------------------------------------------------------------------------------------

    def log_state(self, key: str, stream: Stream, lines: bool = False) -> tuple[int, int, bool]:
        """Of a log: its oldest byte, its end (of its last whole line, if asked and more may come), whether it ended."""
        log = self._backend.open_log(key, stream)
        ended = log.ended()  # first: whatever is there by then is all
        first, end = log.span()
        if lines and not ended:
            tail = log.read(max(first, end - _LINE), _LINE)
            cut = tail.data.rfind(b"\n") + 1
            end = tail.at + cut if cut or len(tail.data) < _LINE else end
        return first, end, ended

    def log_read(self, key: str, stream: Stream, offset: int, size: int) -> tuple[int, bytes]:
        """Some of its bytes, and where they begin."""
        part = self._backend.open_log(key, stream).read(offset, size)
        return part.at, part.data

    def marks(self, key: str, at_s: float, stdout: float, stderr: float, most: int) -> list[tuple[float, int, int]]:
        """When it came."""
        return [tuple(mark) for mark in self._backend.open_times(key).marks(at_s, stdout, stderr, most)]  # type: ignore[misc]

    # -- ways in ---------------------------------------------------------------------------------------------------

    def open_channel(self, key: str, asked: ChannelSpec) -> int:
        """A number for a way into a job."""
        channel = self._backend.open_channel(key, asked)
        with self._lock:
            number = max(self._channels, default=0) + 1
            self._channels[number] = channel
        return number

    def channel_read(self, number: int, timeout_s: float) -> Any:
        """What comes out of it."""
        return self._channel(number).read(timeout_s)

    def channel_write(self, number: int, data: bytes, timeout_s: float) -> int:
        """What goes in."""
        return self._channel(number).write(data, timeout_s)

    def channel_do(self, number: int, act: str, *given: int) -> None:
        """`end_input`, `resize` or `close`."""
        if act == "close":
            with self._lock:
                channel = self._channels.pop(number, None)
            if channel is not None:
                channel.close()
        elif act in ("end_input", "resize"):
            getattr(self._channel(number), act)(*given)

    def _channel(self, number: int) -> Channel:
        channel = self._channels.get(number)
        if channel is None:
            raise BackendError("this way into the job is closed: its agent began anew")
        return channel


def own_folder(path: Path) -> None:
    """Make a folder that nobody else can have put there: it may lie where everybody can make some."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = os.stat(path, follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (0, os.geteuid()):
        raise InputError(f"folder {path} of the agent belongs to somebody else: give another (ray:folder=...)")


def hold_on_leash(records: Path, home: Path, node: str, holder: int, ticks: int) -> None:
    """Start the process that ends all jobs of these records once the process that holds the node is gone."""
    told = (str(records), str(home), node, str(holder), str(ticks))
    argv = [sys.executable, "-m", "cotenant.backends.agent.leash", *told]
    env = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": ":".join(path for path in sys.path if path)}
    subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, check=True, timeout=60)
