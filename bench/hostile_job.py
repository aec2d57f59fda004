"""A hostile job of tenant A: it tries everything on tenant B and on the service, and prints what came of it.

Run by `bench.isolation` with a Python that every user can run, so it needs nothing but the standard library. What there
is to attack is told in TARGETS. All of it is bounded: as many processes and bytes as the limits forbid, no more.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

TARGETS = json.loads(os.environ["TARGETS"])
SECRET = TARGETS["secret"]


def main() -> None:
    attempts: dict[str, Callable[[], str]] = {
        "read its log": lambda: read(TARGETS["log"]),
        "read the log of an ended job": lambda: read(TARGETS["kept_log"]),
        "read its checkpoint": lambda: read(TARGETS["checkpoint"]),
        "replace its checkpoint": lambda: replace(TARGETS["checkpoint"]),
        "read its home": lambda: read(TARGETS["home_file"]),
        "read its environment": environment,
        "see its processes": processes,
        "read its memory": memory,
        "connect to its socket": lambda: connect(socket.AF_UNIX, TARGETS["socket"]),
        "connect to its port on loopback": lambda: connect(socket.AF_INET, ("127.0.0.1", TARGETS["port"])),
        "use its way to the service": lambda: connect(socket.AF_UNIX, TARGETS["runtime_socket"]),
        "use its GPU's device file": use_gpu,
        "list the service's home": lambda: ", ".join(sorted(os.listdir(TARGETS["service"]))),
        "read the journal": lambda: read(TARGETS["journal"], b""),
        "read the admin's token": lambda: read(TARGETS["token"], b""),
        "read the key of runtimes": lambda: read(TARGETS["key"], b""),
        "change the system's files": lambda: change("/etc/passwd"),
        "signal another job of its own tenant": lambda: kill(TARGETS["sibling"], 0),
        "fork bomb": fork_bomb,
        "fill /tmp": fill,
        "keep running after its end": stay,
        "kill its processes": lambda: kill(TARGETS["pid"], signal.SIGKILL),
    }
    for name, attempt in attempts.items():
        try:
            said = {"attempt": name, "refused": False, "how": attempt()[:120]}
        except OSError as error:
            said = {"attempt": name, "refused": True, "how": error.strerror or str(error)}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


def read(path: str, secret: bytes | None = None) -> str:
    found = Path(path).read_bytes()
    if (SECRET.encode() if secret is None else secret) not in found:
        raise OSError(0, "not what was looked for")
    return f"{len(found)} bytes"


def replace(path: str) -> str:
    fresh = f"{path}.bad"
    with open(fresh, "w") as file:
        file.write("bad")
    os.unlink(fresh)
    return "a file could be put there"


def change(path: str) -> str:
    os.close(os.open(path, os.O_WRONLY))
    return f"{path} was open for writing"


def everybody() -> list[Path]:
    return [path for path in Path("/proc").iterdir() if path.name.isdigit() and int(path.name) != os.getpid()]


def environment() -> str:
    """Of whichever process shows it: not only the one that was named."""
    for path in (Path("/proc", str(TARGETS["pid"])), *everybody()):
        try:
            if f"SECRET={SECRET}".encode() in (path / "environ").read_bytes():
                return f"of process {path.name}"
        except OSError:
            continue
    raise OSError(0, "no environment could be read that holds it")


def memory() -> str:
    """What ptrace would need, too."""
    os.close(os.open(f"/proc/{TARGETS['pid']}/mem", os.O_RDWR))
    return "its memory was open for writing"


def processes() -> str:
    for path in everybody():
        try:
            if TARGETS["mark"].encode() in (path / "cmdline").read_bytes():
                return f"process {path.name} is seen"
        except OSError:
            continue
    raise OSError(0, "none of its processes is seen")


def connect(family: socket.AddressFamily, where: object) -> str:
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.settimeout(5)
        sock.connect(where)  # type: ignore[arg-type]
    return f"connected to {where}"


def use_gpu() -> str:
    if not TARGETS["gpu_file"]:
        os.environ["CUDA_VISIBLE_DEVICES"] = "0,1,2,3"
        return "nothing but a variable says which it may use"
    os.close(os.open(TARGETS["gpu_file"], os.O_RDWR))
    return "its device file was open"


def kill(pid: int, number: int) -> str:
    os.kill(pid, number)
    return f"process {pid} was signalled"


def fork_bomb() -> str:
    children = []
    try:
        for _ in range(TARGETS["forks"]):
            pid = os.fork()
            if pid == 0:
                signal.pause()
                os._exit(0)
            children.append(pid)
    except OSError as error:
        raise OSError(error.errno, f"no more than {len(children)} processes") from error
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return f"{len(children)} processes"


def fill() -> str:
    path, mib = Path(f"/tmp/fill.{os.getpid()}"), 0
    try:
        with path.open("wb", buffering=0) as file:
            while mib < TARGETS["fill_mib"]:
                file.write(bytes(1 << 20))
                mib += 1
    except OSError as error:
        raise OSError(error.errno, f"no more than {mib} MiB") from error
    finally:
        path.unlink()
    return f"{mib} MiB"


def stay() -> str:
    """Twice forked, a session of its own, another program, without any mark in its environment."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            null = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(null, fd)
            os.execve("/bin/sleep", ["sleep", TARGETS["stay"]], {})
        os._exit(0)
    os.wait()
    return "the one who starts it sees afterwards"


if __name__ == "__main__":
    main()
