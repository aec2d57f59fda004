"""Where a service lives: its folder, its door, its copies."""

from __future__ import annotations

import json
import logging
import os
import stat
import threading
from pathlib import Path

import pytest

from cotenant.core.errors import InputError
from cotenant.journal import Entry, open_journal
from cotenant.service import home as homes
from cotenant.service import logs
from cotenant.service.backups import Backups
from cotenant.service.options import Keep, Options
from cotenant.service.run import Site, open_service


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    home.chmod(0o755)
    (home / "theirs").write_text("x")
    homes.prepare(home)
    assert mode(home) == 0o755
    assert {mode(home / name) for name in ("logs", "backups")} == {0o700}


@pytest.mark.parametrize("how", [0o777, 0o1777, 0o775])
def test_a_folder_that_others_can_write_is_refused_and_left_alone(tmp_path: Path, how: int) -> None:
    home = tmp_path / "tmp"
    home.mkdir()
    (home / "theirs").write_text("x")
    home.chmod(how)
    with pytest.raises(InputError, match=rf"can be written by others \(mode {how:04o}\): choose another --home"):
        homes.prepare(home)
    assert (mode(home), os.listdir(home)) == (how, ["theirs"])


def test_an_empty_folder_becomes_ours_and_a_file_does_not(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o777)
    assert homes.prepare(home) == home
    assert mode(home) == 0o700
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is not a folder"):
        homes.prepare(tmp_path / "file")
    with pytest.raises(InputError, match="cannot be used: Not a directory"):
        homes.prepare(tmp_path / "file" / "home")


def test_one_service_per_home_whatever_its_journal(tmp_path: Path) -> None:
    service = open_service(Options(tmp_path / "home"), Site(gpus=1))
    with pytest.raises(InputError, match=r"home .* is already open in this process"):
        open_service(Options(tmp_path / "home"), Site(db=str(tmp_path / "other.db"), gpus=1))
    service.close()
    open_service(Options(tmp_path / "home"), Site(gpus=1)).close()


def test_a_relative_home_is_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs, which run elsewhere, are told the address of a socket in it."""
    monkeypatch.chdir(tmp_path)
    service = open_service(Options(Path("home")), Site(gpus=1))
    try:
        assert service.options.home == tmp_path / "home"
        assert service.reports.addresses[0].startswith(f"unix:{tmp_path}/home/")
    finally:
        service.close()


def test_copies_are_made_and_the_oldest_deleted(tmp_path: Path) -> None:
    with open_journal(str(tmp_path / "journal.db")) as journal:
        backups = Backups(journal, tmp_path / "backups", every_s=3600.0, keep=2)
        (tmp_path / "backups").mkdir()
        (tmp_path / "backups" / "mine.db").write_text("by hand")
        made = []
        for _ in range(4):
            journal.append([Entry("k")])
            made.append(backups.copy())
    assert sorted(path.name for path in (tmp_path / "backups").iterdir()) == sorted(
        [made[2].name, made[3].name, "mine.db"]
    )
    with open_journal(str(made[3])) as copy:
        assert copy.last_seq == 4


def test_who_asks_for_no_copies_gets_none(tmp_path: Path) -> None:
    with open_journal(str(tmp_path / "journal.db")) as journal:
        backups = Backups(journal, tmp_path / "backups", every_s=0.0, keep=2)
        backups.start()
        running = [thread for thread in threading.enumerate() if thread.name == "backups"]
        backups.stop()
    assert running == []
    assert not (tmp_path / "backups").exists()


@pytest.mark.parametrize(
    ("keep", "says"),
    [
        ({"jobs_s": 10.0, "logs_s": 20.0}, "--keep-logs"),
        ({"jobs_s": 10.0, "checkpoints_s": 20.0}, "--keep-checkpoints"),
    ],
)
def test_nothing_outlives_the_record_that_names_it(keep: dict[str, float], says: str) -> None:
    with pytest.raises(InputError, match=f"{says} is longer than --keep-jobs"):
        Keep(**keep)


def test_logs_have_levels_and_forms(capsys: pytest.CaptureFixture[str]) -> None:
    root, ours = logging.getLogger(), logging.getLogger("cotenant")
    before = root.handlers[:], root.level, ours.level
    try:
        logs.set_up("warning", "json")
        log = logging.getLogger("cotenant.service.run")
        log.info("not shown")
        log.warning("two\nlines %d", 7)
        line = json.loads(capsys.readouterr().err)
        assert (line["level"], line["part"], line["message"]) == ("warning", "run", "two lines 7")
        logs.set_up("info", "text")
        log.info("shown")
        assert capsys.readouterr().err.endswith(" info    run: shown\n")
    finally:
        root.handlers[:], root.level = before[0], before[1]
        ours.setLevel(before[2])
