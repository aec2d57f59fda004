"""One rank of a gang: runs the command and says how it ended, if it failed and no other rank has failed before.

Started by path, without site-packages: imports only what starts fast. SIGTERM goes to all processes of a Slurm step;
the command may take it as it likes, and this one waits for what comes of that.
"""

from __future__ import annotations

import os
import signal
import sys


def main(record: str, argv: list[str]) -> None:
    """Never returns."""
    node = os.environ.get("SLURMD_NODENAME", "")
    _write(f"{record}/gpus.{node}", os.environ.get("SLURM_STEP_GPUS", ""))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            os.execvp(argv[0], argv)
        except OSError as error:
            os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        os._exit(127)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        _write(f"{record}/failed", str(code))
    os._exit(code if code >= 0 else 128 - code)


def _write(path: str, text: str) -> None:
    """A file that nobody has written before."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return
    os.write(fd, text.encode())
    os.close(fd)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
