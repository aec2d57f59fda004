"""Runs in forked processes, one process each.

A process per run, not a pool: whatever happens to one (the kernel kills it, its policy exits) is seen at once, its run
is repeated, and Ctrl-C ends all of them without waiting for anybody.
"""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from cotenant.core.errors import CotenantError, InputError

Result = TypeVar("Result")
MOST_TRIES = 2


def can_fork() -> bool:
    """Whether this system has forked processes, which share workloads and kernels."""
    return "fork" in multiprocessing.get_all_start_methods()


def in_processes(
    run: Callable[[int], Result],
    order: Sequence[int],
    workers: int,
    tell: Callable[[str], None] = lambda note: None,
) -> Iterator[tuple[int, Result]]:
    """`run` of all these numbers in so many processes, begun in this order; results with their numbers, as they are
    done; errors are raised here.

    `tell` hears of runs that are repeated because their process died. A core never waits for this process: the next run
    is begun before a result is given away, and before the process that it came from is gone.
    """
    fork = multiprocessing.get_context("fork")
    count, tries = len(order), dict.fromkeys(order, 0)
    at_work: dict[Connection, tuple[int, Any]] = {}
    todo, ready, leaving = list(order), list[tuple[int, Result]](), list[Any]()
    try:
        while todo or at_work or ready:
            while todo and len(at_work) < workers:
                at = todo.pop(0)
                tries[at] += 1
                ours, theirs = fork.Pipe(duplex=False)
                _widen(theirs)
                process = fork.Process(target=_child, args=(run, at, theirs), daemon=True)
                with _no_interruption():
                    process.start()
                theirs.close()
                at_work[ours] = at, process
            yield from ready
            ready, leaving = [], [process for process in leaving if process.exitcode is None]
            for pipe in wait(list(at_work)) if at_work else ():
                assert isinstance(pipe, Connection)
                at, process = at_work.pop(pipe)
                answer = _answer(pipe)
                if answer is None:
                    process.join()
                    if tries[at] >= MOST_TRIES:
                        raise InputError(
                            f"run {at + 1} of {count}: {_death(process.exitcode)}, {tries[at]} times:"
                            " is there enough memory? use fewer --workers"
                        )
                    tell(f"run {at + 1} of {count} is repeated: {_death(process.exitcode)}")
                    todo.insert(0, at)
                    continue
                if isinstance(answer, Exception):
                    raise answer
                leaving.append(process)
                ready.append((at, answer[0]))
    finally:
        for process in leaving:
            process.join()
        for pipe, (_, process) in at_work.items():
            process.kill()
            process.join()
            pipe.close()


def _widen(pipe: Connection) -> None:
    """Room for a whole result where the system grants it, so that its process need not wait for the reader."""
    size = getattr(fcntl, "F_SETPIPE_SZ", None)
    if size is not None:
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe.fileno(), size, 1 << 20)


@contextlib.contextmanager
def _no_interruption() -> Iterator[None]:
    """Ctrl-C waits: what is raised in the hooks that run at a fork would be swallowed, and the key press with it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _answer(pipe: Connection) -> Any:
    """What a process sent; None where it died before."""
    with pipe:
        try:
            return pipe.recv()
        except (EOFError, OSError):
            return None


def _child(run: Callable[[int], Any], at: int, pipe: Connection) -> None:
    """One run in its own process. Ctrl-C is the parent's to handle: it ends us."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        answer: Any = (run(at),)
    except CotenantError as error:
        answer = error
    except Exception as error:
        error.__cause__ = None
        error.add_note(f"in run {at + 1}, process {os.getpid()}")
        answer = error
    with contextlib.suppress(BrokenPipeError):
        pipe.send(answer)
    pipe.close()


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    return f"its process ended with exit code {code}"
