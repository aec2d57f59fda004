"""Inside the process that is to become a job: another user, and namespaces of its own.

Loaded by the keeper by path, so it needs nothing but the standard library and the kernel (5.12 or later for
`mount_setattr`). A sandboxed job is three processes: the one that the keeper started and recorded stays outside and
ends as the job ends; the first one inside (pid 1 there, still root) builds the job's view of the files, hands on
signals and reaps; the program itself is its child, and has neither root's rights nor a way back to them. When pid 1 is
killed, the kernel kills whatever is left inside.
"""

# ruff: noqa: SIM105 (contextlib is one more import at every launch)
from __future__ import annotations

import os
import signal
import warnings  # noqa: F401 (`os.execvpe` imports it, when this Python may be out of the user's reach)
from ctypes import CDLL, Structure, byref, c_long, c_uint64, get_errno

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from cotenant.backends.local.keeper import KeptJob

NEWNS, NEWUTS, NEWIPC, NEWPID, NEWNET = 0x00020000, 0x04000000, 0x08000000, 0x20000000, 0x40000000
_NOSUID, _NODEV, _NOEXEC = 2, 4, 8
_BIND, _REC, _PRIVATE = 0x1000, 0x4000, 0x40000
_DETACH = 2
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_KEYCTL, _JOIN_SESSION_KEYRING = {"x86_64": 250, "aarch64": 219}, 1
_SIOCSIFFLAGS, _UP_AND_RUNNING = 0x8914, 0x41
_HANDED_ON = (
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT),
)
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = (
    *(("/proc/self/fd", "/dev/fd"), ("/proc/self/fd/0", "/dev/stdin"), ("/proc/self/fd/1", "/dev/stdout")),
    *(("/proc/self/fd/2", "/dev/stderr"), ("pts/ptmx", "/dev/ptmx"), ("/tmp", "/var/tmp")),
)
_OLD = "/.old"
_KERNELS = ("/proc", "/dev", "/sys", "/run")
_libc = CDLL(None, use_errno=True)
_libc.syscall.restype = c_long


class _MountAttr(Structure):
    _fields_ = tuple((name, c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd"))


def enter(job: KeptJob) -> None:
    """Return in the process that becomes the program, as its user. Processes in between never return."""
    if job.all("sandbox"):
        _into_sandbox(job)
        os.setsid()  # so that it leads a session that it can see
    _drop_rights(job)
    if not job.all("sandbox"):
        for path in job.all("make"):
            os.makedirs(path, 0o700, exist_ok=True)


def join(job: KeptJob, leader: int) -> None:
    """The same for one more program of a job that runs: in a fresh child of the keeper, whose `leader` it recorded."""
    if job.all("sandbox"):
        with open(f"/proc/{leader}/task/{leader}/children") as file:
            first = file.read().split()[0]
        handles = [os.open(f"/proc/{first}/ns/{kind}", os.O_RDONLY) for kind in ("pid", "ipc", "uts", "net", "mnt")]
        for handle in handles:
            _checked(_libc.setns(handle, 0), "setns")
            os.close(handle)
        os.chdir("/")
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDED_ON)
        inside = os.fork()
        if inside:
            _only(-1)
            _hand_on_to(inside)
            _end_like(os.waitpid(inside, 0)[1])
        os.setsid()
    _drop_rights(job)
    if job.all("sandbox"):  # whoever kills the process outside means this one
        _checked(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "pdeathsig")


def _checked(result: int, what: str) -> None:
    if result < 0:
        number = get_errno()
        raise OSError(number, os.strerror(number), what)


def _mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    words = (os.fsencode(text) if text else None for text in (source, target, kind))
    _checked(_libc.mount(*words, flags, data.encode() or None), f"mount {target}")


def _restrict(target: str, attributes: int, recursive: bool = True) -> None:
    attr = _MountAttr(attributes, 0, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    done = _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(target), flags, byref(attr), 32)
    _checked(done, f"mount_setattr {target}")


def _drop_rights(job: KeptJob) -> None:
    """Become the tenant's user for good: no set-user-id program gives rights back."""
    if job.all("nproc"):
        import resource

        resource.setrlimit(resource.RLIMIT_NPROC, (int(job.one("nproc")),) * 2)
    if (keyctl := _KEYCTL.get(os.uname().machine)) is not None:
        _libc.syscall(keyctl, _JOIN_SESSION_KEYRING, None)  # else it would hold those of the service
    uid, gid = int(job.one("uid")), int(job.one("gid"))
    os.setgroups([int(group) for group in job.all("group")])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    os.umask(0o022)


# -- three processes ---------------------------------------------------------------------------------------------------


def _into_sandbox(job: KeptJob) -> None:
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_BLOCK, _HANDED_ON)  # nobody is deaf to them for a moment: they wait
    network = job.one("network")
    flags = NEWNS | NEWUTS | NEWIPC | NEWPID | (NEWNET if network != "host" else 0)
    _checked(_libc.unshare(flags), "unshare")
    heard, told = os.pipe()
    first = os.fork()
    if first:
        _stand_for(first, heard)
    os.close(heard)
    if network == "loopback":
        _loopback_up()
    _build(job)
    program = os.fork()
    if program:
        _be_first(program, told)
    os.close(told)


def _stand_for(first: int, heard: int) -> NoReturn:
    """Outside: wait until the program has ended, and end in the same way. What it left behind is the keeper's."""
    _only(heard)
    word = b""
    while len(word) < 8 and (part := os.read(heard, 8 - len(word))):
        word += part
    _end_like(int(word) if len(word) == 8 else os.waitpid(first, 0)[1])


def _be_first(program: int, told: int) -> NoReturn:
    """Inside, pid 1: hand on signals to the program's group, reap, and say how the program ended."""
    _only(told)
    _hand_on_to(program)
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            os._exit(0)
        if pid == program:
            try:
                os.write(told, b"%8d" % status)
            except OSError:
                pass


def _hand_on_to(program: int) -> None:
    """Signals go to the group that a program leads, or to itself if it does not yet lead one."""

    def hand_on(number: int, _: object) -> None:
        for target in (-program, program):
            try:
                return os.kill(target, number)
            except OSError:
                pass
        return None

    for number in _HANDED_ON:
        signal.signal(number, hand_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDED_ON)


def _only(kept: int) -> None:
    """Close everything else: who stands for a job must not hold its pipes open."""
    os.closerange(3, max(kept, 3))
    os.closerange(max(kept + 1, 3), 1 << 20)


def _end_like(status: int) -> NoReturn:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # the program has dumped its core already, if it was to
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (number,))
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 255)


def _loopback_up() -> None:
    import fcntl
    import socket
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _UP_AND_RUNNING))


# -- what it sees of the files -----------------------------------------------------------------------------------------


def _build(job: KeptJob) -> None:
    """A new root of nothing but what is named, put together by handles that were opened in the old one."""
    os.umask(0o022)
    _mount("", "/", flags=_REC | _PRIVATE)
    binds = _sources(job)
    stage = job.one("stage")
    _mount("tmpfs", stage, "tmpfs", _NOSUID | _NODEV, "size=1m,mode=755")
    os.mkdir(stage + _OLD)
    _checked(_libc.pivot_root(os.fsencode(stage), os.fsencode(stage + _OLD)), "pivot_root")
    os.chdir("/")
    size = job.one("tmp_bytes")
    for path, kind, data in (
        ("/dev", "tmpfs", "size=64k,mode=755"),
        ("/dev/pts", "devpts", "newinstance,ptmxmode=0666,mode=620"),
        ("/dev/shm", "tmpfs", f"size={size},mode=1777"),
        ("/tmp", "tmpfs", f"size={size},mode=1777"),
        ("/proc", "proc", ""),
    ):
        os.makedirs(path, exist_ok=True)
        _mount(kind, path, kind, _NOSUID | _NODEV * (kind != "devpts") | _NOEXEC * (kind == "proc"), data)
    for folder in ("/run", "/var"):
        os.mkdir(folder)
    for source, link in (*_LINKS, *(entry.split("\n") for entry in job.all("link"))):
        os.symlink(source, link)
    for path, handle, attributes, with_mounts in sorted(binds):
        _bind(path, handle, attributes, _REC * with_mounts)
    for path in filter(os.path.isdir, job.all("hide")):
        _mount("tmpfs", path, "tmpfs", _NOSUID | _NODEV, "size=4k,mode=755")
    _checked(_libc.umount2(os.fsencode(_OLD), _DETACH), "umount")
    os.rmdir(_OLD)
    _restrict("/", _ATTR_RDONLY | _ATTR_NOSUID | _ATTR_NODEV, recursive=False)


def _bind(path: str, handle: int, attributes: int, recursive: int) -> None:
    """What a handle is of, at its own place in the new root."""
    source = f"{_OLD}/proc/self/fd/{handle}"
    if os.path.isdir(source):
        os.makedirs(path, exist_ok=True)
    elif not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    _mount(source, path, flags=_BIND | recursive)
    _restrict(path, attributes)
    os.close(handle)


def _sources(job: KeptJob) -> list[tuple[str, int, int, bool]]:
    """Real path, handle and restrictions, and whether with mounts below it, of everything that is to be seen.

    What the job named itself is opened with its user's rights, so that nothing is shown that he could not reach. It
    can be written if it is his. What is mounted below it is not shown, and the kernel's own folders are not for asking.
    """
    found = []
    for name, attributes in (("ro", _ATTR_RDONLY | _ATTR_NODEV), ("rw", _ATTR_NODEV), ("dev", 0)):
        for path in (*job.all(name), *([f"/dev/{device}" for device in _DEVICES] if name == "dev" else ())):
            if os.path.exists(path):
                found.append((*_opened(path), attributes | _ATTR_NOSUID, True))
    shown = [path for path, *_ in found]
    uid, gid = int(job.one("uid")), int(job.one("gid"))
    groups = os.getgroups()
    os.setgroups([int(group) for group in job.all("group")])
    os.setegid(gid)
    os.seteuid(uid)
    try:
        for path in job.all("make"):
            os.makedirs(path, 0o700, exist_ok=True)
        for path in job.all("own"):
            real, handle = _opened(path)
            if real == "/" or any(f"{real}/".startswith(f"{kernels}/") for kernels in _KERNELS):
                raise PermissionError(1, "a sandbox has its own", path)
            if any(f"{real}/".startswith(f"{other}/") for other in shown):
                os.close(handle)
                continue
            attributes = _ATTR_NODEV | _ATTR_NOSUID | _ATTR_RDONLY * (os.fstat(handle).st_uid != uid)
            found.append((real, handle, attributes, False))
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)
    return found


def _opened(path: str) -> tuple[str, int]:
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    return os.readlink(f"/proc/self/fd/{handle}"), handle
