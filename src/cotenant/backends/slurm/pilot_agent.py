"""What a pilot runs on its node: an agent around the local backend, whom the service calls over TCP.

    python -m cotenant.backends.slurm.pilot_agent HOME NODE ADDRESS GPU_TYPE GPUS IDLE_S STEPD

STEPD is Slurm's process above the pilot's script. Should that die alone, Slurm could end nothing of the pilot any more
and would give the node to others all the same: so the agent gives its allocation back, and its leash ends the jobs.
Else it ends when nobody has called for IDLE_S seconds and nothing runs, so that a node is not held for a service that
is gone; or with its allocation. When it dies, the pilot's script starts another one, which finds all jobs again.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cotenant.backends.agent.agent import NodeAgent
from cotenant.backends.agent.leash import end_all
from cotenant.backends.local import procs
from cotenant.backends.slurm.wire import Wire, WrongSecret, secret_of

_HANDSHAKE_S = 5.0
_THREADS = 64
_LOOK_S = 2.0


def node_folder(home: Path, node: str) -> Path:
    """What is kept of one node."""
    return home / "slurm" / "nodes" / node


class PilotAgent:
    """Answers whoever knows the secret."""

    def __init__(self, home: Path, node: str, address: str, gpu_type: str, gpus: int, stepd: int) -> None:
        self._folder, life = node_folder(home, node), os.environ["SLURM_JOB_ID"]
        self._secret = secret_of(home / "slurm" / "secret")
        for old in sorted((self._folder / "lives").glob("*")):
            if old.name != life:
                end_all(old, self._folder, node)  # of a pilot before: whatever ran there is gone with it
        self._agent = NodeAgent(str(self._folder), life, node, gpu_type, gpus, stepd)
        self._door = socket.create_server((address, 0))
        self._pool = ThreadPoolExecutor(_THREADS)
        self._called_s = time.monotonic()
        self._publish({"job": int(life), "address": address, "port": self._door.getsockname()[1]})

    def _publish(self, facts: dict[str, Any]) -> None:
        path = self._folder / "agent.json.tmp"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(facts, file)
        os.replace(path, self._folder / "agent.json")

    def serve(self, idle_s: float) -> None:
        """Until nobody needs it, or Slurm does not hold the node any more."""
        threading.Thread(target=self._accept, daemon=True).start()
        while time.monotonic() - self._called_s < idle_s or any(one.alive for one in self._agent.observe()):
            if not self._agent.is_held():
                return give_back()
            time.sleep(min(_LOOK_S, idle_s))

    def _accept(self) -> None:
        while True:
            sock, _ = self._door.accept()
            threading.Thread(target=self._greet, args=(sock,), daemon=True).start()

    def _greet(self, sock: socket.socket) -> None:
        sock.settimeout(_HANDSHAKE_S)
        with contextlib.suppress(OSError, ValueError, WrongSecret):
            wire = Wire(sock, self._secret, caller=False)
            wire.patience(None)
            while True:
                number, act, given = wire.receive()
                self._called_s = time.monotonic()
                self._pool.submit(self._answer, wire, number, act, given)
        sock.close()

    def _answer(self, wire: Wire, number: int, act: str, given: Any) -> None:
        what: Any
        if act == "hello":
            what = "ok", self._agent.hello()
        elif act == "wait":
            what = "ok", self._agent.wait(*given)
        else:
            what = self._agent.do(act, *given)
        with contextlib.suppress(OSError):
            wire.send((number, *what))


def main(argv: list[str]) -> None:
    """As the pilot's script starts it."""
    home, node, address, gpu_type, gpus, idle_s, *above = argv
    stepd = int(above[0]) if above else 0  # scripts of older pilots do not tell it
    if stepd and procs.state_of(stepd) == "X":
        give_back()
    else:
        PilotAgent(Path(home), node, address, gpu_type, int(gpus), stepd).serve(float(idle_s))
    os._exit(0)


def give_back() -> None:
    """Have Slurm end this allocation."""
    subprocess.run(["scancel", os.environ["SLURM_JOB_ID"]], check=False)


if __name__ == "__main__":
    main(sys.argv[1:])
