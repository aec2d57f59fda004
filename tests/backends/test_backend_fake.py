"""The fake: virtual time, scripted jobs, faults at chosen points, large clusters."""

from __future__ import annotations

import pytest

from cotenant.backends import BackendError, LaunchSpec, NodeInfo
from cotenant.backends.fake import FakeBackend, Script
from cotenant.testing.backend import seen, until


def _spec(key: str, script: str = "sleep 10", **more: object) -> LaunchSpec:
    return LaunchSpec(key=key, job="job", workdir="/", script=script, **more)  # type: ignore[arg-type]


def test_time_moves_only_when_asked() -> None:
    fake = FakeBackend()
    fake.launch(_spec("a-1", "sleep 10; exit 3"))
    fake.advance(9.0)
    assert until(fake, "a-1", "running").started_s == 0.0
    assert fake.now_s == 9.0
    fake.wake()
    fake.wait_change(None)
    assert until(fake, "a-1", "exited").ended_s == 10.0
    assert not fake.wait_change(5.0)
    assert fake.now_s == 15.0
    with pytest.raises(BackendError, match="would not end"):
        fake.wait_change(None)


def test_suspension_stops_the_jobs_clock() -> None:
    fake = FakeBackend()
    fake.launch(_spec("a-1"))
    fake.advance(4.0)
    fake.suspend("a-1")
    fake.advance(100.0)
    fake.resume("a-1")
    fake.advance(6.0)
    assert until(fake, "a-1", "exited").ended_s == 110.0


def test_crash_before_and_after_the_start() -> None:
    class CrashError(Exception):
        pass

    for point, known in (("launch.before", False), ("launch.after", True)):

        def hook(at: str, key: str, point: str = point) -> None:
            if at == point:
                raise CrashError

        fake = FakeBackend(hook=hook)
        with pytest.raises(CrashError):
            fake.launch(_spec("a-1"))
        again = fake.reopen()
        assert (seen(again, "a-1") is not None) is known
        again.launch(_spec("a-1"))
        assert len(again.observe()) == 1


def test_a_lost_node_loses_its_jobs() -> None:
    fake = FakeBackend([NodeInfo("n0", "gpu", 4, 8, 64.0), NodeInfo("n1", "gpu", 4, 8, 64.0)])
    fake.launch(_spec("a-1", gpus=(("n0", (0,)),)))
    fake.launch(_spec("b-1", gpus=(("n1", (0,)),)))
    fake.advance(1.0)
    fake.set_node("n0", up=False)
    assert [one.state for one in fake.observe()] == ["lost", "running"]
    with pytest.raises(BackendError, match="down"):
        fake.launch(_spec("c-1", gpus=(("n0", (1,)),)))
    fake.forget("a-1")
    fake.set_node("n0", up=True)
    assert {node.state for node in fake.nodes()} == {"up"}


def test_thousands_are_cheap_and_deterministic() -> None:
    def run() -> list[object]:
        fake = FakeBackend(
            [NodeInfo(f"n{n}", "gpu", 8, 64, 512.0) for n in range(2000)],
            behave=lambda spec: Script(duration_s=float(len(spec.key) * 7 % 5 + 1), start_s=0.5),
        )
        for n in range(5000):
            fake.launch(_spec(f"{n}-1", gpus=((f"n{n % 2000}", (n % 8,)),)))
        while any(one.state != "exited" for one in fake.observe()):
            fake.advance(1.0)
        return list(fake.observe())

    assert run() == run()
