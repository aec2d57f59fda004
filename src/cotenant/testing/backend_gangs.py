"""What backends owe to gangs: all or nothing, ranks, a place to meet, an end as a whole; and which GPUs jobs have."""

from __future__ import annotations

import sys

import pytest

from cotenant.backends.base import Backend
from cotenant.core.errors import InputError
from cotenant.testing.backend_kit import BackendKit, printed, seen, until, whole

_WHO = (
    "echo rank $COTENANT_NODE_RANK of $COTENANT_NODES gpus $COTENANT_NODE_GPUS "
    "after $COTENANT_FIRST_GPU at $MASTER_ADDR $MASTER_PORT"
)
_MEET = """
import os, socket, time
where, give_up = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), time.monotonic() + 30
if os.environ["COTENANT_NODE_RANK"] == "0":
    with socket.create_server(("", where[1])) as door:
        door.settimeout(30)
        print("met", door.accept()[0].recv(99).decode(), flush=True)
else:
    while True:
        try:
            with socket.create_connection(where, 5) as line:
                line.sendall(b"rank " + os.environ["COTENANT_NODE_RANK"].encode())
            break
        except OSError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.05)
"""


class GangContract(BackendKit):
    """Where there is one machine only, what needs two is skipped."""

    def test_a_gang_knows_its_ranks(self, backend: Backend) -> None:
        """Each machine runs the command once and is told its rank and where the first one is; a single one is not."""
        first, *rest = self.machines(backend)
        two = (first, *rest[:1])
        backend.launch(self.spec("gang-1", _WHO, gpus=tuple((node.name, (0,)) for node in two)))
        backend.launch(self.spec("solo-1", _WHO, gpus=((first.name, (0, 1)),)))
        for key in ("gang-1", "solo-1"):
            assert until(backend, key, "exited").exit_code == 0
        gang, solo = (whole(backend.open_log(key, "stdout")).decode().splitlines() for key in ("gang-1", "solo-1"))
        assert [line.split() for line in solo] == [["rank", "of", "gpus", "after", "at"]]
        if rest:
            words = [line.split() for line in sorted(gang)]
            assert [line[:9] for line in words] == [
                f"rank {rank} of 2 gpus 1 after {rank} at".split() for rank in range(2)
            ]
            assert len({line[9] for line in words}) == 1
            assert len({line[10] for line in words if 1024 < int(line[10]) < 65536}) == 1

    def test_a_gang_meets(self, backend: Backend) -> None:
        """At the address and port that all are told, the first machine listens and the others come."""
        first, second = self.two_machines(backend)
        if not self.real_processes:
            pytest.skip("nobody listens here")
        script = f"{sys.executable} -c '{_MEET}'"
        backend.launch(self.spec("meet-1", script, gpus=((first.name, (0,)), (second.name, (0,)))))
        assert until(backend, "meet-1", "exited").exit_code == 0
        assert whole(backend.open_log("meet-1", "stdout")) == b"met rank 1\n"

    @pytest.mark.parametrize("act", ["kill", "terminate"])
    def test_a_gang_ends_as_a_whole(self, backend: Backend, act: str) -> None:
        """Under one key."""
        gpus = tuple((node.name, (0,)) for node in self.machines(backend)[:3])
        backend.launch(self.spec("gang-2", "echo up; sleep infinity", gpus=gpus))
        assert until(backend, "gang-2", "running").alive
        log = backend.open_log("gang-2", "stdout")
        printed(backend, log, lambda data: data == b"up\n" * len(gpus))  # now it hears us
        assert getattr(backend, act)("gang-2")
        assert until(backend, "gang-2", "exited").signal in (9, 15)
        assert len(backend.observe()) == 1
        backend.forget("gang-2")
        assert self.left(backend) == []

    def test_a_gang_stands_still_as_a_whole(self, backend: Backend) -> None:
        """And goes on as a whole, on all of its machines."""
        first, second = self.two_machines(backend)
        if backend.capabilities().suspend == "none":
            pytest.skip("this backend cannot suspend")
        backend.launch(self.spec("nap-3", "sleep infinity", gpus=((first.name, (0,)), (second.name, (1,)))))
        until(backend, "nap-3", "running")
        assert backend.suspend("nap-3")
        assert until(backend, "nap-3", "suspended").alive
        assert backend.resume("nap-3")
        assert until(backend, "nap-3", "running").alive
        backend.kill("nap-3")
        until(backend, "nap-3", "exited")

    def test_one_failure_ends_a_gang(self, backend: Backend) -> None:
        """Its exit code is the gang's; the others would wait for ever, and are ended."""
        first, second = self.two_machines(backend)
        if not self.real_processes:
            pytest.skip("ranks do not differ here")
        script = 'if [ "$COTENANT_NODE_RANK" = 1 ]; then exit 3; fi\nsleep infinity'
        backend.launch(self.spec("fails-1", script, grace_s=1.0, gpus=((first.name, (0,)), (second.name, (0,)))))
        end = until(backend, "fails-1", "exited")
        assert (end.exit_code, end.signal, end.alive) == (3, None, False)
        backend.forget("fails-1")
        assert self.left(backend) == []

    def test_all_of_a_gang_or_nothing(self, backend: Backend) -> None:
        """A machine that is not there, or GPUs that one of them has not: nothing starts on any."""
        first, second = self.two_machines(backend)
        for other in (("nowhere", (0,)), (second.name, (second.gpus,))):
            with pytest.raises(InputError):
                backend.launch(self.spec("half-1", "sleep infinity", gpus=((first.name, (0,)), other)))
        assert self.left(backend) == []

    def test_gpus_are_exact_or_told(self, backend: Backend) -> None:
        """A job has the GPUs of its launch; or, where the backend gives them out, as many there, and says which."""
        node, script = self.gpu_node(backend), "echo $CUDA_VISIBLE_DEVICES; sleep infinity"
        for index in (1, 0):
            backend.launch(self.spec(f"on-{index}", script, gpus=((node.name, (index,)),)))
        found = {index: until(backend, f"on-{index}", "running").gpus for index in (0, 1)}
        if backend.capabilities().exact_gpus:
            for index in (0, 1):
                assert found[index] in ((), ((node.name, (index,)),))
                assert printed(backend, backend.open_log(f"on-{index}", "stdout"), bool) == b"%d\n" % index
        else:
            cells = [(name, k) for gpus in found.values() for name, some in gpus for k in some]
            assert len(set(cells)) == len(cells) == 2, "each has one, of its own"
            assert {name for name, _ in cells} == {node.name}
            assert all(0 <= k < node.gpus for _, k in cells)
            again = self.reopen(backend)
            assert {index: getattr(seen(again, f"on-{index}"), "gpus", None) for index in (0, 1)} == found
            again.close()
        for index in (0, 1):
            backend.kill(f"on-{index}")
            until(backend, f"on-{index}", "exited")
