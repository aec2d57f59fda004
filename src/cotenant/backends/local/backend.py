"""Jobs as real processes of this machine.

The service may die between any two instructions of `launch`: before the keeper is
spawned nothing has been started and the lock falls free; from the spawn on the keeper holds the lock, which it
inherited, and a second launch finds it taken. All knowledge is read back from the records and the kernel.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from cotenant.backends.base import (
    BackendError,
    Capabilities,
    GpuUse,
    LaunchSpec,
    NodeInfo,
    Observed,
    State,
    Stream,
    check_key,
    check_spec,
)
from cotenant.backends.channels import Channel, ChannelSpec
from cotenant.backends.checkpoints import checkpoint_folder, drop_checkpoint_folder, usual_folder
from cotenant.backends.local import cgroups, channels, containers, cuda, logs, members, mps, orders, procs
from cotenant.backends.local.gpu_health import GpuHealth
from cotenant.backends.local.gpu_use import GpuMeter
from cotenant.backends.local.isolation.levels import NONE, Isolation, unprotected
from cotenant.backends.local.isolation.tenants import Tenants
from cotenant.backends.local.machine import Machine, Share, parse_gpus
from cotenant.backends.local.records import KeeperRecord, all_records
from cotenant.backends.local.watcher import Watcher
from cotenant.core.errors import InputError, unknown
from cotenant.core.spec import Value

_SETTLE_S = 10.0


class LocalBackend:
    """Processes, GPUs and control groups of this machine; records under `state_dir`.

    `gpus` is how many GPUs to use: None takes all that the driver shows; on a machine without a driver they are
    virtual slots. `gpu_types` names one type per slot and always makes them virtual. `share` says how jobs on the same
    GPU share it, and `slices` how they may be cut (`mig`, or sizes such as 1/2/4/8). Under `home` (`state_dir` if not
    given) are the socket that runtimes call, `logs` of ended attempts and `checkpoints`; `listen` names a TCP address
    that jobs shall call instead of the socket. One service owns a state directory. `alone`: keepers are not children of
    this process, whose end may end its children.
    """

    defaults: ClassVar[dict[str, Value]] = {
        "gpus": "auto", "share": "time", "listen": "unix", "isolation": NONE.level, "network": NONE.network,
        "user_map": "", "tenant_files": "", "tmp_gib": NONE.tmp_gib, "pids": NONE.pids, "expose": "",
        "first_uid": NONE.first_uid, "slices": "",
    }  # fmt: skip

    def __init__(
        self,
        state_dir: str | os.PathLike[str],
        gpus: int | None = None,
        gpu_types: Sequence[str] | None = None,
        *,
        name: str = "local",
        use_cgroups: bool = True,
        rlimit_as: bool = False,
        share: Share = "time",
        home: str | os.PathLike[str] | None = None,
        listen: str = "",
        isolation: Isolation = NONE,
        alone: bool = False,
        slices: str = "",
    ) -> None:
        root = Path(state_dir).absolute()
        self._home = root if home is None else Path(home).absolute()
        self._listen = listen
        self._jobs, self._trash = root / "jobs", root / "trash"
        for path in (root, self._jobs, self._trash):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for grave in self._trash.iterdir():
            shutil.rmtree(grave, ignore_errors=True)
        self._machine = Machine.find(name, gpus, gpu_types, share, slices)
        self._mps = mps.start(root / "mps", self._machine.gpu) if share == "mps" else {}
        apart = isolation.level != "none"
        self._cgroups = cgroups.find(apart) if use_cgroups else cgroups.Cgroups(notes=("cgroups are switched off",))
        self._rlimit_as, self._alone = rlimit_as, alone
        moves = self._machine.gpu == "nvml" and share != "mps"  # the driver cannot take out a client of MPS
        self._cuda = cuda.method() if moves else "none"
        self.label = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:12]
        self._isolation, self._containers = isolation, containers.find_tool()
        self._tenants = Tenants(isolation, self._home, self.label, self._machine) if apart else None
        self._watcher = Watcher(root / "notify")
        self._meter, self._health = GpuMeter(self._machine, self.label), GpuHealth(self._machine)

    @classmethod
    def open(
        cls, home: Path, *, gpus: str | int | Sequence[str] | None = None, share: str = "time", listen: str = "unix",
        isolation: str = "none", network: str = "host", tenant_files: str = "", slices: str = "",
        **more: Any,
    ) -> LocalBackend:  # fmt: skip
        """As `serve --backend local:gpus=[v100:2,k80:2],share=mps,listen=tcp:127.0.0.1:8471` asks for it."""
        if share not in ("time", "mps"):
            raise unknown("--share", share, ("time", "mps"))
        if listen not in ("unix", "tcp") and not listen.startswith("tcp:"):
            raise InputError(f"backend 'local': listen={listen}: write unix, tcp or tcp:host:port")
        found = parse_gpus(gpus) if isinstance(gpus, str) else gpus
        few, types = (found, None) if found is None or isinstance(found, int) else (None, found)
        tcp = {"unix": "", "tcp": "tcp:127.0.0.1:0"}.get(listen, listen)
        shared: Share = "mps" if share == "mps" else "time"
        chosen = Isolation.parse(isolation, network, folder=tenant_files, **more)
        if tcp and chosen.network != "host":
            raise InputError(f"--network {network}: jobs could not call home over TCP: take listen=unix")
        return cls(home / "jobs", few, types, share=shared, home=home, listen=tcp, isolation=chosen, slices=slices)

    def close(self) -> None:
        """Let go of handles. Jobs run on."""
        self._watcher.close()

    # -- what is there ---------------------------------------------------------------------------------------------

    def nodes(self) -> list[NodeInfo]:
        """One node per GPU type, with what the driver says is wrong."""
        nodes = self._machine.nodes.values()
        return [dataclasses.replace(node, faults=self._health.of(node.name)) for node in nodes]

    def gpu_use(self) -> tuple[GpuUse, ...]:
        """See `Measures`; nothing is known of virtual GPUs."""
        return self._meter.sample()

    def groups(self) -> list[Path]:
        """Control groups of our jobs that there are."""
        parents = set(self._cgroups.parents.values())
        return sorted(path for parent in parents for path in parent.glob(f"cotenant.{self.label}.*"))

    def capabilities(self) -> Capabilities:
        """What was found here."""
        roles = self._cgroups.parents
        return Capabilities(
            gpu=self._machine.gpu,
            memory_limit="memory" in roles or self._rlimit_as,
            cpu_quota="cpu" in roles,
            cpu_affinity=True,
            suspend="freezer" if "track" in roles else "sigstop",
            gpu_suspend=self._cuda,
            kill_scope="cgroup" if "track" in roles else "descendants",
            outlives_service=True,
            share=self._machine.share,
            notes=(*(f"{role}: {parent}" for role, parent in sorted(roles.items())), *self._cgroups.notes),
            isolation=self._isolation.level,
            unprotected=unprotected(self._isolation),
            containers=self._containers,
            channels=("exec", "attach", "port"),
        )

    def observe(self) -> list[Observed]:
        """Read every record and hold it against the kernel."""
        self._watcher.reap()
        if self._tenants is not None:
            self._tenants.link_socket()
        seen = map(self._observe, all_records(self._jobs))
        return [one for one in seen if one is not None]

    def _observe(self, record: KeeperRecord) -> Observed | None:
        # In this order: a keeper writes who runs, then how it ended, lets go of the lock and is gone. Whoever finds
        # it gone therefore reads the end only afterwards.
        child, held = record.child(), record.held()
        alive = held and child is not None and procs.is_process(child.keeper, child.keeper_ticks)
        key, end = record.key, record.exit()
        if end is not None:
            return end.observed(key)
        if child is None:
            return Observed(key, "starting", True) if held else None
        if alive:
            self._watcher.watch(child.keeper)
            state: State = "suspended" if members.suspended(record) else "running"
            return Observed(key, state, True, started_s=child.started_s, hint=f"pid {child.pid}")
        left = self._members(record)
        for pid in left:
            self._watcher.watch(pid)
        message = "its keeper is gone: nobody saw how it ended"
        hint = f"pid {min(left)}" if left else ""
        return Observed(key, "lost", bool(left), started_s=child.started_s, message=message, hint=hint)

    def listen_at(self) -> tuple[str, ...]:
        """The socket at home, and before it the TCP address if there is one: older jobs know the socket only."""
        first = [self._listen] if self._listen else [self._tenants.address] if self._tenants is not None else []
        return (*first, f"unix:{self._home / 'runtime.sock'}")

    def wait_change(self, timeout_s: float | None) -> bool:
        """Sleep on the keepers' notices and on the processes themselves: one may be killed before it can speak."""
        return self._watcher.wait(timeout_s)

    def fileno(self) -> int:
        """Readable when `wait_change` would not sleep; for event loops."""
        return self._watcher.fileno()

    def wake(self) -> None:
        """End a `wait_change` that is in progress, from any thread."""
        self._watcher.wake()

    # -- starting and ending ---------------------------------------------------------------------------------------

    def launch(self, spec: LaunchSpec) -> None:
        """Start the job unless its key was ever started."""
        check_spec(spec, self._machine.nodes)
        self._check_here(spec)
        groups = self._cgroups.paths(f"cotenant.{self.label}.{spec.key}")
        facts = {f.name: getattr(spec, f.name) for f in dataclasses.fields(spec) if f.name != "calls_home"}
        facts |= {"env": sorted(spec.env), "cgroups": groups}
        record = KeeperRecord(self._jobs, spec.key)
        lock: int | None = None
        try:
            order = self._order(spec, groups)  # what it prepares may fail: so it comes before there is a record
            lock = record.lock()
            if lock is None or record.started():
                return
            record.write("spec.json", json.dumps(facts).encode())
            record.write("keeper.in", order)
            self._watcher.adopt(orders.spawn(record, lock, self._tenants is not None, self._alone))
        except OSError as error:
            raise BackendError(f"job {spec.key}: nothing was started: {error}") from error
        finally:
            if lock is not None:
                os.close(lock)

    def _order(self, spec: LaunchSpec, groups: dict[str, str]) -> bytes:
        env = {**self._machine.gpu_env(spec.gpus, spec.gpu_mem_gib, spec.slice), **self._mps}
        env["COTENANT_MARK"] = f"{self.label}/{spec.key}"
        entries = [("notify", str(self._watcher.path))]
        if self._tenants is not None:
            theirs, more = self._tenants.entries(spec, groups)
            env, entries = env | theirs, entries + more
        else:
            entries.append(("workdir", spec.workdir or str(self._home)))
        if self._rlimit_as and spec.mem_gib is not None and "memory" not in groups:
            entries.append(("rlimit_as", str(int(spec.mem_gib * cgroups.GIB))))
        return orders.written(spec, groups, env, entries, self._containers)

    def _check_here(self, spec: LaunchSpec) -> None:
        if self._tenants is None and spec.workdir and not os.path.isdir(spec.workdir):
            raise InputError(f"job {spec.key}: workdir '{spec.workdir}' is not an existing directory")
        if spec.image and not self._containers:
            raise InputError(f"job {spec.key}: nothing here runs image '{spec.image}': install apptainer or podman")
        if foreign := set(spec.cpus or ()) - os.sched_getaffinity(0):
            raise InputError(f"job {spec.key}: cores {sorted(foreign)} are not ours to give")

    def terminate(self, key: str) -> bool:
        """SIGTERM to the process group, then SIGCONT or thaw so that a suspended job hears it."""
        record = KeeperRecord(self._jobs, key)
        if not self._lives(record):
            return False
        record.write("term", b"")
        told = members.signal_group(record, self.label, signal.SIGTERM)
        if track := record.cgroups().get("track"):
            cgroups.freeze(track, False)
        members.signal_group(record, self.label, signal.SIGCONT)
        return told

    def kill(self, key: str) -> bool:
        """SIGKILL to the fence, the descendants and whoever carries the mark, until a look finds nobody new."""
        record = KeeperRecord(self._jobs, key)
        return self._lives(record) and members.kill(record, self.label, self._watcher.watch)

    def forget(self, key: str, keep_log: bool = False) -> None:
        """Remove records and groups of a job that is over. The record goes last: so whatever is left is tried again."""
        record = KeeperRecord(self._jobs, key)
        if not record.exists():
            return
        lock = self._lock_ended(record)
        try:
            self._clear(record)
            if keep_log:
                logs.keep(record.path, self._kept(key))
                record.keep_end(self._kept(key))
            record.remove(self._trash)
        finally:
            os.close(lock)
        self._watcher.reap()

    def _lock_ended(self, record: KeeperRecord) -> int:
        """The lock of a job whose keeper is gone, or about to go: its exit record is written."""
        give_up = time.monotonic() + _SETTLE_S
        while (lock := record.lock()) is None:
            child = record.child()
            if record.exit() is None or time.monotonic() > give_up:
                raise BackendError(f"job {record.key} still runs: kill it before forgetting it")
            if child is not None:
                procs.await_end(child.keeper, 100)
        return lock

    def _clear(self, record: KeeperRecord) -> None:
        """Nothing of the job may be left, neither processes (of a lost keeper) nor groups."""
        groups = record.cgroups()
        give_up = time.monotonic() + _SETTLE_S
        while True:
            left = self._members(record) if record.exit() is None else set()
            if not left and cgroups.remove(groups):
                return
            if time.monotonic() > give_up:
                raise BackendError(f"job {record.key}: processes {sorted(left)} do not die")
            members.kill(record, self.label, self._watcher.watch)
            for pid in left:
                procs.await_end(pid, 100)
            select.select([], [], [], 0.002)

    # -- what is left of it ----------------------------------------------------------------------------------------

    def launched(self, key: str) -> LaunchSpec | None:
        """From its record."""
        return KeeperRecord(self._jobs, key).launched()

    def ended(self, key: str) -> Observed | None:
        """From what was kept with its log."""
        return self._observe(KeeperRecord(self._home / "logs", key))

    def open_log(self, key: str, stream: Stream) -> logs.LocalLog:
        """Files of the record, then those that were kept of it."""
        record = KeeperRecord(self._jobs, key)
        folders = (record.path, self._kept(key))
        return logs.LocalLog(key, stream, folders, lambda: record.exit() is None and record.held())

    def open_times(self, key: str) -> logs.LocalTimes:
        """The marks beside them."""
        folders = (KeeperRecord(self._jobs, key).path, self._kept(key))
        return logs.LocalTimes(logs.LocalLog(key, "times", folders, lambda: False))

    def open_channel(self, key: str, asked: ChannelSpec) -> Channel:
        """Through the keeper, or straight to a port."""
        record = KeeperRecord(self._jobs, key)
        if not self._lives(record):
            raise BackendError(f"job {record.key} does not run")
        if asked.kind == "exec" and record.spec().get("image"):
            raise BackendError("it runs in an image, which other programs cannot join")
        if asked.kind != "port":
            return channels.visit(record, asked)
        return channels.connect(self._members(record), asked.port)

    def drop_log(self, key: str) -> None:
        """Delete the files that were kept."""
        shutil.rmtree(self._kept(check_key(key)), ignore_errors=True)

    def _kept(self, key: str) -> Path:
        return self._home / "logs" / key

    def checkpoint_dir(self, job: str, asked: str = "") -> str:
        """A folder at home, or the one asked for."""
        if self._tenants is not None:
            return self._tenants.checkpoint_dir(job, asked, usual_folder(self._home, job))
        return checkpoint_folder(self._home, job, asked)

    def drop_checkpoints(self, job: str) -> None:
        """Delete the folder at home."""
        drop_checkpoint_folder(self._home, job)
        if self._tenants is not None:
            self._tenants.drop_checkpoints(job)

    # -- while it runs ---------------------------------------------------------------------------------------------

    def suspend(self, key: str) -> bool:
        """GPU memory out first, while the process can still answer the driver; then stop it.

        One that was asked to stand still before has no GPU memory any more, but whoever asked may have died before
        all its processes stood: they are waited for again.
        """
        record = KeeperRecord(self._jobs, key)
        if not self._lives(record):
            return False
        moves = self._on_gpu(record) and not members.suspended(record)
        if moves and not cuda.move(self._members(record), True, self._cuda):
            cuda.move(self._members(record), False, self._cuda)
            return False
        record.pause(True)
        track = record.cgroups().get("track")
        if track is not None and cgroups.freeze(track, True):
            return True
        return members.stop(record, self.label)

    def resume(self, key: str) -> bool:
        """Run first, then GPU memory in."""
        record = KeeperRecord(self._jobs, key)
        if not self._lives(record):
            return False
        if track := record.cgroups().get("track"):
            cgroups.freeze(track, False)
        record.pause(False)
        mine = self._members(record)
        for pid in mine:
            if procs.state_of(pid) == "T":
                procs.send(pid, signal.SIGCONT, lambda p: p in self._members(record))
        return not self._on_gpu(record) or cuda.move(mine, False, self._cuda)

    def set_limits(
        self,
        key: str,
        cpus: Sequence[int] | None = None,
        cpu_share: float | None = None,
        mem_gib: float | None = None,
    ) -> bool:
        """Affinity of every thread, quota and memory of the groups."""
        record = KeeperRecord(self._jobs, key)
        if cpus is not None and not set(cpus) & os.sched_getaffinity(0):
            raise InputError(f"job {key}: none of the cores {sorted(cpus)} is ours to give")
        if not self._lives(record):
            return False
        if cpus is not None:
            procs.set_affinity(self._members(record), cpus)
        if cpu_share is None and mem_gib is None:
            return True
        return cgroups.apply_limits(record.cgroups(), cpu_share, mem_gib)

    # -- who belongs to a job --------------------------------------------------------------------------------------

    def _lives(self, record: KeeperRecord) -> bool:
        """Whether there is a process to act on. A job that is just being started is waited for."""
        give_up = time.monotonic() + _SETTLE_S
        while record.child() is None and record.exit() is None:
            if not record.held() or time.monotonic() > give_up:
                return False
            select.select([], [], [], 0.002)
        return record.exit() is None and bool(self._members(record))

    def _members(self, record: KeeperRecord) -> set[int]:
        return members.of(record, self.label)

    def _on_gpu(self, record: KeeperRecord) -> bool:
        return self._cuda != "none" and bool(record.spec().get("gpus"))
