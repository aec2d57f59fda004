"""What backends owe when the world fails: nothing is guessed, nothing starts twice, nothing is left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from cotenant.backends.base import Backend, BackendError, NodeInfo, Observed, Unreachable
from cotenant.core.node_faults import NodeFault
from cotenant.testing.backend_kit import PATIENCE_S, BackendKit, seen, until, whole


class FaultContract(BackendKit):
    """What a backend does not know how to break (see `BackendKit`) is skipped."""

    def test_an_unreachable_control_plane_is_reported(self, backend: Backend) -> None:
        """`Unreachable`, and no job has ended by it. Afterwards all is as it was, and may be asked again."""
        backend.launch(self.spec("cut-1", "sleep infinity"))
        before = until(backend, "cut-1", "running")
        with self.cut_off(backend):
            self._until_cut(backend, "cut-1")
            for act in (
                lambda: backend.launch(self.spec("cut-2", "echo ran")),
                lambda: backend.kill("cut-1"),
                lambda: backend.observe(),
            ):
                with pytest.raises(Unreachable):
                    act()
            backend.wait_change(0.05)
        assert self._again(backend, "cut-1").alive
        assert seen(backend, "cut-1") == before
        backend.launch(self.spec("cut-2", "echo ran"))
        until(backend, "cut-2", "exited")
        assert whole(backend.open_log("cut-2", "stdout")) == b"ran\n"
        assert backend.kill("cut-1")
        until(backend, "cut-1", "exited")

    def test_what_is_wrong_with_a_node_is_told(self, backend: Backend) -> None:
        """With its reason, of that node only, for as long as it is so; the backend itself ends no job because of it."""
        name = self.gpu_node(backend).name
        backend.launch(self.spec("ill-1", "sleep infinity", gpus=((name, (0,)),)))
        until(backend, "ill-1", "running")
        assert not any(node.faults for node in self._up(backend))
        with self.ailing(backend, name) as words:
            (fault, *_) = self._faults(backend, name, lambda faults: bool(faults))
            assert words in fault.why
            assert not any(node.faults for node in self._up(backend) if node.name != name)
            assert until(backend, "ill-1", "running").alive
        self._faults(backend, name, lambda faults: not faults)
        assert backend.kill("ill-1")
        until(backend, "ill-1", "exited")

    def _up(self, backend: Backend) -> list[NodeInfo]:
        return [node for node in backend.nodes() if node.state == "up"]

    def _faults(self, backend: Backend, name: str, enough: Callable[[object], bool]) -> tuple[NodeFault, ...]:
        """What is wrong with a node, as soon as it is enough."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            (faults,) = [node.faults for node in backend.nodes() if node.name == name]
            if enough(faults):
                return faults
            assert time.monotonic() < deadline, faults
            backend.observe()
            backend.wait_change(0.1)

    def _until_cut(self, backend: Backend, key: str) -> None:
        """It may take a while to notice; until then nothing may be said but what was true."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                one = seen(backend, key)
            except Unreachable:
                return
            assert one is not None
            assert one.state == "running"
            assert time.monotonic() < deadline, "nobody noticed"
            backend.wait_change(0.1)

    def _again(self, backend: Backend, key: str) -> Observed:
        """As soon as it can be reached again."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return until(backend, key, "running")
            except Unreachable:
                assert time.monotonic() < deadline
                backend.wait_change(0.1)

    def test_a_lost_node_takes_its_jobs(self, backend: Backend) -> None:
        """They are lost, and say where; gangs as a whole; jobs elsewhere run on; nothing starts there meanwhile."""
        first, second = self.two_machines(backend)
        backend.launch(self.spec("here-1", "sleep infinity", gpus=((first.name, (0,)),)))
        backend.launch(self.spec("gang-3", "sleep infinity", gpus=((first.name, (1,)), (second.name, (0,)))))
        backend.launch(self.spec("there-1", "sleep infinity", gpus=((second.name, (1,)),)))
        for key in ("here-1", "gang-3", "there-1"):
            until(backend, key, "running")
        with self.lost_node(backend, second.name):
            for key in ("gang-3", "there-1"):
                assert second.name in until(backend, key, "lost").message
            assert next(node.state for node in backend.nodes() if node.name == second.name) == "down"
            before = until(backend, "here-1", "running")
            try:
                backend.launch(self.spec("into-2", "sleep infinity", gpus=((first.name, (1,)), (second.name, (0,)))))
            except BackendError:
                assert seen(backend, "into-2") is None
            else:
                assert not until(backend, "into-2", "lost", "exited").alive
            for key in ("gang-3", "there-1", "into-2"):
                backend.kill(key)
                self._settled(backend, lambda key=key: backend.forget(key))  # type: ignore[misc]
            assert seen(backend, "here-1") == before
        assert backend.kill("here-1")
        until(backend, "here-1", "exited")
        backend.forget("here-1")
        self._settled(backend, lambda: self._expect_nothing(backend))
        gpus = ((first.name, (0,)), (second.name, (0,)))
        backend.launch(self.spec("gang-4", "exit 0", gpus=gpus))
        assert until(backend, "gang-4", "exited").exit_code == 0

    def _expect_nothing(self, backend: Backend) -> None:
        if found := self.left(backend):
            raise BackendError(f"there is still {found}")

    def _settled(self, backend: Backend, act: Callable[[], None]) -> None:
        """Once what is being ended has ended."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return act()
            except BackendError:
                if time.monotonic() > deadline:
                    raise
                backend.wait_change(0.1)

    def test_late_and_repeated_reports_change_nothing(self, backend: Backend) -> None:
        """Neither while an end is kept, nor after it was forgotten, nor when the key is used again."""
        backend.launch(self.spec("told-1", "exit 4"))
        end = until(backend, "told-1", "exited")
        self.tell_again(backend, "told-1")
        assert seen(backend, "told-1") == end
        backend.forget("told-1")
        self.tell_again(backend, "told-1")
        assert seen(backend, "told-1") is None
        backend.launch(self.spec("told-1", "sleep infinity"))
        until(backend, "told-1", "running")
        self.tell_again(backend, "told-1")
        assert until(backend, "told-1", "running", "exited").state == "running"
        backend.kill("told-1")
        until(backend, "told-1", "exited")

    def test_nothing_starts_twice(self, backend: Backend) -> None:
        """However many launch the same key at the same moment, with whichever handle; also a gang."""
        gpus = tuple((node.name, (0,)) for node in self.machines(backend)[:2])
        again = self.reopen(backend)
        spec = self.spec("once-1", "echo ran", gpus=gpus)
        wrong: list[Exception] = []

        def launch(handle: Backend) -> None:
            try:
                handle.launch(spec)
            except Exception as error:
                wrong.append(error)

        threads = [threading.Thread(target=launch, args=(handle,)) for handle in (backend, again, backend, again)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong, wrong
        assert until(again, "once-1", "exited").exit_code == 0
        again.close()
        backend.launch(spec)
        assert [one.key for one in backend.observe()] == ["once-1"]
        assert whole(backend.open_log("once-1", "stdout")) == b"ran\n" * len(gpus)

    def test_nothing_is_left(self, backend: Backend) -> None:
        """Of a job that was killed or ended, once it is forgotten: no process, not even one that left its group."""
        gpus = tuple((node.name, (0,)) for node in self.machines(backend)[:2])
        backend.launch(self.spec("trace-1", "setsid sleep infinity &\nsleep infinity", gpus=gpus))
        backend.launch(self.spec("trace-2", "exit 0"))
        until(backend, "trace-1", "running")
        assert backend.kill("trace-1")
        for key in ("trace-1", "trace-2"):
            until(backend, key, "exited")
            backend.forget(key)
        self._settled(backend, lambda: self._expect_nothing(backend))
