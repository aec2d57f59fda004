"""What every backend owes, as a suite that others can run against theirs.

    class TestMine(BackendContract):
        @pytest.fixture
        def backend(self): ...
        def reopen(self, backend): ...   # a second handle, as after a crash of the service

Jobs are described by shell texts of the simplest kind (`sleep`, `exit`, `kill`, `trap`, `echo`). No test sleeps: all
wait in `wait_change`, which a backend with a virtual clock answers at once. What concerns output, checkpoints, the way
home and late launches is in `backend_far`, gangs and their GPUs in `backend_gangs`, what goes wrong in the world in
`backend_faults`, ways into jobs in `backend_channels`; here is how jobs start, end and are acted on.
"""

from __future__ import annotations

import pytest

from cotenant.backends.base import Backend, BackendError, LaunchSpec
from cotenant.core.errors import InputError
from cotenant.testing.backend_channels import ChannelContract
from cotenant.testing.backend_far import FarContract
from cotenant.testing.backend_faults import FaultContract
from cotenant.testing.backend_gangs import GangContract
from cotenant.testing.backend_kit import PATIENCE_S, printed, seen, until

__all__ = ["PATIENCE_S", "BackendContract", "seen", "until"]


class BackendContract(FarContract, GangContract, FaultContract, ChannelContract):
    """Override the fixture `backend` and `reopen`; the rest of `BackendKit` where it will not do."""

    def test_nodes_have_names_and_room(self, backend: Backend) -> None:
        """Names are unique; an up node has cores."""
        nodes = backend.nodes()
        assert len({node.name for node in nodes}) == len(nodes) > 0
        assert all(node.cpus > 0 and node.mem_gib > 0 for node in nodes if node.state == "up")

    @pytest.mark.parametrize("code", [0, 3, 255])
    def test_exit_codes(self, backend: Backend, code: int) -> None:
        """The exit code is the program's own."""
        backend.launch(self.spec("code-1", f"exit {code}"))
        end = until(backend, "code-1", "exited")
        assert (end.exit_code, end.signal, end.oom, end.alive) == (code, None, False, False)
        assert end.started_s is not None
        assert end.ended_s is not None
        assert end.started_s <= end.ended_s

    def test_death_by_signal(self, backend: Backend) -> None:
        """A signal is not an exit code."""
        backend.launch(self.spec("sig-1", "kill -9 $$"))
        end = until(backend, "sig-1", "exited")
        assert (end.exit_code, end.signal) == (None, 9)

    def test_one_key_one_job(self, backend: Backend) -> None:
        """Launching again changes nothing, neither while it runs nor after its end."""
        backend.launch(self.spec("twice-1", "sleep infinity"))
        backend.launch(self.spec("twice-1", "exit 7"))
        first = until(backend, "twice-1", "running")
        backend.launch(self.spec("twice-1", "exit 7"))
        assert seen(backend, "twice-1") == first
        assert backend.kill("twice-1")
        end = until(backend, "twice-1", "exited")
        backend.launch(self.spec("twice-1", "exit 7"))
        assert seen(backend, "twice-1") == end

    def test_a_second_handle_adopts(self, backend: Backend) -> None:
        """What runs is found again, keeps its identity, and can be ended by whoever finds it."""
        backend.launch(self.spec("adopt-1", "sleep infinity"))
        first = until(backend, "adopt-1", "running")
        again = self.reopen(backend)
        try:
            assert seen(again, "adopt-1") == first
            again.launch(self.spec("adopt-1", "exit 7"))
            assert seen(again, "adopt-1") == first
            assert again.kill("adopt-1")
            assert until(again, "adopt-1", "exited").signal == 9
        finally:
            again.close()

    def test_ends_stay_until_forgotten(self, backend: Backend) -> None:
        """An end is told until it is forgotten, and the key is then free again."""
        backend.launch(self.spec("gone-1", "exit 4"))
        end = until(backend, "gone-1", "exited")
        again = self.reopen(backend)
        assert seen(again, "gone-1") == end
        again.close()
        backend.forget("gone-1")
        backend.forget("gone-1")
        assert seen(backend, "gone-1") is None
        backend.launch(self.spec("gone-1", "exit 5"))
        assert until(backend, "gone-1", "exited").exit_code == 5

    def test_the_living_are_not_forgotten(self, backend: Backend) -> None:
        """Forgetting a running job would leak it."""
        backend.launch(self.spec("alive-1", "sleep infinity"))
        until(backend, "alive-1", "running")
        with pytest.raises(BackendError):
            backend.forget("alive-1")
        assert until(backend, "alive-1", "running").state == "running"
        backend.kill("alive-1")
        until(backend, "alive-1", "exited")

    def test_terminate_asks(self, backend: Backend) -> None:
        """SIGTERM ends a job that does not mind."""
        backend.launch(self.spec("term-1", "sleep infinity"))
        until(backend, "term-1", "running")
        assert backend.terminate("term-1")
        assert until(backend, "term-1", "exited").signal == 15

    def test_the_stubborn_are_killed(self, backend: Backend) -> None:
        """A job that ignores SIGTERM runs on until it is killed."""
        backend.launch(self.spec("deaf-1", "trap '' TERM; echo deaf; sleep infinity"))
        until(backend, "deaf-1", "running")
        printed(backend, backend.open_log("deaf-1", "stdout"), lambda data: data == b"deaf\n")
        assert backend.terminate("deaf-1")
        assert seen(backend, "deaf-1") is not None
        assert until(backend, "deaf-1", "running", "exited").state == "running"
        assert backend.kill("deaf-1")
        assert until(backend, "deaf-1", "exited").signal == 9

    def test_suspend_and_resume(self, backend: Backend) -> None:
        """Both may be repeated; a suspended job can be asked to end."""
        backend.launch(self.spec("nap-1", "sleep infinity"))
        until(backend, "nap-1", "running")
        if backend.capabilities().suspend == "none":
            assert not backend.suspend("nap-1")
            backend.kill("nap-1")
            return
        for _ in range(2):
            assert backend.suspend("nap-1")
            assert until(backend, "nap-1", "suspended").alive
        for _ in range(2):
            assert backend.resume("nap-1")
            until(backend, "nap-1", "running")
        assert backend.suspend("nap-1")
        assert backend.terminate("nap-1")
        assert until(backend, "nap-1", "exited").signal == 15

    def test_a_suspended_job_can_be_killed(self, backend: Backend) -> None:
        """Also without waking first."""
        backend.launch(self.spec("nap-2", "sleep infinity"))
        backend.suspend("nap-2")
        assert backend.kill("nap-2")
        assert until(backend, "nap-2", "exited").signal == 9

    def test_acting_on_nobody_is_harmless(self, backend: Backend) -> None:
        """Unknown and ended keys: False, and no error, since the service may repeat itself."""
        backend.launch(self.spec("over-1", "exit 0"))
        until(backend, "over-1", "exited")
        for key in ("over-1", "never-1"):
            for act in (backend.terminate, backend.kill, backend.suspend, backend.resume, backend.set_limits):
                assert act(key) is False
        backend.forget("never-1")

    def test_an_act_right_after_launch_is_not_lost(self, backend: Backend) -> None:
        """A cancel that follows a launch at once finds the job, however far its start has got."""
        for turn in range(5):
            key = f"quick-{turn}"
            backend.launch(self.spec(key, "sleep infinity"))
            assert backend.kill(key)
            assert until(backend, key, "exited").signal == 9

    def test_gpus_of_the_cluster_only(self, backend: Backend) -> None:
        """Unknown nodes, indexes beyond the node and doubles are refused, and nothing is started."""
        node = self.gpu_node(backend)
        for gpus in ((("nowhere", (0,)),), ((node.name, (node.gpus,)),), ((node.name, (0, 0)),)):
            with pytest.raises(InputError):
                backend.launch(self.spec("bad-1", "exit 0", gpus=gpus))
        backend.launch(self.spec("good-1", "exit 0", gpus=((node.name, (0, 1)),)))
        until(backend, "good-1", "exited")
        assert seen(backend, "bad-1") is None

    @pytest.mark.parametrize("key", ["", ".", "..", "../up", "a/b", "a b", "-x", "a\0b", "a\n", "ä", "x" * 101])
    def test_keys_are_names(self, backend: Backend, key: str) -> None:
        """A key becomes a file name, so nothing that could leave its directory passes."""
        with pytest.raises(InputError):
            backend.launch(LaunchSpec(key=key, job="job", workdir=self.workdir, script="exit 0"))
        with pytest.raises(InputError):
            backend.forget(key)
        for act in (backend.drop_log, backend.checkpoint_dir, backend.drop_checkpoints):
            with pytest.raises(InputError):
                act(key)
        with pytest.raises(InputError):
            backend.open_log(key, "stdout")

    def test_bad_specs_are_refused(self, backend: Backend) -> None:
        """Each with `InputError`, and without a trace."""
        for more in ({"cpus": ()}, {"mem_gib": 0.0}, {"cpu_share": -1.0}, {"env": {"A=B": "c"}}, {"grace_s": -1.0}):
            with pytest.raises(InputError):
                backend.launch(self.spec("bad-1", "exit 0", **more))
        with pytest.raises(InputError):
            backend.launch(self.spec("bad-1", "  "))
        with pytest.raises(InputError):
            backend.launch(LaunchSpec(key="bad-1", job="bad", workdir="relative", script="exit 0"))
        assert backend.observe() == []

    def test_wake_ends_a_wait(self, backend: Backend) -> None:
        """`wake` before `wait_change` counts too."""
        backend.wake()
        assert backend.wait_change(PATIENCE_S)

    def test_many_at_once(self, backend: Backend) -> None:
        """Each with its own end, none mixed up, in the order of keys."""
        keys = [f"many-{n}" for n in range(10)]
        for n, key in enumerate(keys):
            backend.launch(self.spec(key, f"exit {n}"))
        assert [until(backend, key, "exited").exit_code for key in keys] == list(range(10))
        assert [one.key for one in backend.observe()] == keys
