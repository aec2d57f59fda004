"""Where tenants' files lie, and what a keeper is told so that a job is its tenant's and nobody else's.

Everything is below one folder that can be passed through but not listed, beside the service's home, which is closed:

checkpoints/JOB, homes/TENANT   0700, the tenant's
run/TENANT/runtime.sock         the service's socket: a hard link in a folder that only this tenant can enter
run/TENANT/turns                files by whose locks jobs of this tenant that share GPUs take turns
gpus/gpuN                       stands for the device file of a virtual GPU: open to the group of that GPU, which its
                                jobs are given (as `usermod -aG` would, but for one process)
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import cotenant
from cotenant.backends.base import BackendError, LaunchSpec, check_key
from cotenant.backends.local.cgroups import GIB
from cotenant.backends.local.isolation.levels import Isolation
from cotenant.backends.local.isolation.users import GROUPS_BELOW, TenantUser, Users
from cotenant.backends.local.machine import Machine
from cotenant.core.errors import InputError

DEFAULT_FOLDER = "/var/lib/cotenant"
NO_TENANT = "default"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/sys")
_NVIDIA = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
_NVIDIA_MAJOR = 195
_SOCKET = "runtime.sock"
_TURNS = "turns"  # where jobs of one tenant that share GPUs take turns, beside the socket
_OWN_ANYWAY = ("/", "/tmp", "/var/tmp", "/dev/shm")
Entries = list[tuple[str, str]]


class Tenants:
    """The folder and the accounts; asked at every launch."""

    def __init__(self, choice: Isolation, home: Path, label: str, machine: Machine) -> None:
        choice.check()
        if machine.share == "mps":
            raise InputError("--share mps: one MPS server serves one user only: with --isolation, share by time")
        self.choice, self._machine = choice, machine
        self.folder = Path(choice.folder).absolute() if choice.folder else Path(DEFAULT_FOLDER, label)
        for path, mode in (
            (self.folder, 0o711), (self.folder / "checkpoints", 0o711), (self.folder / "homes", 0o711),
            (self.folder / "run", 0o711), (self.folder / "run" / ".service", 0o700), (self.folder / "gpus", 0o711),
            (self.folder / "stage", 0o700),
        ):  # fmt: skip
            path.mkdir(mode=mode, parents=True, exist_ok=True)
            os.chmod(path, mode)
        self._check_doors(home)
        self._users = Users(home / "tenants.json", choice.first_uid, choice.user_map)
        self._linked = 0  # which socket the tenants' links are of
        self._lock = threading.RLock()
        self._shown = tuple(self._readable()) if choice.level == "sandbox" else ()
        for index in machine.virtual:
            path = self.folder / "gpus" / f"gpu{index}"
            path.touch()
            os.chown(path, 0, self._group(index))
            os.chmod(path, 0o660)

    def _check_doors(self, home: Path) -> None:
        """The service's home is closed to all others, the tenants' folder open; a sandbox shows neither as a whole."""
        if not any(stat.S_IMODE(path.stat().st_mode) & 0o011 == 0 for path in (home, *home.parents)):
            raise InputError(f"--isolation {self.choice.level}: others can enter {home}: chmod 700 {home}")
        if self.choice.level == "user":
            for path in self.folder.parents:
                if not path.stat().st_mode & 0o001:
                    fix = "name another folder with --backend local:tenant_files=DIR"
                    raise InputError(f"--isolation user: tenants cannot reach {self.folder} through {path}: {fix}")
        for path in map(Path, self.choice.expose):
            if not path.is_absolute() or not path.exists():
                raise InputError(f"backend 'local': expose={path}: write absolute paths that exist, divided by ':'")
            for secret in (home, self.folder):
                if secret.resolve().is_relative_to(path.resolve()):
                    raise InputError(f"backend 'local': expose={path} would show {secret} to every job")

    def _readable(self) -> Iterator[str]:
        """What every sandbox shows, read-only: the system, what the operator names, and the Python of the runtime."""
        python = (sys.prefix, sys.base_prefix, str(Path(cotenant.__file__).parent))
        seen: list[Path] = []
        for name in (*_SYSTEM, *self.choice.expose, *python, os.path.realpath("/etc/resolv.conf")):
            path = Path(name)
            if path.exists() and not path.is_symlink() and not any(path.is_relative_to(other) for other in seen):
                seen.append(path)
                yield name

    # -- checkpoints -----------------------------------------------------------------------------------------------

    def checkpoint_dir(self, job: str, asked: str, before: Path) -> str:
        """A folder of ours, or the one asked for, which the job's user has to make himself.

        `before` is where it lay when jobs were not kept apart: it moves over.
        """
        if asked:
            return asked
        folder = self.folder / "checkpoints" / check_key(job)
        try:
            if before.is_dir() and not folder.exists():
                shutil.move(before, folder)
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise BackendError(f"job {job}: no folder for checkpoints: {error}") from error
        return str(folder)

    def drop_checkpoints(self, job: str) -> None:
        """Delete the folder of ours."""
        shutil.rmtree(self.folder / "checkpoints" / check_key(job), ignore_errors=True)

    # -- the socket ------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where the service has to listen."""
        return f"unix:{self.folder / 'run' / '.service' / _SOCKET}"

    def link_socket(self) -> None:
        """After a restart the service's socket is another one: let the tenants' names lead to it."""
        source = self.folder / "run" / ".service" / _SOCKET
        with self._lock, contextlib.suppress(OSError):
            if (now := source.stat().st_ino) != self._linked:
                os.chmod(source, 0o666)  # the folders say who comes near
                for folder in self.folder.glob("run/[!.]*"):
                    _link(source, folder / _SOCKET)
                self._linked = now

    # -- one job ---------------------------------------------------------------------------------------------------

    def entries(self, spec: LaunchSpec, groups: dict[str, str]) -> tuple[dict[str, str], Entries]:
        """Environment and entries for the keeper of a job; its tenant's folders are made."""
        who = self._users.of(spec.tenant or NO_TENANT)
        with self._lock:  # jobs are launched side by side
            home, run = who.home or self._home_of(spec.tenant or NO_TENANT, who), self._run_of(who)
        indexes = self._machine.indexes(spec.gpus)
        files = [self._gpu_file(index) for index in indexes]
        env = {"HOME": home, "USER": who.name, "LOGNAME": who.name, "SHELL": "/bin/bash", "TMPDIR": "/tmp"}
        if files:
            env["COTENANT_GPU_FILES"] = ":".join(files)
        if spec.calls_home is not None and spec.calls_home.address == self.address:
            env |= {"COTENANT_ADDRESS": f"unix:{run}/{_SOCKET}", "COTENANT_SOCKET": f"{run}/{_SOCKET}"}
        owned, made = self._checkpoints_of(spec, who)
        gpu_groups = [self._group(index) for index in indexes if index in self._machine.virtual]
        entries: Entries = [
            ("uid", str(who.uid)), ("gid", str(who.gid)), ("workdir", spec.workdir or home),
            *(("group", str(group)) for group in dict.fromkeys((*who.groups, *gpu_groups))),
            *(("make", path) for path in made),
            *self._limits(groups, indexes),
        ]  # fmt: skip
        if self.choice.level == "sandbox":
            mine = [*owned, *([] if who.home else [home]), str(run / _TURNS)]
            places = (spec.workdir, who.home if os.path.isdir(who.home) else "")
            asked = [*made, *(path for path in places if path and os.path.normpath(path) not in _OWN_ANYWAY)]
            entries += self._sandbox(mine, asked, str(run), files)
            env |= self._machine.renumbered(indexes)
        return env, entries

    def _sandbox(self, mine: Iterable[str], asked: Iterable[str], run: str, files: Iterable[str]) -> Entries:
        links = [(path, os.readlink(path)) for path in _SYSTEM if os.path.islink(path)]
        real = self._machine.gpu == "nvml"
        return [
            ("sandbox", "1"), ("stage", str(self.folder / "stage")), ("network", self.choice.network),
            ("tmp_bytes", str(int(self.choice.tmp_gib * GIB))), ("hide", "/sys/fs/cgroup"),
            *(("link", f"{target}\n{path}") for path, target in links),
            *(("ro", path) for path in (*self._shown, run)),
            *(("rw", path) for path in mine),
            *(("own", path) for path in dict.fromkeys(asked)),
            *(("dev", path) for path in (*files, *(_NVIDIA if real and files else ()))),
        ]  # fmt: skip

    def _limits(self, groups: dict[str, str], indexes: list[int]) -> Entries:
        """Against fork bombs, and against GPUs that others were given (control groups of version 1)."""
        pids = str(self.choice.pids)
        limits = [("cgset", f"{groups['pids']}/pids.max\n{pids}")] if "pids" in groups else [("nproc", pids)]
        if "devices" in groups:
            others = [minor for index, minor in self._machine.minors.items() if index not in indexes]
            limits += [
                ("cgset", f"{groups['devices']}/devices.deny\nc {_NVIDIA_MAJOR}:{minor} rwm") for minor in others
            ]
        return limits

    def _checkpoints_of(self, spec: LaunchSpec, who: TenantUser) -> tuple[list[str], list[str]]:
        """Folders of ours, handed to the user; and folders asked for, to be made by him."""
        named = spec.env.get("COTENANT_CHECKPOINT_DIR", "")
        ours = self.folder / "checkpoints" / spec.job
        if named != str(ours):
            return [], [named] if named else []
        if ours.stat().st_uid != who.uid:
            for path, _, names in os.walk(ours):
                for one in (path, *(os.path.join(path, name) for name in names)):
                    os.chown(one, who.uid, who.gid, follow_symlinks=False)
            os.chmod(ours, 0o700)
        return [str(ours)], []

    def _home_of(self, tenant: str, who: TenantUser) -> str:
        return str(_made(self.folder / "homes" / tenant, 0o700, who.uid, who.gid))

    def _run_of(self, who: TenantUser) -> Path:
        folder = self.folder / "run" / str(who.uid)
        if not folder.exists():
            _made(folder, 0o550, 0, who.gid)
            self._linked = 0
        _made(folder / _TURNS, 0o700, who.uid, who.gid)
        self.link_socket()
        return folder

    def _group(self, index: int) -> int:
        return self.choice.first_uid - GROUPS_BELOW + index

    def _gpu_file(self, index: int) -> str:
        if self._machine.gpu == "virtual":
            return str(self.folder / "gpus" / f"gpu{index}")
        return f"/dev/nvidia{self._machine.minors.get(index, index)}"


def _made(path: Path, mode: int, uid: int, gid: int) -> Path:
    """A folder that is complete when it appears under its name: a crash leaves none with the wrong owner."""
    if not path.exists():
        fresh = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        os.chown(fresh, uid, gid)
        os.chmod(fresh, mode)
        try:
            os.rename(fresh, path)
        except OSError:  # somebody else was faster
            fresh.rmdir()
            if not path.is_dir():
                raise
    return path


def _link(source: Path, target: Path) -> None:
    fresh = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}")
    fresh.unlink(missing_ok=True)
    os.link(source, fresh)
    os.replace(fresh, target)
    fresh.unlink(missing_ok=True)  # two names of one file are left as they are (rename(2))
