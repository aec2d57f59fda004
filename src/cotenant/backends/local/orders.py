"""What a keeper is told: one file of entries, and the process that reads it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from cotenant.backends.base import LaunchSpec
from cotenant.backends.local import cgroups, channels, containers, keeper
from cotenant.backends.local.records import KeeperRecord

BOOT = "import sys;sys.path.append(sys.argv[1]);import keeper;keeper.main(sys.argv[2])"
_BOOT_APART = "import sys;sys.path+=sys.argv[1].split(':');import keeper,confine;keeper.main(sys.argv[2],confine)"
_ALONE = "import os;os.fork() and os._exit(0);os.setsid();"  # before it: nobody's child, whoever started it may end
_SETUP = 'bash -c "$1" || exit; shift; exec "$@"'  # a constant; the user's texts are its arguments
_INHERITED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"),
    *("LD_LIBRARY_PATH", "VIRTUAL_ENV", "CUDA_HOME"),
)  # of the service's own environment, which may hold its secrets
_MIB = 1 << 20


def command(spec: LaunchSpec) -> tuple[str, ...]:
    """What is executed: the command, after its setup where it has one."""
    argv = spec.argv if spec.argv is not None else ("bash", "-c", spec.script)
    return ("bash", "-c", _SETUP, "cotenant", spec.setup, *argv) if spec.setup.strip() else argv


def written(
    spec: LaunchSpec, groups: dict[str, str], env: Mapping[str, str], more: Sequence[tuple[str, str]], tool: str = ""
) -> bytes:
    """The file: NUL-ended `name=value` entries. `env` wins over what the user and the service's environment say.

    `tool` runs images here.
    """
    argv = command(spec)
    inherited = {n: v for n, v in os.environ.items() if n in _INHERITED or n.startswith("LC_")}
    home = spec.calls_home.environment() if spec.calls_home is not None else {}
    env = {**inherited, **spec.env, **home, **env, "COTENANT_KEY": spec.key, "COTENANT_JOB": spec.job}
    if spec.image:
        gpus = "" if "COTENANT_VIRTUAL_GPUS" in env else env.get("CUDA_VISIBLE_DEVICES", "")
        argv = containers.wrapped(tool, spec.image, argv, env, dict(more)["workdir"], gpus)
    oom = cgroups.oom_file(groups)
    entries = [
        *(("argv", word) for word in argv),
        *(("env", f"{name}={value}") for name, value in env.items()),
        *(("cpu", str(core)) for core in spec.cpus or ()),
        *(("cgroup", path) for path in dict.fromkeys(groups.values())),
        *(("cgset", f"{path}\n{value}") for path, value in cgroups.limit_writes(groups, spec.cpu_share, spec.mem_gib)),
        *(("track", path) for role, path in groups.items() if role == "track"),
        *([("oom", oom)] if oom else []),
        *([("tty", "yes")] if spec.tty else []),
        ("stdout_limit", str(int(spec.stdout_limit_mib * _MIB) or 1)),
        ("stderr_limit", str(int(spec.stderr_limit_mib * _MIB) or 1)),
        ("grace_s", repr(spec.grace_s)),
        *([("max_s", repr(spec.max_runtime_s))] if spec.max_runtime_s else []),
        *more,
    ]
    return b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in entries)


def spawn(record: KeeperRecord, lock: int, apart: bool = False, alone: bool = False) -> int:
    """Start the keeper of a record; it takes over the lock. `apart`: the job is another user's.

    Returns the pid to reap: its own or, where it shall not be our child (`alone`), that of who starts it.
    """
    here, boot = str(Path(__file__).resolve().parent), _BOOT_APART if apart else BOOT
    here, boot = f"{here}:{here}/isolation" if apart else here, _ALONE + boot if alone else boot
    log = str(record.path / "keeper.log")
    with channels.listening(record) as door:
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", boot, here, str(record.path)],
            {"LC_ALL": "C.UTF-8"},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
                *_handed_on(lock, door),
            ],
            setsid=True,
            setsigmask=(),
        )


def _handed_on(lock: int, door: int) -> list[tuple[int, int, int]]:
    """Each to its number, by way of two that neither has: one may have the other's."""
    spare = max(lock, door, keeper.DOOR) + 1
    return [
        (os.POSIX_SPAWN_DUP2, lock, spare),
        (os.POSIX_SPAWN_DUP2, door, spare + 1),
        (os.POSIX_SPAWN_DUP2, spare, keeper.LOCK),
        (os.POSIX_SPAWN_DUP2, spare + 1, keeper.DOOR),
    ]
