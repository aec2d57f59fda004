"""What jobs run on in `bench.faults`, one class per backend: how it is started, broken and mended.

Every world has room for two of the bench's jobs at a time, on two nodes where it has nodes. A fault or phase that has
no sense in a world is in its `senseless`, with the reason.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from cotenant.backends.slurm.pilot_agent import node_folder
from cotenant.testing.ray_world import RayWorld
from cotenant.testing.slurm_cluster import SlurmCluster, missing

PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Victim:
    """Where to strike: the attempt of a job, its node, and the home of its service."""

    key: str
    node: str
    home: Path


class World(Protocol):
    """What `bench.fault_play` asks of a world. `gpus`: of each job; two jobs fill the world."""

    gpus: int
    env: Mapping[str, str]
    one_home: bool  # the services of one journal share a home
    senseless: Mapping[str, str]

    def backend(self, name: str) -> str:
        """As for `cotenant serve`; names are never used again."""
        ...

    def node_killed(self, victim: Victim) -> Any:
        """A context within which the node is gone."""
        ...

    def agent_killed(self, victim: Victim) -> None:
        """Kill what keeps the job on its node. Whoever is to start it again does so by itself."""
        ...

    def control_stopped(self) -> Any:
        """A context within which the control plane does not answer."""
        ...

    def clear(self, backend: str, home: Path) -> bool:
        """Take away what is left of a service that is gone; whether nothing is."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class Local:
    """This machine, and nothing else."""

    gpus, one_home = 2, True
    env: ClassVar[Mapping[str, str]] = {}
    senseless: ClassVar[Mapping[str, str]] = {
        "node killed": "the node is the service's own machine",
        "control plane stopped": "there is none but the service",
        "network cut": "nothing goes over a network",
    }

    def backend(self, name: str) -> str:
        """Four virtual GPUs, two for each job."""
        return "local:gpus=4"

    def node_killed(self, victim: Victim) -> Any:
        """It has no sense here."""
        raise NotImplementedError

    def agent_killed(self, victim: Victim) -> None:
        """The job's keeper."""
        kill_keeper(victim.home / "jobs" / "jobs" / victim.key)

    def control_stopped(self) -> Any:
        """It has no sense here."""
        raise NotImplementedError

    def clear(self, backend: str, home: Path) -> bool:
        """There is nothing but what is in the folder."""
        return True

    def close(self) -> None:
        """Nothing to do."""
        pass


class Ray:
    """A real Ray cluster of two nodes."""

    gpus, one_home = 2, False
    env: ClassVar[Mapping[str, str]] = {}
    senseless: ClassVar[Mapping[str, str]] = {}

    def __init__(self, folder: Path, cable: Cable | None = None) -> None:
        self._folder, self._cable = folder / "agents", cable
        self._world = RayWorld(2, 2, ["gpu"], cable.here if cable is not None else "127.0.0.1")
        self._own = _ray_node(self._world.address, cable) if cable is not None else None

    def backend(self, name: str) -> str:
        """Agents of this name only."""
        node = f",node={self._cable.there}" if self._cable is not None else ""
        return f"ray:address={self._world.address},folder={self._folder},name={name}{node}"

    @contextmanager
    def node_killed(self, victim: Victim) -> Iterator[None]:
        """Its raylet, and all below it."""
        self._world.do("kill", victim.node)
        try:
            yield
        finally:
            self._world.do("start", victim.node)

    def agent_killed(self, victim: Victim) -> None:
        """The actor's process; Ray starts another."""
        notes = set(self._folder.glob(f"*/{victim.node}/lives/*/notify"))
        kill_first(lambda pid: "ray::NodeAgent" in _words(pid)[0] and bool(_opened(pid) & notes))

    @contextmanager
    def control_stopped(self) -> Iterator[None]:
        """The GCS stands still."""
        self._world.do("stop")
        try:
            yield
        finally:
            self._world.do("cont")

    def clear(self, backend: str, home: Path) -> bool:
        """The GPUs are given back to Ray."""
        command = [sys.executable, "-m", "cotenant.backends.ray.release", backend, str(home)]
        within = self._cable.within if self._cable is not None else []
        return subprocess.run([*within, *command], capture_output=True, check=False, timeout=120).returncode == 0

    def close(self) -> None:
        """The whole cluster."""
        if self._own is not None:
            os.killpg(self._own.pid, signal.SIGTERM)
            self._own.wait(PATIENCE_S)
        self._world.close()


def _ray_node(address: str, cable: Cable) -> subprocess.Popen[bytes]:
    """The node of Ray on which a service is that has a namespace of its own; started again whenever it ends, as by a
    supervisor."""
    start = f"ray start --address={address} --node-ip-address={cable.there} --num-cpus=0 --num-gpus=0 --block"
    script = f"trap 'kill $!; wait; exit' TERM; while :; do {start} & wait $!; sleep 1; done"
    env = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [*cable.within, "sh", "-c", script]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, env=env, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)


class Slurm:
    """A real Slurm of two nodes; `mode` is pilot or native."""

    gpus, one_home = 4, True
    senseless: ClassVar[Mapping[str, str]] = {}

    def __init__(self, folder: Path, mode: str, cable: Cable | None = None) -> None:
        if why := missing():
            raise RuntimeError(why)
        address = cable.here if cable is not None else "127.0.0.1"
        self._mode, self._cluster = mode, SlurmCluster(folder / "slurm", 2, address=address)
        self.env = self._cluster.env  # for its services only: other worlds may be there at the same time
        try:
            self._cluster.start()
        except BaseException:
            self._cluster.stop()
            raise

    def backend(self, name: str) -> str:
        """Both nodes are held at once, or jobs are Slurm's own."""
        more = ",least=2" if self._mode == "pilot" else ""
        return f"slurm:mode={self._mode},poll=0.5,listen=tcp:127.0.0.1:0{more}"

    def node_killed(self, victim: Victim) -> Any:
        """`slurmd`, and all that runs there."""
        return self._cluster.node_lost(victim.node)

    def agent_killed(self, victim: Victim) -> None:
        """The keeper of a native job; the pilot's agent, which the pilot starts again."""
        if self._mode == "native":
            kill_keeper(victim.home / "slurm" / "jobs" / victim.key)
            return
        nodes = node_folder(victim.home, victim.node)
        kill_first(lambda pid: nodes.name in (words := _words(pid)) and words[2:3] == [_AGENT])

    def control_stopped(self) -> Any:
        """`slurmctld` stands still."""
        return self._cluster.controller_stopped()

    def clear(self, backend: str, home: Path) -> bool:
        """No job, no pilot."""
        self._cluster.run("scancel", "--me", check=False)
        return happens(lambda: not self._cluster.run("squeue", "-h", "--me", check=False).strip())

    def close(self) -> None:
        """The whole cluster."""
        self._cluster.stop()


class SlurmNative(Slurm):
    """Jobs are Slurm's own."""

    senseless: ClassVar[Mapping[str, str]] = {
        "suspended": "a suspended job keeps its GPUs in Slurm's books: a held job is stopped",
    }


_AGENT = "cotenant.backends.slurm.pilot_agent"


class Kubernetes:
    """The emulated API with its kubelets."""

    gpus, one_home = 4, False
    senseless: ClassVar[Mapping[str, str]] = {
        "agent killed": "kubelets are Kubernetes' own, and the emulator's die with their node only",
        "suspended": "nothing is suspended there: a held job is stopped",
    }

    def __init__(self, folder: Path, cable: Cable | None = None) -> None:
        address = cable.here if cable is not None else "127.0.0.1"
        command = [sys.executable, "-m", "cotenant.testing.kube_world", str(folder), "--nodes", "2", "--host", address]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.env = {"KUBECONFIG": str(folder / "kubeconfig")}
        self._heard()

    def _heard(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline() or '"it has ended"')

    def _ask(self, *words: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        return self._heard()

    def backend(self, name: str) -> str:
        """Pods of this mark only."""
        return f"kubernetes:image=none,mark={name},listen=tcp:127.0.0.1:0"

    @contextmanager
    def node_killed(self, victim: Victim) -> Iterator[None]:
        """The plug is pulled."""
        self._ask("down", victim.node)
        try:
            yield
        finally:
            self._ask("up", victim.node)

    def agent_killed(self, victim: Victim) -> None:
        """It has no sense here."""
        raise NotImplementedError

    @contextmanager
    def control_stopped(self) -> Iterator[None]:
        """The API hangs up on everybody."""
        self._ask("away")
        try:
            yield
        finally:
            self._ask("back")

    def clear(self, backend: str, home: Path) -> bool:
        """No pod, no process."""
        return happens(lambda: self._ask("left") == [])

    def close(self) -> None:
        """The whole emulator."""
        self._process.communicate(timeout=PATIENCE_S)


OPENERS: dict[str, Callable[..., World]] = {
    "local": lambda folder: Local(),
    "ray": Ray,
    "slurm pilot": lambda folder, **more: Slurm(folder, "pilot", **more),
    "slurm native": lambda folder, **more: SlurmNative(folder, "native", **more),
    "kubernetes": Kubernetes,
}
KINDS: dict[str, Any] = {
    "local": Local, "ray": Ray, "slurm pilot": Slurm, "slurm native": SlurmNative, "kubernetes": Kubernetes,
}  # fmt: skip


class Cable:
    """A network namespace for the service, and the cable from there to the world, which can be cut."""

    _count = itertools.count(1)

    def __init__(self) -> None:
        number = next(self._count)
        self._name = f"ct{os.getpid()}n{number}"
        self.here, self.there = f"10.213.{number}.1", f"10.213.{number}.2"
        self.within = ["ip", "netns", "exec", self._name]
        ip = ["ip", "-n", self._name]
        subprocess.run(["ip", "netns", "add", self._name], check=True)
        for words in (
            ["ip", "link", "add", self._name, "type", "veth", "peer", "name", "cable", "netns", self._name],
            ["ip", "addr", "add", f"{self.here}/30", "dev", self._name],
            ["ip", "link", "set", self._name, "up"],
            [*ip, "addr", "add", f"{self.there}/30", "dev", "cable"],
            [*ip, "link", "set", "cable", "up"],
            [*ip, "link", "set", "lo", "up"],
        ):
            subprocess.run(words, check=True)

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Nothing goes through within."""
        subprocess.run(["ip", "link", "set", self._name, "down"], check=True)
        try:
            yield
        finally:
            subprocess.run(["ip", "link", "set", self._name, "up"], check=True)

    def close(self) -> None:
        """Both ends of the cable go with it."""
        subprocess.run(["ip", "link", "del", self._name], check=False)
        subprocess.run(["ip", "netns", "del", self._name], check=False)


def kill_keeper(record: Path) -> None:
    """Of one attempt, as soon as there is one."""
    until((record / "child.json").exists)
    with suppress(ProcessLookupError):
        os.kill(json.loads((record / "child.json").read_text())["keeper"], signal.SIGKILL)


def kill_first(wanted: Callable[[int], bool]) -> None:
    """The process of which this is true, as soon as there is one."""

    def done() -> bool:
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            with suppress(OSError):
                if wanted(pid):
                    os.kill(pid, signal.SIGKILL)
                    return True
        return False

    until(done)


def _words(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")


def _opened(pid: int) -> set[Path]:
    return {Path(os.readlink(one)) for one in Path(f"/proc/{pid}/fd").iterdir()}


def happens(condition: Callable[[], object]) -> bool:
    """Whether it comes true in time."""
    with suppress(TimeoutError):
        until(condition)
        return True
    return False


def until(condition: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Wait for something."""
    give_up = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up:
            raise TimeoutError(f"not in {seconds:g} s")
        time.sleep(0.1)
