"""The numbers of reports side by side say what the reports say, one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cotenant.runtime.protocol import Hello, Progress, Restored
from cotenant.service.observer.reports import Reports
from cotenant.service.observer.said import LEFT, MEAN, SAVES, SPREAD, TOTAL


def _speak(reports: Reports, job: str, step: int, total: int | None = 1000) -> None:
    said = Progress(step, total, 1.0, {}, True, float(step), 1.0, 1)
    reports.hear(Hello("", job, 1, 1), said)


def test_numbers_follow_what_jobs_say(tmp_path: Path) -> None:
    reports = Reports(tmp_path, ())
    for step in range(1, 30):
        for number in range(5):
            _speak(reports, f"job-{number}", step * (number + 1))
    numbers = reports.said(["job-3", "nobody", "job-0"])
    for row, job in ((0, "job-3"), (2, "job-0")):
        report = reports.of(job)
        assert report is not None
        assert report.step is not None
        assert report.speed.mean_s is not None
        assert numbers[row, [TOTAL, SAVES, LEFT]].tolist() == [1000, 1, 1000 - report.step]
        assert numbers[row, [MEAN, SPREAD]].tolist() == [report.speed.mean_s, report.speed.spread]
    assert numbers[1, [TOTAL, SAVES]].tolist() == [-1, 0]
    assert np.isnan(numbers[1, LEFT])


def test_nothing_is_left_of_what_no_longer_holds(tmp_path: Path) -> None:
    reports = Reports(tmp_path, ())
    for step in range(1, 30):
        _speak(reports, "old", step)
        _speak(reports, "stays", step)
    reports.drop("old", 1)
    _speak(reports, "new", 1, total=None)  # it takes the row of the old one, and is cold
    numbers = reports.said(["old", "new", "stays"])
    assert np.isnan(numbers[:, LEFT]).tolist() == [True, True, False]
    assert numbers[:2, TOTAL].tolist() == [-1, -1]
    stays = reports.of("stays")
    assert stays is not None
    stays.speed.new_company()
    reports.look_again(["stays", "old"])
    assert np.isnan(reports.said(["stays"])[0, LEFT])


def test_work_that_is_restored_counts(tmp_path: Path) -> None:
    reports = Reports(tmp_path, ())
    for step in range(1, 30):
        _speak(reports, "job", step)
    reports.hear(Hello("", "job", 1, 1), Restored(500, "", 1.0))
    assert reports.said(["job"])[0, LEFT] == 500
