"""What the shell is told when somebody presses tab."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_service import FakeService

from cotenant.cli import remote
from cotenant.client import Client


def test_ids_names_nodes_and_policies_are_completed(at_home: Path, client: Client, service: FakeService) -> None:
    client.submit([{"run": "x", "name": "train"}, {"run": "x", "name": "eval"}])
    assert remote.complete_jobs("") == ["2", "eval", "1", "train"]
    assert remote.complete_jobs("tr") == ["train"]
    assert remote.complete_nodes("n1") == ["n1"]
    assert remote.complete_policies("fifo,srt") == ["fifo,srtf"]


def test_a_service_that_does_not_answer_completes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTENANT_URL", "http://127.0.0.1:9")
    assert remote.complete_jobs("") == remote.complete_nodes("") == []
