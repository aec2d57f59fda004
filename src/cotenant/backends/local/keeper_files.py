"""Small files that a keeper reads and writes. Like the keeper it imports only what starts fast."""

from __future__ import annotations

import os

RESERVED = 4096


def text_of(path: str) -> str:
    """A small file's text, '' where there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(fd, 1 << 16).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(fd)


def put(path: str, text: str) -> None:
    """Write to an existing file such as a cgroup's control file."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def reserve(path: str) -> None:
    """Set disk space aside, so that a disk that fills up meanwhile cannot swallow how the job ended."""
    fd = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, RESERVED)
    finally:
        os.close(fd)


def publish(path: str, text: str, durable: bool = False) -> None:
    """Write a file so that readers see all of it or nothing; a durable one fills the space that was set aside."""
    fd = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (0 if durable else os.O_TRUNC), 0o600)
    try:
        os.write(fd, text.encode().ljust(RESERVED if durable else 0))
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(path + ".tmp", path)
    if durable:
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def quote(text: str) -> str:
    """A JSON string of printable ASCII."""
    plain = (c if " " <= c <= "~" and c not in '"\\' else f"\\u{min(ord(c), 0xFFFD):04x}" for c in text)
    return f'"{"".join(plain)}"'


def start_ticks(pid: int) -> int:
    """When a process began, in clock ticks since boot: with the pid it names one process for ever (proc(5))."""
    return int(text_of(f"/proc/{pid}/stat").rpartition(")")[2].split()[19])


def is_socket(fd: int) -> bool:
    """Whether this handle is one."""
    return os.fstat(fd).st_mode & 0o170000 == 0o140000


def notify(fifo: str) -> None:
    """Wake the service, if one listens."""
    try:
        fd = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(fd, b".")
    except OSError:
        pass
    finally:
        os.close(fd)
