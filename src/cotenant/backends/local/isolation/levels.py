"""How far tenants are kept apart, as the operator chooses, and what of it this machine allows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from cotenant.backends.local.keeper_files import text_of
from cotenant.core.errors import InputError, unknown

Level = Literal["none", "user", "sandbox"]
Network = Literal["host", "none", "loopback"]
FIRST_UID = 200_000
_TRIAL = (
    "import sys;sys.path+=sys.argv[1:];import keeper,confine;confine.enter(keeper.KeptJob(sys.stdin.buffer.read()))"
)
_TRIAL_LIMIT_S = 20.0
_CAPABILITIES = {"CAP_CHOWN": 0, "CAP_DAC_OVERRIDE": 1, "CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7}
_UNPROTECTED = {
    "none": (
        "isolation none: jobs run as {user}, who runs this service. Every job can read and change the service's files "
        "and token, other tenants' logs, checkpoints and processes, and use any GPU"
    ),
    "user": (
        "isolation user: tenants see each other's process names, and share /tmp, the network and GPUs' device files "
        "where control groups cannot keep them apart; jobs of one tenant are not kept apart"
    ),
    "sandbox": "isolation sandbox: jobs share the machine's network: --network loopback or none would close it",
}


@dataclass(frozen=True, slots=True)
class Isolation:
    """What `serve` was told.

    `user_map`: a file that says which operating-system user a tenant is; others get numbers from `first_uid` on.
    `folder`: where tenants' files lie ('' chooses one). In a sandbox: `network`, `tmp_gib` for /tmp and as much for
    /dev/shm, and what may be read besides the system (`expose`). `pids`: processes and threads of one job.
    """

    level: Level = "none"
    network: Network = "host"
    user_map: str = ""
    folder: str = ""
    tmp_gib: float = 2.0
    pids: int = 4096
    expose: tuple[str, ...] = ()
    first_uid: int = FIRST_UID

    @classmethod
    def parse(cls, level: str, network: str, expose: str = "", **more: object) -> Isolation:
        """From options; a wrong one is named with what could be meant."""
        if level not in get_args(Level):
            raise unknown("--isolation", level, get_args(Level))
        if network not in get_args(Network):
            raise unknown("--network", network, get_args(Network))
        if level != "sandbox" and network != "host":
            raise InputError(f"--network {network}: only a sandbox has a network of its own: add --isolation sandbox")
        made = cls(level, network, expose=tuple(part for part in expose.split(":") if part), **more)  # type: ignore[arg-type]
        if level == "none" and made.user_map:
            raise InputError("--user-map: jobs run as other users only with --isolation user or sandbox")
        if not made.pids >= 8 or not made.tmp_gib > 0 or not 1000 <= made.first_uid < 2**31:
            raise InputError("backend 'local': pids from 8 up, tmp_gib above 0, first_uid from 1000 up")
        return made

    def check(self) -> None:
        """Raise unless this machine can do it."""
        if why := why_not(self.level):
            raise InputError(f"--isolation {self.level} is not possible here: {why}")


NONE = Isolation()


def why_not(level: Level) -> str:
    """Why a level is not possible here; '' if it is."""
    if level == "none":
        return ""
    if os.geteuid() != 0:
        return "only root can start jobs as other users: run the service as root"
    held = int((text_of("/proc/self/status").partition("CapEff:")[2].split() or ["0"])[0], 16)
    if missing := [name for name, bit in _CAPABILITIES.items() if not held >> bit & 1]:
        return f"root lacks {', '.join(missing)} in this container"
    return _try_sandbox() if level == "sandbox" else ""


def unprotected(choice: Isolation) -> tuple[str, ...]:
    """What people should know at the start of a service."""
    if choice.level == "sandbox" and choice.network != "host":
        return ()
    return (_UNPROTECTED[choice.level].format(user=f"uid {os.geteuid()}"),)


def boot_path() -> Sequence[str]:
    """Where the keeper and `confine` are found by Python without our packages."""
    here = Path(__file__).resolve().parent
    return str(here.parent), str(here)


def _try_sandbox() -> str:
    """Make one that shows nothing, in a process of its own."""
    stage = tempfile.mkdtemp(prefix="cotenant-trial-")
    words = {"sandbox": 1, "network": "loopback", "tmp_bytes": 65536, "stage": stage, "uid": 65534, "gid": 65534}
    try:
        ran = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _TRIAL, *boot_path()],
            input="".join(f"{name}={value}\0" for name, value in words.items()).encode(),
            capture_output=True, timeout=_TRIAL_LIMIT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    said = ran.stderr.decode(errors="replace").strip().splitlines()
    return "" if ran.returncode == 0 else f"namespaces: {said[-1] if said else f'exit code {ran.returncode}'}"
