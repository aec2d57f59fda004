"""The half of the backend suite that lets jobs be far away: launches, output, checkpoints, the way home."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import cotenant
from cotenant.backends.base import Backend, CallHome, LaunchSpec
from cotenant.runtime.protocol import Done, Hello
from cotenant.testing.backend_kit import BackendKit, at_home, printed, seen, until, whole

LIMIT = 1024  # bytes of output to keep


class FarContract(BackendKit):
    """What a service may rely on wherever its jobs run."""

    def test_a_launch_is_known_at_once(self, backend: Backend) -> None:
        """However long it takes to start: whoever looks right after `launch`, with any handle, finds the key."""
        backend.launch(self.spec("late-1", "sleep infinity"))
        again = self.reopen(backend)
        try:
            for handle in (backend, again):
                one = seen(handle, "late-1")
                assert one is not None
                assert one.state in ("starting", "running")
                assert one.alive
        finally:
            again.close()
        assert until(backend, "late-1", "running").started_s is not None
        backend.kill("late-1")
        until(backend, "late-1", "exited")

    def test_a_launch_that_cannot_complete_says_why(self, backend: Backend) -> None:
        """Not an error of `launch`, which is long over by then."""
        backend.launch(LaunchSpec(key="never-1", job="never", workdir=self.workdir, argv=("/no/such/program",)))
        end = until(backend, "never-1", "exited", "lost")
        assert "/no/such/program" in end.message
        assert (end.alive, end.exit_code in (None, 127)) == (False, True)
        backend.forget("never-1")
        assert seen(backend, "never-1") is None

    def test_jobs_of_one_node_are_apart(self, backend: Backend) -> None:
        """One agent may keep them all: what is done to one is not done to its neighbours."""
        gpus = ((self.gpu_node(backend).name, (0,)),)
        for number in range(4):
            backend.launch(self.spec(f"near-{number}", "echo up; sleep infinity", gpus=gpus))
        before = [until(backend, f"near-{number}", "running") for number in range(4)]
        printed(backend, backend.open_log("near-2", "stdout"), bool)  # who only begins to run may not hear SIGTERM
        backend.kill("near-1")
        backend.terminate("near-2")
        backend.suspend("near-3")
        for number in (1, 2):
            until(backend, f"near-{number}", "exited")
        assert seen(backend, "near-0") == before[0]
        backend.forget("near-1")
        assert backend.kill("near-0")
        assert backend.kill("near-3")
        for number in (0, 3):
            assert until(backend, f"near-{number}", "exited").signal == 9

    def test_output_is_one_row_of_bytes(self, backend: Backend) -> None:
        """Streams apart, read in pieces of any size; none of a key that never was."""
        backend.launch(self.spec("out-1", "echo one; echo bad >&2; echo two; exit 3"))
        until(backend, "out-1", "exited")
        out, err = (backend.open_log("out-1", stream) for stream in ("stdout", "stderr"))
        for size in (1, 3, 8, 100):
            assert whole(out, size) == b"one\ntwo\n"
        assert (whole(err), out.span(), err.key) == (b"bad\n", (0, 8), "out-1")
        assert (out.read(4, 3).data, out.read(8, 9).data, out.read(99, 9).data) == (b"two", b"", b"")
        assert out.ended()
        nobody = backend.open_log("nobody-1", "stdout")
        assert (nobody.span(), nobody.read(0, 9).data, nobody.ended()) == ((0, 0), b"", True)

    def test_output_comes_while_a_job_runs(self, backend: Backend) -> None:
        """Also to a reader that was opened before there was any, and to another handle."""
        backend.launch(self.spec("grow-1", "echo one; sleep 0.3; echo two; sleep infinity"))
        log = backend.open_log("grow-1", "stdout")
        assert printed(backend, log, lambda data: b"one" in data).startswith(b"one\n")
        assert printed(backend, log, lambda data: b"two" in data) == b"one\ntwo\n"
        assert not log.ended()
        again = self.reopen(backend)
        assert whole(again.open_log("grow-1", "stdout")) == b"one\ntwo\n"
        again.close()
        backend.kill("grow-1")
        until(backend, "grow-1", "exited")
        assert log.ended()

    def test_of_long_output_the_newest_part_is_kept(self, backend: Backend) -> None:
        """The numbers of its bytes stay those of the whole, and who asks for what is gone is told where it goes on."""
        text = "; ".join(f"echo {n:0>99}" for n in range(40))
        everything = "".join(f"{n:0>99}\n" for n in range(40)).encode()
        backend.launch(self.spec("long-1", text, stdout_limit_mib=LIMIT / 2**20))
        until(backend, "long-1", "exited")
        log = backend.open_log("long-1", "stdout")
        first, end = log.span()
        assert end == len(everything)
        assert LIMIT <= end - first <= 2 * LIMIT
        assert whole(log, 70) == everything[first:]
        assert log.read(0, 10).at == first
        assert log.read(end - 5, 10).data == everything[-5:]

    def test_logs_are_kept_if_asked(self, backend: Backend) -> None:
        """After `forget`, for every handle and for readers that were open, until they are dropped."""
        for key in ("kept-1", "gone-1"):
            backend.launch(self.spec(key, f"echo I am {key}; echo error >&2"))
            until(backend, key, "exited")
        log = backend.open_log("kept-1", "stdout")
        for _ in range(2):
            backend.forget("kept-1", keep_log=True)
        backend.forget("gone-1")
        again = self.reopen(backend)
        for reader in (log, backend.open_log("kept-1", "stdout"), again.open_log("kept-1", "stdout")):
            assert (whole(reader), reader.ended()) == (b"I am kept-1\n", True)
        again.close()
        assert whole(backend.open_log("gone-1", "stdout")) == b""
        assert backend.observe() == []
        for _ in range(2):
            backend.drop_log("kept-1")
            assert whole(backend.open_log("kept-1", "stderr")) == b""

    def test_checkpoints_have_a_place(self, backend: Backend, tmp_path: Path) -> None:
        """One per job, the same for all its attempts and after a restart; a user's own wish comes first."""
        mine, other = backend.checkpoint_dir("mine"), backend.checkpoint_dir("other")
        again = self.reopen(backend)
        assert len({mine, other}) == 2
        assert [handle.checkpoint_dir("mine") for handle in (backend, again)] == [mine, mine]
        again.close()
        wish = str(tmp_path / "wish")
        assert backend.checkpoint_dir("mine", wish) == wish
        for _ in range(2):
            backend.drop_checkpoints("mine")
        backend.drop_checkpoints("other")

    def test_the_runtime_calls_home(self, backend: Backend) -> None:
        """A real one, at an address of the backend's own choice, with the secret of its attempt."""
        env = {
            "COTENANT_JOB_ID": "home",
            "COTENANT_ATTEMPT": "1",
            "PYTHONPATH": str(Path(cotenant.__file__).parents[1]),
        }
        with at_home(backend.listen_at(), "secret of one attempt") as home:
            calls = CallHome(home.address, home.secret)
            assert home.secret not in repr(calls)
            script = f"{sys.executable} -m cotenant.runtime"
            backend.launch(self.spec("home-1", script, env=env, calls_home=calls))
            assert until(backend, "home-1", "exited").exit_code == 0
            hello = home.wait_for(Hello)
            assert isinstance(hello, Hello)
            assert (hello.job, hello.attempt, hello.token) == ("home", 1, home.secret)
            home.wait_for(Done)

    def test_readers_in_other_threads(self, backend: Backend) -> None:
        """People ask for nodes and output while one thread waits for what happens."""
        backend.launch(self.spec("read-1", "echo text; sleep infinity"))
        until(backend, "read-1", "running")
        printed(backend, backend.open_log("read-1", "stdout"), lambda data: data == b"text\n")
        found: list[object] = []

        def ask() -> None:
            found.extend((len(backend.nodes()) > 0, whole(backend.open_log("read-1", "stdout"))))
            backend.wake()

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        assert backend.wait_change(1.0)
        assert found == [True, b"text\n"]
        backend.kill("read-1")
        until(backend, "read-1", "exited")
