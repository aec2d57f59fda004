"""A process that was started ahead of its GPUs waits for them, at the place it was told."""

from __future__ import annotations

import logging
import threading

import pytest
from runtime_service import Service

from cotenant import runtime
from cotenant.runtime import _barrier
from cotenant.runtime.protocol import Built, Go, Hello, decode, encode

JOIN_S = 60.0


def _train(done: list[int]) -> threading.Thread:
    def train() -> None:
        with runtime.job() as job:
            done.append(-1)
            done.extend(job.steps(2))

    thread = threading.Thread(target=train, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize(("place", "before"), [("job", []), ("steps", [-1])])
def test_no_step_is_made_before_the_word(
    inside: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: str, before: list[int]
) -> None:
    monkeypatch.setenv("COTENANT_HOLD", place)
    monkeypatch.setattr(_barrier, "_FIRST_WORD_S", 0.05)
    done: list[int] = []
    thread = _train(done)
    inside.wait_for(lambda message: isinstance(message, Hello if place == "job" else Built))
    hello = inside.wait_for(lambda message: isinstance(message, Hello))
    assert isinstance(hello, Hello)
    assert hello.waits
    inside.stop()  # the service goes away
    told = threading.Event()
    with caplog.at_level(logging.WARNING, "cotenant.runtime"):
        while "does not answer" not in caplog.text and not told.wait(0.01):
            assert thread.is_alive()
    assert done == before
    inside.heard.clear()
    inside.start()  # and comes back
    inside.wait_for(lambda message: isinstance(message, Hello))
    assert done == before
    inside.send(Go())
    thread.join(JOIN_S)
    assert done == [-1, 0, 1]


def test_nobody_else_waits_but_says_that_it_would(inside: Service) -> None:
    done: list[int] = []
    _train(done).join(JOIN_S)
    assert done == [-1, 0, 1]
    hello = inside.wait_for(lambda message: isinstance(message, Hello))
    assert isinstance(hello, Hello)
    assert hello.untouched
    assert not hello.waits
    assert inside.wait_for(lambda message: isinstance(message, Built)) == Built(0)


def test_a_loop_of_somebody_else_waits_before_its_first_step(inside: Service) -> None:
    with runtime.job() as job:
        job.boundary(1, 2)  # it has made one already: such a job is not known to wait at its first step
        job.ready()
        job.boundary(2, 2)
    inside.wait_for(lambda message: message.type == "done")
    assert not any(isinstance(message, Built) for message in inside.heard)


def test_whoever_used_a_gpu_or_may_have_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cuda:
        @staticmethod
        def is_initialized() -> bool:
            return True

    class Torch:
        cuda = Cuda

    monkeypatch.setitem(_barrier.sys.modules, "torch", Torch)
    assert not _barrier.untouched()
    monkeypatch.delitem(_barrier.sys.modules, "torch")
    assert _barrier.untouched()
    monkeypatch.setitem(_barrier.sys.modules, "jax", Torch)
    assert not _barrier.untouched()


def test_older_peers_understand() -> None:
    line = encode(Hello("t", "j", 1, 2)).replace(b',"untouched":false', b"").replace(b',"waits":false', b"")
    assert decode(line) == Hello("t", "j", 1, 2)
    assert decode(encode(Go())) == Go()
