"""The local backend with real processes: what a job sees, how it ends, what is left of it (nothing)."""

from __future__ import annotations

import os
import select
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from local_world import LocalWorld, kill_hard, pid_of, wait_gone

from cotenant.backends import BackendError
from cotenant.backends.local import LocalBackend, gpus, procs
from cotenant.backends.local.records import KeeperRecord
from cotenant.core.errors import InputError
from cotenant.testing.backend_kit import PATIENCE_S


def test_what_a_job_sees(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_SECRET", "of the service")
    world.launch(
        "see-1",
        'echo "$CUDA_VISIBLE_DEVICES|$COTENANT_VIRTUAL_GPUS|$COTENANT_KEY|$PWD|$GIVEN|$SERVICE_SECRET|$HOME"\n'
        "echo oops >&2",
        gpus=(("local", (3, 1)),),
        env={"GIVEN": "a b\n'c'\"$HOME\"", "CUDA_VISIBLE_DEVICES": "9"},
    )
    world.until("see-1", "exited")
    assert world.log("see-1") == f"3,1|1|see-1|{world.work}|a b\n'c'\"$HOME\"||{os.environ['HOME']}\n"
    assert world.log("see-1", "stderr") == "oops\n"


def test_who_is_told_to_end_before_its_program_began_ends(tmp_path: Path) -> None:
    """Its keeper ignores SIGTERM, and a child does so until it becomes the program: meanwhile the signal waits."""
    script = """
        import os, signal
        from cotenant.backends.local import keeper
        os.dup2(os.open(os.devnull, os.O_RDONLY), keeper.LOCK)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        class Told:
            def enter(self, job):
                os.kill(os.getpid(), signal.SIGTERM)
        raw = b"argv=true\\0workdir=/\\0stdout_limit=9\\0stderr_limit=9\\0"
        pid = keeper.start(keeper.KeptJob(raw), Told())[0]
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    argv = [sys.executable, "-c", textwrap.dedent(script)]
    said = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=True).stdout
    assert int(said) == -signal.SIGTERM


def test_without_gpus_all_are_hidden(world: LocalWorld) -> None:
    world.launch("cpu-1", 'echo "[${CUDA_VISIBLE_DEVICES-unset}]"')
    world.until("cpu-1", "exited")
    assert world.log("cpu-1") == "[]\n"


def test_user_texts_are_not_interpolated(world: LocalWorld) -> None:
    """Hostile texts reach bash as they are: as a program where they are one, as data where they are data."""
    nasty = "'; echo $(touch hacked) `touch hacked`; \""
    world.launch("q-1", 'printf %s "$X"', env={"X": nasty}, setup=f"# {nasty}")
    world.until("q-1", "exited")
    assert world.log("q-1") == nasty
    world.launch("q-2", "", argv=("printf", "%s|", nasty, "$HOME", ""), setup="exit 0 # $1")
    world.until("q-2", "exited")
    assert world.log("q-2") == f"{nasty}|$HOME||"
    assert os.listdir(world.work) == []


def test_setup_runs_first_and_its_failure_ends_the_job(world: LocalWorld) -> None:
    world.launch("set-1", "cat made", setup="echo here > made")
    assert world.until("set-1", "exited").exit_code == 0
    assert world.log("set-1") == "here\n"
    world.launch("set-2", "echo never", setup="exit 9")
    assert world.until("set-2", "exited").exit_code == 9
    assert world.log("set-2") == ""


@pytest.mark.parametrize(("argv", "code"), [(("no-such-program",), 127), (("/etc/passwd",), 126)])
def test_a_program_that_cannot_start(world: LocalWorld, argv: tuple[str, ...], code: int) -> None:
    world.launch("no-1", "", argv=argv)
    end = world.until("no-1", "exited")
    assert end.exit_code == code
    assert argv[0] in end.message


def test_workdir_must_exist(world: LocalWorld) -> None:
    with pytest.raises(InputError, match="not an existing directory"):
        world.launch("dir-1", "exit 0", workdir=str(world.work / "missing"))
    assert world.backend.observe() == []


def test_secrets_stay_out_of_sight(world: LocalWorld) -> None:
    with world.pipe() as pipe:
        world.launch("sec-1", f"echo ready > {pipe.path}; sleep infinity", env={"TOKEN": "s3cr3t"})
        pipe.line()
    world.until("sec-1", "running")
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            assert b"s3cr3t" not in Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
    files = list(world.record("sec-1").iterdir())
    assert world.record("sec-1").stat().st_mode & 0o077 == 0
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
        assert not path.is_file() or b"s3cr3t" not in path.read_bytes(), path


def test_grandchildren_die_with_the_job(world: LocalWorld) -> None:
    """Those that left the session too, daemons too; when killed and when the job ends by itself."""
    daemon = "(setsid bash -c 'trap \"\" TERM HUP; echo $BASHPID > {0}; sleep infinity' &) ; {1}"
    os.mkfifo(world.work / "go")
    with world.pipe() as pipe:
        world.launch("kids-1", daemon.format(pipe.path, "sleep infinity"))
        pid = int(pipe.line())
        assert world.backend.kill("kids-1")
        assert world.until("kids-1", "exited").signal == 9
        wait_gone(pid)
        world.launch("kids-2", daemon.format(pipe.path, f"read < {world.work}/go; exit 5"))
        pid = int(pipe.line())
        (world.work / "go").write_text("\n")
        assert world.until("kids-2", "exited").exit_code == 5
        wait_gone(pid)


def test_terminate_leaves_time_to_finish(world: LocalWorld) -> None:
    """bash dies of SIGTERM at once; the training below it must still be able to write its checkpoint."""
    program = textwrap.dedent(
        """
        import os, signal, sys
        def save(*_):
            open(sys.argv[2]).read()  # a long checkpoint: until the test lets it go on
            with open("saved", "w") as file:
                file.write("checkpoint")
            os._exit(0)
        signal.signal(signal.SIGTERM, save)
        open(sys.argv[1], "w").write("ready\\n")
        signal.pause()
        """
    )
    (world.work / "train.py").write_text(program)
    os.mkfifo(world.work / "go")
    with world.pipe() as pipe:
        world.launch("grace-1", f"{sys.executable} train.py {pipe.path} {world.work}/go; true")
        leader = pid_of(world.until("grace-1", "running"))
        pipe.line()
        assert world.backend.terminate("grace-1")
        wait_gone(leader)
        assert world.until("grace-1", "running").state == "running"
        (world.work / "go").write_text("")
        assert world.until("grace-1", "exited").signal == 15
    assert (world.work / "saved").read_text() == "checkpoint"


def test_grace_ends(world: LocalWorld) -> None:
    with world.pipe() as pipe:
        world.launch("short-1", f"(trap '' TERM; echo ready > {pipe.path}; sleep infinity); true", grace_s=0.05)
        pipe.line()
        world.backend.terminate("short-1")
        assert world.until("short-1", "exited").signal == 15


def test_logs_rotate(world: LocalWorld) -> None:
    world.launch("log-1", "seq 1 100000", stdout_limit_mib=0.1)
    world.until("log-1", "exited")
    text = world.log("log-1")
    limit = int(0.1 * 2**20)
    whole = "".join(f"{n}\n" for n in range(1, 100001))
    assert limit <= len(text) <= 2 * limit
    assert whole.endswith(text)
    assert world.backend.open_log("log-1", "stdout").span() == (len(whole) - len(text), len(whole))
    kept = sorted(path.name for path in world.record("log-1").glob("stdout*"))
    assert kept == sorted(f"stdout-{len(whole) // limit * limit - k * limit}.log" for k in range(2))


def test_output_of_the_dead_is_kept(world: LocalWorld) -> None:
    """All that was written before the end is in the log when the end is reported."""
    world.launch("big-1", "seq 1 200000; kill -9 $$")
    assert world.until("big-1", "exited").signal == 9
    assert world.log("big-1") == "".join(f"{n}\n" for n in range(1, 200001))


def test_job_outlives_the_service_and_is_adopted(world: LocalWorld) -> None:
    """The launching process is killed; the job runs on, is found, heard and ended by the next one."""
    with world.pipe() as pipe:
        for key, script in (("live-1", "sleep infinity"), ("done-1", "exit 6")):
            code = (
                "import os;from cotenant.backends import LaunchSpec;from cotenant.backends.local import LocalBackend;"
                f"b=LocalBackend({str(world.state)!r},**{world.more!r});"
                f"b.launch(LaunchSpec({key!r},'job',{str(world.work)!r},"
                f"script='echo $$ > {pipe.path}; {script}'));os.kill(os.getpid(),9)"
            )
            assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
        pids = {int(pipe.line()), int(pipe.line())}
    one = world.until("live-1", "running")
    assert pid_of(one) in pids
    assert os.getsid(pid_of(one)) == os.getpgid(pid_of(one)) == pid_of(one)
    assert world.until("done-1", "exited").exit_code == 6
    assert world.backend.terminate("live-1")
    assert world.until("live-1", "exited").signal == 15


def test_keeper_killed(world: LocalWorld) -> None:
    """Nobody would tell how it ended, so its program ends at once: lost. What it left behind ends with `kill`."""
    with world.pipe() as pipe:
        script = f"setsid sleep infinity & echo ready > {pipe.path}; sleep infinity"
        world.launch("lost-1", script, env={"KEEP": "me"})
        pipe.line()
    world.until("lost-1", "running")
    child = KeeperRecord(world.state / "jobs", "lost-1").child()
    assert child is not None
    kill_hard(child.keeper)
    assert world.backend.wait_change(30)
    wait_gone(child.pid)
    assert world.until("lost-1", "lost").alive
    (left_behind,) = world.marked("lost-1")
    world.launch("lost-1", "exit 0")
    assert world.until("lost-1", "lost").alive
    assert world.marked("lost-1") == {left_behind}
    assert world.backend.kill("lost-1")
    while (left := world.seen("lost-1")) and left.alive:
        assert world.backend.wait_change(30)
    assert left is not None
    assert left.state == "lost"
    assert world.marked("lost-1") == set()
    world.backend.forget("lost-1")
    assert world.backend.observe() == []


def test_forget_of_a_lost_job_kills_what_is_left(world: LocalWorld) -> None:
    with world.pipe() as pipe:
        world.launch("lost-2", f"echo ready > {pipe.path}; sleep infinity")
        pipe.line()
    child = KeeperRecord(world.state / "jobs", "lost-2").child()
    assert child is not None
    kill_hard(child.keeper)
    world.until("lost-2", "lost")
    world.backend.forget("lost-2")
    assert world.marked("lost-2") == set()


def test_a_reused_pid_is_nobody_of_ours(world: LocalWorld) -> None:
    """Records that name a living stranger by number, but not by start time or boot, never reach it."""
    stranger = subprocess.Popen(["sleep", "infinity"], start_new_session=True)
    try:
        ticks = procs.start_ticks(stranger.pid)
        boot = procs.boot_id()
        for n, (t, b) in enumerate([(ticks - 1, boot), (ticks, "another-boot"), (ticks + 1, boot)]):
            record = KeeperRecord(world.state / "jobs", f"old-{n}")
            lock = record.lock()
            assert lock is not None
            os.close(lock)
            text = (
                f'{{"pid": {stranger.pid}, "ticks": {t}, "keeper": {stranger.pid}, "keeper_ticks": {t}, '
                f'"boot": "{b}", "started_s": 1.0}}'
            )
            record.write("child.json", text.encode())
            one = world.until(record.key, "lost")
            assert not one.alive
            for act in (world.backend.terminate, world.backend.kill, world.backend.suspend):
                assert act(record.key) is False
            world.backend.forget(record.key)
        assert procs.state_of(stranger.pid) == "S"
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_suspended_jobs_stand_still(world: LocalWorld) -> None:
    with world.pipe() as pipe:
        world.launch("nap-1", f"while read line < {world.work}/in; do echo $line > {pipe.path}; done")
        os.mkfifo(world.work / "in")
        feed = os.open(world.work / "in", os.O_RDWR)
        try:
            one = world.until("nap-1", "running")
            assert world.backend.suspend("nap-1")
            assert pid_of(world.until("nap-1", "suspended")) == pid_of(one)
            with world.another_handle() as again:
                assert [o.state for o in again.observe()] == ["suspended"]
            assert world.backend.resume("nap-1")
            world.until("nap-1", "running")
            world.backend.terminate("nap-1")
            world.until("nap-1", "exited")
        finally:
            os.close(feed)


def test_forget_waits_for_the_keeper_and_refuses_the_living(world: LocalWorld) -> None:
    world.launch("f-1", "sleep infinity")
    with pytest.raises(BackendError, match="still runs"):
        world.backend.forget("f-1")
    world.backend.kill("f-1")
    world.until("f-1", "exited")
    world.backend.forget("f-1")
    assert not world.record("f-1").exists()


def test_wake_from_another_thread(world: LocalWorld) -> None:
    thread = threading.Thread(target=world.backend.wake)
    thread.start()
    assert world.backend.wait_change(30)
    thread.join()
    assert not world.backend.wait_change(0)


def test_strange_things_in_the_state_directory_are_passed_over(world: LocalWorld) -> None:
    stray = world.state / "jobs" / ".hidden file"
    stray.mkdir()
    (world.state / "jobs" / "torn-1").mkdir()
    (world.state / "jobs" / "torn-1" / "child.json").write_text('{"pid": 1')
    assert world.backend.observe() == []
    stray.rmdir()


def test_signals_ignored_by_the_service_are_not_passed_on(world: LocalWorld) -> None:
    old = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        world.launch("sigs-1", "grep -E 'Sig(Blk|Ign)' /proc/self/status")
        world.until("sigs-1", "exited")
    finally:
        signal.signal(signal.SIGUSR1, old)
    masks = [int(line.split()[1], 16) for line in world.log("sigs-1").splitlines()]
    internal = 3 << 31  # 32 and 33 belong to the C library, which lets nobody reset them
    assert [mask & ~internal for mask in masks] == [0, 0]


@pytest.mark.skipif(bool(gpus.find()), reason="has real GPUs")
def test_virtual_slots_where_there_is_no_gpu(tmp_path: Path) -> None:
    for asked, expected in ((4, ("gpu", 4, "virtual")), (0, ("cpu", 0, "none")), (None, ("cpu", 0, "none"))):
        backend = LocalBackend(tmp_path, gpus=asked, use_cgroups=False)
        (node,) = backend.nodes()
        assert (node.gpu_type, node.gpus, backend.capabilities().gpu) == expected
        assert node.cpus == len(os.sched_getaffinity(0))
        assert node.mem_gib > 0
        backend.close()
    with pytest.raises(InputError, match="from 0 up"):
        LocalBackend(tmp_path, gpus=-1)


def test_virtual_types_make_one_node_each(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path, gpu_types=["v100", "k80", "v100", "k80"], use_cgroups=False)
    try:
        assert [(n.name, n.gpu_type, n.gpus) for n in backend.nodes()] == [
            ("local-v100", "v100", 2),
            ("local-k80", "k80", 2),
        ]
        env = backend._machine.gpu_env([("local-k80", [0, 1]), ("local-v100", [1])])
        assert env["CUDA_VISIBLE_DEVICES"] == "1,3,2"
    finally:
        backend.close()
    with pytest.raises(InputError, match="one type per GPU"):
        LocalBackend(tmp_path, gpus=3, gpu_types=["v100"])


def test_open_files_of_the_service_are_not_passed_on(world: LocalWorld) -> None:
    """A descriptor that somebody made inheritable must not live on in keepers and jobs."""
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    world.launch("fds-1", "sleep infinity")
    world.until("fds-1", "running")
    os.close(writer)
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_a_time_limit_is_kept_while_no_service_is_there(world: LocalWorld) -> None:
    """What it was suspended does not count; one that ignores SIGTERM is killed after its grace period."""
    world.launch("polite-1", "sleep 300", max_runtime_s=0.3)
    world.launch("deaf-1", "trap '' TERM; while :; do sleep 0.05; done", max_runtime_s=0.3, grace_s=0.2)
    world.launch("still-1", "sleep 300", max_runtime_s=0.3)
    for key in ("polite-1", "deaf-1", "still-1"):
        world.until(key, "running")
    assert world.backend.suspend("still-1")
    world.backend.close()
    deadline = time.monotonic() + PATIENCE_S
    while not all((world.record(key) / "exit.json").exists() for key in ("polite-1", "deaf-1")):
        assert time.monotonic() < deadline
        select.select([], [], [], 0.02)
    world.backend = world.another()
    ends = [world.until(key, "exited") for key in ("polite-1", "deaf-1")]
    assert [one.signal for one in ends] == [signal.SIGTERM, signal.SIGKILL]
    assert world.until("still-1", "suspended").alive
