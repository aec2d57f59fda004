"""What a service has run, from its journal, as a log for analysis."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from service_kit import Rig

from cotenant.analysis import analyze, gather
from cotenant.core.errors import InputError
from cotenant.service.history import DURATION_MEANS, history
from cotenant.workload.readers.pieces import LogPiece


def test_a_journal_is_a_log(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "home")
    first = rig.submit("sleep 100", gpus=4)
    rig.submit("sleep 50", gpus=2)
    rig.submit("sleep 30; exit 3", gpus=1)
    rig.ticks(10)
    unwanted = rig.submit("sleep 500", gpus=2)
    rig.ticks(300)
    waiting = rig.submit("sleep 500", gpus=4)
    home = tmp_path / "copy"
    home.mkdir()
    rig.service.store.journal.backup(home / "journal.db")
    before = (home / "journal.db").read_bytes()

    work = history(home)
    assert (home / "journal.db").read_bytes() == before
    jobs = dict(zip(work.job_id.tolist(), zip(work.gpus.tolist(), work.duration_s.tolist(), strict=True), strict=True))
    assert jobs[first][0] == 4
    assert jobs[first][1] == pytest.approx(100, abs=3)
    assert waiting not in jobs
    assert unwanted not in jobs
    assert "2 jobs are left out" in work.notes[0]
    report = analyze(gather([LogPiece(work, DURATION_MEANS, 1, 1)], "home", tmp_path), replays=False)
    assert report["jobs"] == 3
    assert report["queueing"]["from"] == "log"
    assert report["queueing"]["all"]["p50_wait_s"] == pytest.approx(
        102, abs=5
    )  # the second and third wait for the first
    assert report["definitions"]["duration"].startswith("run time (duration) is the sum of all attempts")
    assert not {"users", "status", "queueing", "first start to last end", "dates"} & set(report["lacking"])
    assert {"utilisation", "delay causes", "models"} <= set(report["lacking"])
    assert report["failures"]["by_reason"]["exit code 3"]["jobs"] == 1


def test_what_is_no_journal_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no journal\.db in it"):
        history(tmp_path)
    (tmp_path / "journal.db").write_bytes(b"SQLite format 3\0 and then nothing of the kind")
    with pytest.raises(InputError, match="cannot be read as a journal"):
        history(tmp_path)
    (tmp_path / "journal.db").unlink()
    with sqlite3.connect(tmp_path / "journal.db") as other:
        other.execute("CREATE TABLE t (x)")
    with pytest.raises(Exception, match="another program"):
        history(tmp_path)
