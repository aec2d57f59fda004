"""What the command line says of isolation: before anything is opened, and to whoever asks the doctor."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from cli_runner import cotenant


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--isolation", "users"), "users"),
        (("--isolation", "sandbox", "--network", "lo"), "--network"),
        (("--network", "none"), "add --isolation sandbox"),
        (("--user-map", "x"), "--isolation user or sandbox"),
    ],
)
def test_bad_isolation_is_one_line(tmp_path: Path, words: tuple[str, ...], complaint: str) -> None:
    ran = cotenant("serve", "--home", tmp_path / "home", *words)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert complaint in ran.err
    assert not (tmp_path / "home").exists()


def test_without_root_serve_refuses_and_the_doctor_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTENANT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    ran = cotenant("serve", "--isolation", "user")
    assert (ran.code, "not possible here: only root can start jobs as other users" in ran.err) == (2, True)
    found = {check["name"]: check for check in json.loads(cotenant("doctor", "--json").out)}
    assert found["isolation"]["result"] == "warn"
    assert "possible: none; not user: only root" in found["isolation"]["text"]
