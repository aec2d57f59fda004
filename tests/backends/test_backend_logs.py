"""Output on disk: as keepers write it and wrote it before, while it moves, and what a job may put in its place."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

import pytest

from cotenant.backends import BackendError
from cotenant.backends.local import LocalBackend, keeper, logs
from cotenant.testing.backend_kit import whole


def _log(*folders: Path) -> logs.LocalLog:
    return logs.LocalLog("1-1", "stdout", folders, lambda: False)


def test_a_reader_goes_on_through_rotations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing twice, nothing lost, at whatever places the files end."""
    monkeypatch.chdir(tmp_path)
    for size, often, limit in itertools.product((1, 3, 7, 100), (1, 2), (4, 5, 10)):
        folder = tmp_path / f"{size}-{often}-{limit}"
        folder.mkdir()
        os.chdir(folder)
        writer, reader = keeper.Log("stdout", limit), _log(folder)
        everything, got = b"", b""
        for number in range(60):
            writer.write(text := f"{number:02d}".encode())
            everything += text
            while number % often == 0:
                part = reader.read(len(got), size)
                assert part.at == len(got)
                got += part.data
                if not part.data:
                    break
        os.close(writer.fd)
        assert got + whole(reader)[len(got) - reader.span()[0] :] == everything
        assert len(os.listdir(folder)) == 2


@pytest.mark.parametrize("suffix", [".log", ""])
def test_files_of_before_are_read(tmp_path: Path, suffix: str) -> None:
    """A home of an older version: `stdout.log` in records of running jobs, `stdout` where it was kept."""
    (tmp_path / f"stdout{suffix}").write_text("newer")
    assert whole(_log(tmp_path)) == b"newer"
    (tmp_path / f"stdout{suffix}.1").write_text("older ")
    (tmp_path / f"stderr{suffix}").write_text("other")
    log = _log(tmp_path)
    assert (whole(log), log.span(), log.read(4, 4).data) == (b"older newer", (0, 11), b"r ne")


def test_a_home_of_before_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "logs" / "7-1").mkdir(parents=True)
    (tmp_path / "logs" / "7-1" / "stdout").write_text("kept")
    (tmp_path / "checkpoints" / "7").mkdir(parents=True)
    backend = LocalBackend.open(tmp_path, gpus=1)
    record = tmp_path / "jobs" / "jobs" / "8-1"
    record.mkdir()
    (record / "stdout.log").write_text("written by an older keeper")
    (record / "exit.json").write_text(
        '{"code": 0, "signal": null, "oom": false, "started_s": 1.0, "ended_s": 2.0, "message": ""}'
    )
    assert whole(backend.open_log("7-1", "stdout")) == b"kept"
    assert backend.checkpoint_dir("7") == str(tmp_path / "checkpoints" / "7")
    assert backend.listen_at() == (f"unix:{tmp_path / 'runtime.sock'}",)
    assert [one.state for one in backend.observe()] == ["exited"]
    backend.forget("8-1", keep_log=True)
    assert whole(backend.open_log("8-1", "stdout")) == b"written by an older keeper"
    backend.drop_log("7-1")
    backend.drop_checkpoints("7")
    assert os.listdir(tmp_path / "logs") == ["8-1"]
    assert os.listdir(tmp_path / "checkpoints") == []
    backend.close()


def test_a_checkpoint_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    backend = LocalBackend.open(tmp_path, gpus=0)
    (tmp_path / "file").touch()
    with pytest.raises(BackendError, match="no folder for checkpoints"):
        backend.checkpoint_dir("1", str(tmp_path / "file" / "below"))
    backend.close()


class _Dies(BaseException):
    """Stands for SIGKILL: nothing catches it."""


@pytest.mark.parametrize("names", [("-0.log", "-9.log"), (".log.1", ".log")])
def test_keeping_may_be_interrupted_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    """At each point the output is whole, though it is in two folders, and a second call completes the first."""
    move = shutil.move
    for left in range(5):
        record, kept = tmp_path / f"{left}", tmp_path / f"{left}.kept"
        record.mkdir()
        for stream, name in itertools.product(("stdout", "stderr"), names):
            (record / f"{stream}{name}").write_text("old text " if name == names[0] else "new text")
        moves = left

        def some(source: Path, target: Path) -> None:
            nonlocal moves
            if moves == 0:
                raise _Dies
            moves -= 1
            move(source, target)

        monkeypatch.setattr(shutil, "move", some)
        if left < 4:
            with pytest.raises(_Dies):
                logs.keep(record, kept)
        monkeypatch.setattr(shutil, "move", move)
        assert whole(_log(record, kept)) == b"old text new text"
        for _ in range(2):
            logs.keep(record, kept)
        assert whole(_log(kept)) == b"old text new text"
        assert (os.listdir(record), len(os.listdir(kept))) == ([], 4)


def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("secret")
    (tmp_path / "stdout-0.log").symlink_to(secret)
    os.mkfifo(tmp_path / "stdout-9.log")
    os.link(secret, tmp_path / "stdout-12.log")
    assert whole(_log(tmp_path)) == b""
    assert _log(tmp_path).span() == (0, 0)
