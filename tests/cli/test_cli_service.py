"""`restore`, `service` and the start of `serve`, as commands."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from cli_runner import cotenant

from cotenant.journal import Entry, open_journal


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COTENANT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SYSTEMD_RUN", str(tmp_path / "nowhere"))
    monkeypatch.setattr("cotenant.service.logs.set_up", lambda level, form: None)
    return tmp_path / "home"


def _one_line(*words: str) -> str:
    """What is said by a command that cannot do what it was asked to."""
    ran = cotenant(*words)
    assert (ran.code, ran.err.count("\n"), ran.out) == (2, 1, ""), ran
    return ran.err


def test_serve_says_in_one_line_that_its_port_is_taken(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"cannot listen at 127.0.0.1 port {port}" in _one_line("serve", "--gpus", "1", "--port", port)


def test_serve_says_in_one_line_that_its_home_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert "is not a folder" in _one_line("serve", "--gpus", "1", "--port", "0", "--home", str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--keep-jobs", "long"], "--keep-jobs long: write seconds, or e.g."),
        (["--keep-logs", "31d"], "--keep-logs is longer than --keep-jobs"),
        (["--unknown-jobs", "kill"], "unknown --unknown-jobs 'kill'"),
        (["--log-level", "loud"], "unknown --log-level 'loud'"),
        (["--cluster", "none.yaml"], "none.yaml: no such file"),
        (["--cluster", "4x8"], "4x8: tenants are in a YAML file"),
    ],
)
def test_serve_refuses_what_it_does_not_understand(words: list[str], text: str) -> None:
    assert text in _one_line("serve", *words)


def test_restore_keeps_the_old_journal_aside(tmp_path: Path, home: Path) -> None:
    home.mkdir(mode=0o700)
    backup = str(tmp_path / "backup.db")
    with open_journal(str(home / "journal.db")) as journal:
        journal.append([Entry("k"), Entry("k")])
        journal.backup(backup)
        journal.append([Entry("later")])
        assert "is already open" in _one_line("restore", backup, "--force")
    assert "--force keeps it aside" in _one_line("restore", backup)
    ran = cotenant("restore", backup, "--to", str(home), "--force", "--json")
    done = json.loads(ran.out)
    assert (ran.code, done["last_seq"]) == (0, 2)
    with open_journal(str(home / "journal.db")) as journal:
        assert [record.kind for record in journal.read()] == ["k", "k"]
    with open_journal(done["aside"]) as journal:
        assert journal.last_seq == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.db", "home"]


def test_restore_looks_at_the_backup_first(tmp_path: Path, home: Path) -> None:
    home.mkdir(mode=0o700)
    with open_journal(str(home / "journal.db")) as journal:
        journal.append([Entry("k", "", {"text": "x" * 50_000})])
        journal.backup(tmp_path / "backup.db")
    (tmp_path / "bad.db").write_bytes((tmp_path / "backup.db").read_bytes()[:20_000])
    assert "cannot be used" in _one_line("restore", str(tmp_path / "bad.db"), "--force")
    with open_journal(str(home / "journal.db")) as journal:
        assert journal.last_seq == 1


def test_service_install_prints_what_to_do_without_systemd(tmp_path: Path) -> None:
    ran = cotenant("service", "install", "--", "--policy", "srtf")
    assert ran.code == 0
    assert "no systemd here" in ran.out
    assert "KillMode=process" in ran.out
    assert f"serve --home {tmp_path}/home --policy srtf" in ran.out
    assert not (tmp_path / "config").exists()
    ran = cotenant("service", "status", "--json")
    assert (ran.code, json.loads(ran.out)["state"]) == (1, "no systemd")


def test_service_install_writes_a_unit_and_uninstall_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "systemctl").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\necho active\n')
    (tools / "systemctl").chmod(0o755)
    monkeypatch.setenv("SYSTEMD_RUN", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    unit = tmp_path / "config" / "systemd" / "user" / "cotenant.service"
    assert cotenant("service", "install").code == 0
    assert f"Environment=COTENANT_HOME={tmp_path}/home" in unit.read_text()
    assert cotenant("service", "status").code == 0
    assert cotenant("service", "uninstall").code == 0
    assert not unit.exists()
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[:2] == ["--user daemon-reload", "--user enable --now cotenant.service"]
    assert "--user disable --now cotenant.service" in asked
