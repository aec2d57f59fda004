from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from runtime_service import PATIENCE_S, Service, finish, job_env, spawn

from cotenant import runtime
from cotenant.runtime import _link
from cotenant.runtime.protocol import (
    Checkpoint,
    Declined,
    Done,
    Hello,
    Pause,
    Progress,
    Restored,
    Set,
    Settings,
    Stop,
    Stopping,
)


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("COTENANT_"):
            monkeypatch.delenv(name)


def test_outside_everything_works_and_does_nothing(tmp_path: Path) -> None:
    with runtime.job(batch_size=8, accumulation=2) as job:
        job.save(lambda path: pytest.fail("there is nowhere to save"))
        assert job.restore(lambda path: pytest.fail("there is nothing to restore")) == 0
        seen = []
        for step in job.steps(5):
            job.report(loss=0.5, nonsense="text")
            seen.append(step)
        assert seen == [0, 1, 2, 3, 4]
        assert not job.should_stop
        assert (job.batch_size, job.accumulation, job.workers) == (8, 2, 0)
        assert (job.throttle_s, job.learning_rate_scale) == (0.0, 1.0)
        assert (job.id, job.attempt, job.tenant) == ("", 0, "")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_outside_with_a_directory_it_resumes(tmp_path: Path) -> None:
    def run(stop_after: int) -> list[int]:
        seen: list[int] = []
        state = {"sum": 0}
        with runtime.job(checkpoint_dir=tmp_path, checkpoint_interval_s=0) as job:
            job.save(lambda path: (path / "s").write_text(str(state["sum"])))
            job.restore(lambda path: state.update(sum=int((path / "s").read_text())))
            for step in job.steps(10):
                if len(seen) == stop_after:
                    break
                seen.append(step)
                state["sum"] += step
            if job.step == 10:
                assert state["sum"] == 45
        return seen

    assert run(4) == [0, 1, 2, 3]
    assert run(99) == [4, 5, 6, 7, 8, 9]
    assert run(99) == []


def test_one_loop_per_job() -> None:
    with runtime.job() as job:
        list(job.steps(2))
        with pytest.raises(RuntimeError, match="one loop"):
            list(job.steps(2))


def test_a_full_disk_does_not_end_training_but_a_bug_does(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def full(path: Path) -> None:
        raise OSError("no space left")

    with runtime.job(checkpoint_dir=tmp_path, checkpoint_interval_s=0) as job:
        job.save(full)
        assert len(list(job.steps(3))) == 3
    assert "no space left" in caplog.text

    with runtime.job(checkpoint_dir=tmp_path, checkpoint_interval_s=0) as job:
        job.save(lambda path: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            list(job.steps(3))


def test_settings_change_at_step_boundaries_only(inside: Service) -> None:
    inside.settings = Settings(batch_size=64, gpus=2)
    changes: list[Settings] = []
    with runtime.job(batch_size=8, workers=3) as job:
        assert (job.batch_size, job.gpus, job.workers) == (64, 2, 3)
        assert (job.id, job.attempt, job.tenant) == ("j1", 3, "vision")
        job.on_change(changes.append)
        inside.wait_for(lambda message: isinstance(message, Hello))
        for step in job.steps(10**6):
            if step == 2:
                inside.send(Set(batch_size=128, accumulation=4, workers=1, throttle_s=0.001, learning_rate_scale=2.0))
                staged(job)
                assert job.batch_size == 64
                assert not changes
            if step == 3:
                break
        assert (job.batch_size, job.accumulation, job.workers, job.gpus) == (128, 4, 1, 2)
        assert (job.throttle_s, job.learning_rate_scale) == (0.001, 2.0)
    assert [change.batch_size for change in changes] == [128]


def test_a_long_pause_between_steps_is_ended_by_new_settings(inside: Service) -> None:
    with runtime.job() as job:
        inside.wait_for(lambda message: isinstance(message, Hello))
        began = time.monotonic()
        for step in job.steps(4):
            if step == 1:
                inside.send(Set(throttle_s=10 * PATIENCE_S))
                staged(job)
                threading.Timer(0.1, inside.send, (Set(throttle_s=0.0),)).start()
        assert job.step == 4
        assert time.monotonic() - began < PATIENCE_S


@pytest.mark.parametrize(("ranks", "steps_between"), [("1", 10), ("2", 1)])
def test_short_steps_are_made_in_bursts_and_the_share_is_kept(
    inside: Service, monkeypatch: pytest.MonkeyPatch, ranks: str, steps_between: int
) -> None:
    """Steps of 2 ms with pauses of 4 ms are a third of the time: 20 ms of work, then 40 of rest; in virtual time."""
    monkeypatch.setenv("WORLD_SIZE", ranks)
    inside.settings = Settings(throttle_s=0.004)
    with runtime.job() as job:
        inside.wait_for(lambda message: isinstance(message, Hello))
        clock = Clock()
        monkeypatch.setattr("cotenant.runtime._job.time", clock)
        for _ in job.steps(200):
            clock.now_s += 0.002
        monkeypatch.undo()
    assert sum(clock.slept_s) / clock.now_s == pytest.approx(2 / 3, abs=0.02)
    assert 200 / len(clock.slept_s) == pytest.approx(steps_between, rel=0.3)


class Clock:
    """Time that passes only while somebody sleeps, or when told."""

    def __init__(self) -> None:
        self.now_s, self.slept_s = 0.0, list[float]()

    def monotonic(self) -> float:
        return self.now_s

    time = monotonic

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds


def staged(job: runtime.Job) -> None:
    """Return when a settings message has arrived."""
    until = time.monotonic() + PATIENCE_S
    while not job._staged.given():
        assert time.monotonic() < until
        os.sched_yield()


def test_first_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTENANT_SETTINGS", '{"batch_size": 48, "workers": 2}')
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,3")
    job = runtime.job(batch_size=1, accumulation=5)
    assert (job.batch_size, job.workers, job.accumulation, job.gpus) == (48, 2, 5, 2)
    for wrong in ("{", "[]", '{"batch_size": 0}'):
        monkeypatch.setenv("COTENANT_SETTINGS", wrong)
        assert runtime.job(batch_size=7).batch_size == 7


def test_asked_to_stop_it_saves_tells_and_leaves(inside: Service, tmp_path: Path) -> None:
    cleaned = []
    job = runtime.job()

    def train() -> None:
        with job:
            job.save(lambda path: (path / "s").write_text(str(job.step)))
            try:
                for step in job.steps(10**6):
                    if step == 4:
                        inside.send(Stop(grace_s=9.0))
            finally:
                cleaned.append(True)

    with pytest.raises(SystemExit) as left:
        train()
    assert left.value.code == runtime.EXIT_PREEMPTED == 75
    assert cleaned
    assert job.grace_s == 9.0
    stopping = inside.wait_for(lambda message: isinstance(message, Stopping))
    newest = runtime.CheckpointStore(tmp_path / "ckpt").newest()
    assert newest is not None
    assert stopping == Stopping(newest.step, saved=True)
    assert newest.step >= 5
    assert (newest.path / "s").read_text() == str(newest.step)
    assert not inside.of(Done)


def test_a_job_that_cannot_save_says_so_and_goes_on(inside: Service) -> None:
    with runtime.job() as job:
        for step in job.steps(10**9):
            if step == 1:
                inside.send(Stop(1.0))
            if inside.of(Declined):
                break
    declined = inside.wait_for(lambda message: isinstance(message, Declined))
    assert "does not save" in declined.reason  # type: ignore[union-attr]
    assert not any(message.saves for message in inside.of(Progress))  # type: ignore[union-attr]


def test_a_stop_at_the_last_step_lets_the_job_finish(inside: Service) -> None:
    with runtime.job() as job:
        job.save(lambda path: None)
        for step in job.steps(3):
            if step == 2:
                inside.send(Stop(1.0))
    assert inside.wait_for(lambda message: isinstance(message, Done)) == Done(3)


def test_progress_is_rate_limited_and_the_last_one_is_sent(inside: Service) -> None:
    with runtime.job() as job:
        for _ in job.steps(20_000):
            job.report(loss=1.0)
    inside.wait_for(lambda message: isinstance(message, Done))
    progress = inside.of(Progress)
    assert progress[-1].step == 20_000  # type: ignore[union-attr]
    assert progress[-1].metrics == {"loss": 1.0}  # type: ignore[union-attr]
    assert len(progress) < 60


def test_the_service_may_crash_and_come_back(inside: Service) -> None:
    with runtime.job() as job:
        job.save(lambda path: None)
        phase = "before"
        for step in job.steps(10**9):
            if phase == "before" and step >= 3:
                inside.wait_for(lambda message: isinstance(message, Checkpoint))
                inside.stop()
                inside.heard.clear()
                phase = "away"
                away_since = step
            elif phase == "away" and step >= away_since + 5:  # training goes on without the service
                inside.start()
                phase = "back"
            elif phase == "back" and inside.of(Checkpoint):
                break
    hellos = inside.of(Hello)
    assert len(hellos) == 1
    inside.wait_for(lambda message: isinstance(message, Done))
    assert len({m.step for m in inside.of(Checkpoint)} & set(range(away_since, away_since + 5))) >= 4  # type: ignore[union-attr]


def test_a_wrong_token_is_refused_and_training_goes_on(
    inside: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("COTENANT_JOB_TOKEN", "guess")
    monkeypatch.setattr("cotenant.runtime._job._WELCOME_WAIT_S", 0.2)
    monkeypatch.setattr("cotenant.runtime._job._CLOSE_WAIT_S", 0.1)
    with runtime.job() as job:
        assert len(list(job.steps(5))) == 5
    assert not inside.heard
    assert "refused" in caplog.text
    assert "guess" not in caplog.text


def test_without_a_service_the_queue_stays_bounded_and_keeps_what_matters(tmp_path: Path) -> None:
    link = _link.Link(f"unix:{tmp_path / 'nobody'}", Hello("t", "j", 0, 1), lambda message: None)
    link.send(Restored(1, "p", 0.0))
    for step in range(1000):
        link.send(Progress(step))
        link.send(Checkpoint(step, "p", 0.0))
    link.send(Stopping(1000, saved=True))
    kept = list(link._outbox)
    assert len(kept) == _link.QUEUE_LIMIT
    assert kept[0] == Restored(1, "p", 0.0)
    assert kept[-2:] == [Checkpoint(999, "p", 0.0), Stopping(1000, saved=True)]


def test_the_socket_is_private_and_fits_a_deep_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 50)
    deep.mkdir(parents=True)
    path = deep / "runtime.sock"
    service = Service(f"unix:{path}")
    try:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for name, value in job_env(service.addresses[0], tmp_path / "ckpt").items():
            monkeypatch.setenv(name, value)
        with runtime.job() as job:
            assert len(list(job.steps(2))) == 2
        service.wait_for(lambda message: isinstance(message, Done))
    finally:
        service.close()
    assert not path.exists()


SCRIPT = """
import os, signal, sys
from cotenant import runtime
if "own" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(9))
with runtime.job(checkpoint_interval_s=1e9) as job:
    if "save" in sys.argv:
        job.save(lambda path: (path / "s").write_text(str(job.step)))
    try:
        for step in job.steps(10**9):
            if step == 3:
                if "fork" in sys.argv:  # a child, such as a data loader's worker, dies of the signal as usual
                    there, here = os.pipe()
                    child = os.fork()
                    while child == 0:
                        os.write(here, b"r")
                        signal.pause()
                    os.read(there, 1)
                    os.kill(child, signal.SIGTERM)
                    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
                print("ready", flush=True)
                os.read(0, 1)
    finally:
        print("finally", flush=True)
"""


@pytest.mark.parametrize(
    ("words", "code"), [(["save"], 75), (["save", "fork"], 75), ([], 143), (["own", "save"], 9)], ids=str
)
def test_sigterm(tmp_path: Path, words: list[str], code: int) -> None:
    env = os.environ | {"COTENANT_CHECKPOINT_DIR": str(tmp_path / "ckpt")}
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *words], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate("x", timeout=PATIENCE_S)
    assert process.returncode == code
    newest = runtime.CheckpointStore(tmp_path / "ckpt").newest()
    if code == 75:
        assert out == "finally\n"
        assert newest is not None
        assert newest.step == 4
    else:
        assert newest is None


def test_the_folder_works_alone_with_the_standard_library_only(tmp_path: Path) -> None:
    shutil.copytree(Path(runtime.__file__).parent, tmp_path / "elsewhere", ignore=shutil.ignore_patterns("__pycache__"))
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import elsewhere\n"
        "import elsewhere.server, elsewhere.torch, elsewhere.lightning, elsewhere.huggingface\n"
        "with elsewhere.job() as job: assert list(job.steps(3)) == [0, 1, 2]\n"
        "assert not {'cotenant', 'torch', 'numpy', 'lightning', 'transformers'} & set(sys.modules)\n"
    )
    finish(spawn("-S", "-I", "-c", code))


_PAUSED = """
import time
from cotenant import runtime
with runtime.job() as job:
    ends = []
    for step in job.steps(10**6):
        time.sleep(0.01)
        ends.append(time.monotonic())
        longest = max((b - a for a, b in zip(ends, ends[1:])), default=0.0)
        if longest > 0.5 and ends[-1] - ends[-2] < 0.2:
            break
    print(sum(b - a > 0.5 for a, b in zip(ends, ends[1:])))
"""


@pytest.mark.parametrize("dies", [False, True], ids=["alive", "killed"])
def test_a_paused_job_goes_on_by_itself_whether_or_not_the_service_lives(
    service: Service, tmp_path: Path, dies: bool
) -> None:
    script = tmp_path / "paused.py"
    script.write_text(_PAUSED)
    process = spawn(script, env=job_env(service.addresses[0], tmp_path / "checkpoints"))
    service.wait_for(lambda message: isinstance(message, Progress) and message.step > 3)
    assert service.send(Pause(0.7))
    if dies:
        service.stop()
    assert finish(process) == "1\n", "it stood still once, and not again"
    if dies:
        service.start()
