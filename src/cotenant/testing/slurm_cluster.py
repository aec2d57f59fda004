"""A real Slurm on this machine for tests: munged, slurmctld and several slurmd, all on loopback, in one folder.

Every node has virtual CPUs and memory and GPUs, four or as many as are asked for: device files that hold nothing.
Nodes have one address and different ports; within their jobs each has a name of its own (127.0.1.N), so that gangs can
meet. It needs root (device files, a mount namespace) and Debian's packages slurmctld, slurmd, slurm-client and munge.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cotenant.backends.local import procs

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol")
GPUS, TYPES = 4, ("a100", "v100")
_LOOPBACK = "127.0.0.1"
_BOUND = "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny"  # to what this machine's name stands for: loopback
_START_S = 30.0
_STOP_S = 2.0
_CONF = """
ClusterName=cotenant
SlurmctldHost={host}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/run/munge.socket
CredType=cred/munge
{bound}
SlurmctldPort={port}
SlurmctldPidFile={root}/run/slurmctld.pid
SlurmdPidFile={root}/run/slurmd.%n.pid
SlurmdSpoolDir={root}/spool/%n
StateSaveLocation={root}/state
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd.%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0,sched_min_interval=10000
ReturnToService=2
MpiDefault=none
GresTypes=gpu
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
KillWait=5
SlurmctldTimeout=30
SlurmdTimeout=300
MessageTimeout=5
"""


def missing() -> str:
    """What keeps a cluster from starting here; '' if nothing does."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    gone = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if gone:
        return f"no {', '.join(gone)} here: apt-get install slurmctld slurmd slurm-client munge"
    return "" if os.geteuid() == 0 else "a Slurm cluster for tests needs root"


class SlurmCluster:
    """One cluster in a folder; `env` leads commands to it. `more` are further lines of slurm.conf."""

    def __init__(
        self, root: Path, nodes: int = 8, more: str = "", address: str = _LOOPBACK, gpus: int = GPUS,
        types: Sequence[str] = TYPES,
    ) -> None:  # fmt: skip
        self.root, self._address, self._gpus, self._types = root, address, gpus, types
        self.names = [f"n{number + 1}" for number in range(nodes)]
        self.env = {"SLURM_CONF": str(root / "etc" / "slurm.conf")}
        self._write(more)

    def _write(self, more: str) -> None:
        for name in ("etc", "state", "spool", "log", "run"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        os.chmod(self.root, 0o755)
        for number in range(self._gpus):
            with contextlib.suppress(FileExistsError):
                os.mknod(f"/dev/fakegpu{number}", 0o020666, os.makedev(1, 3))
        key = self.root / "run" / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        host, ports = socket.gethostname().split(".")[0], _free_ports(len(self.names) + 1)
        bound = _BOUND if self._address == _LOOPBACK else ""
        conf = [_CONF.format(host=host, address=self._address, root=self.root, port=ports[0], bound=bound), more]
        gres, hosts = [], []
        for number, name in enumerate(self.names):
            kind = self._types[number * len(self._types) // len(self.names)]
            conf.append(
                f"NodeName={name} NodeHostname={host} NodeAddr={self._address} Port={ports[number + 1]} CPUs=16 "
                f"RealMemory=64000 Gres=gpu:{kind}:{self._gpus} Features={kind} State=UNKNOWN"
            )
            gres.append(f"NodeName={name} Name=gpu Type={kind} File=/dev/fakegpu[0-{self._gpus - 1}]")
            hosts.append(f"127.0.1.{number + 1} {name}")
        conf.append("PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
        conf.append("PartitionName=short Nodes=ALL MaxTime=1 State=UP")
        etc = self.root / "etc"
        (etc / "slurm.conf").write_text("\n".join(conf) + "\n")
        (etc / "gres.conf").write_text("\n".join(gres) + "\n")
        (etc / "cgroup.conf").write_text("CgroupAutomount=no\n")
        (etc / "hosts").write_text(Path("/etc/hosts").read_text() + "\n".join(hosts) + "\n")

    def start(self) -> None:
        """All of it, until every node is idle."""
        run = self.root / "run"
        self._run(
            "munged", "--force", f"--key-file={run}/munge.key", f"--socket={run}/munge.socket",
            f"--pid-file={run}/munged.pid", f"--log-file={self.root}/log/munged.log", f"--seed-file={run}/munged.seed",
        )  # fmt: skip
        self.start_controller(fresh=True)
        self.start_nodes(self.names)

    def start_controller(self, fresh: bool = False) -> None:
        """`slurmctld`, with what it knew before unless `fresh`."""
        self._run("slurmctld", *(["-i"] if fresh else []), "-f", self.env["SLURM_CONF"])

    def start_nodes(self, names: list[str]) -> None:
        """`slurmd` of these nodes, and wait for them."""
        each = " && ".join(f"slurmd -N {name} -f {self.env['SLURM_CONF']}" for name in names)
        self._run("unshare", "-m", "sh", "-c", f"mount --bind {self.root}/etc/hosts /etc/hosts && {each}")
        deadline = time.monotonic() + _START_S
        while not set(names) <= self.idle():
            if time.monotonic() > deadline:
                raise TimeoutError(self.run("sinfo", "-N", "-o", "%N %T %E"))
            time.sleep(0.05)

    def idle(self) -> set[str]:
        """Nodes that are up and have nothing to do."""
        lines = self.run("sinfo", "-h", "-N", "-o", "%N %T", check=False).splitlines()
        return {name for name, state in map(str.split, lines) if state in ("idle", "mixed", "allocated")}

    def run(self, *words: str, check: bool = True) -> str:
        """What a command of Slurm prints."""
        done = subprocess.run(words, env={**os.environ, **self.env}, capture_output=True, text=True, timeout=60)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr}")
        return done.stdout

    def _run(self, *words: str) -> None:
        path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        subprocess.run(words, env={**os.environ, **self.env, "PATH": path}, check=True, stdin=subprocess.DEVNULL)

    # -- what goes wrong -------------------------------------------------------------------------------------------

    @contextmanager
    def controller_stopped(self) -> Iterator[None]:
        """`slurmctld` answers nobody within."""
        pid = self._pid("slurmctld")
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    @contextmanager
    def node_lost(self, name: str) -> Iterator[None]:
        """A node and all that runs there is gone within, and Slurm has noticed."""
        doomed = {self._pid(f"slurmd.{name}"), *self.processes(name)}
        for pid in doomed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.run("scontrol", "update", f"nodename={name}", "state=down", "reason=gone")
        try:
            yield
        finally:
            self.run("scontrol", "update", f"nodename={name}", "state=resume", check=False)
            self.start_nodes([name])

    def processes(self, name: str) -> set[int]:
        """All that Slurm started on a node, with what watches over it; a node of another cluster may have its name."""
        first = procs.marked(f"SLURMD_NODENAME={name}".encode()) & self._marked()
        above = {int(parent) for pid in first if (parent := _parent(pid)) and _is_stepd(int(parent))}
        return first | above | {child for pid in first for child in procs.descendants(pid)}

    def _marked(self) -> set[int]:
        return procs.marked(f"SLURM_CONF={self.env['SLURM_CONF']}".encode())

    def stop(self) -> None:
        """End everything, jobs included."""
        with contextlib.suppress(Exception):
            self.run("scancel", "--signal=KILL", "--me", check=False)
        pids = [self._pid(file.stem) for file in (self.root / "run").glob("*.pid")]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        for pid in self._marked() - {os.getpid(), *pids}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + _STOP_S
        for pid in pids:
            while procs.state_of(pid) not in "ZX":
                if time.monotonic() > deadline:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.02)

    def _pid(self, name: str) -> int:
        return int((self.root / "run" / f"{name}.pid").read_text())


def _parent(pid: int) -> str:
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    return ""


def _is_stepd(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"slurmstepd")
    return False


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(sock.getsockname()[1]) for sock in socks]


@contextmanager
def slurm_cluster(
    root: Path,
    nodes: int = 8,
    more: str = "",
    address: str = "127.0.0.1",
    gpus: int = GPUS,
    types: Sequence[str] = TYPES,
) -> Iterator[SlurmCluster]:
    """A cluster that runs within. Its commands are found by `SLURM_CONF`, which is set meanwhile."""
    cluster = SlurmCluster(root, nodes, more, address, gpus, types)
    before = os.environ.get("SLURM_CONF")
    os.environ.update(cluster.env)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        os.environ.pop("SLURM_CONF") if before is None else os.environ.update(SLURM_CONF=before)


def main() -> None:
    """`python -m cotenant.testing.slurm_cluster DIR [NODES]`: a cluster to try things with, until Ctrl-C."""
    root, nodes = Path(sys.argv[1]).absolute(), int(sys.argv[2]) if len(sys.argv) > 2 else 8
    with slurm_cluster(root, nodes) as cluster, contextlib.suppress(KeyboardInterrupt):
        print(f"export SLURM_CONF={cluster.env['SLURM_CONF']}", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
