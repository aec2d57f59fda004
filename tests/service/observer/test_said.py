"""The numbers of reports side by side say what the reports say, one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cotenant.runtime.protocol import Checkpoint, Hello, Progress, Restored
from cotenant.service.observer.report_columns import LEFT, MEAN, SAVES, SPREAD, TENURE, TOTAL
from cotenant.service.observer.reports import Reports


def _speak(reports: Reports, job: str, step: int, total: int | None = 1000) -> None:
    said = Progress(step, total, 1.0, {}, True, float(step), 1.0, 1)
    reports.hear(Hello("", job, 1, 1), said)


def _news(reports: Reports) -> dict[str, list[float]]:
    """What those say who have spoken since this was asked last."""
    places, numbers, names = reports.news()
    return {names[at]: said for at, said in zip(places.tolist(), numbers.tolist(), strict=True)}


def test_numbers_follow_what_jobs_say(tmp_path: Path) -> None:
    reports = Reports(tmp_path, ())
    assert _news(reports) == {}
    for step in range(1, 30):
        for number in range(5):
            _speak(reports, f"job-{number}", step * (number + 1))
    news = _news(reports)
    assert sorted(news) == [f"job-{number}" for number in range(5)]
    for job, said in news.items():
        report = reports.of(job)
        assert report is not None
        assert report.step is not None
        assert [said[TOTAL], said[SAVES], said[LEFT]] == [1000, 1, 1000 - report.step]
        assert [said[MEAN], said[SPREAD]] == [report.speed.mean_s, report.speed.spread]


def test_only_who_has_spoken_since_is_news(tmp_path: Path) -> None:
    reports = Reports(tmp_path, ())
    for job in ("one", "two", "three"):
        _speak(reports, job, 1)
    assert len(_news(reports)) == 3
    assert not _news(reports)
    _speak(reports, "two", 2)
    reports.hear(Hello("", "three", 1, 1), Checkpoint(2, "there", 1.0))
    reports.look_again(["one"])  # not by a word of its own
    assert sorted(_news(reports)) == ["three", "two"]


def test_nothing_is_left_of_what_no_longer_holds(tmp_path: Path) -> None:
    reports = Reports(tmp_path, ())
    for step in range(1, 30):
        _speak(reports, "old", step)
        _speak(reports, "stays", step)
    old = reports.place("old")
    assert old is not None
    reports.drop("old", 1)
    assert reports.place("old") is None
    _speak(reports, "new", 1, total=None)  # it takes the row of the old one, and is cold
    new = reports.place("new")
    assert new is not None
    assert new[0] == old[0]
    assert new[1] != old[1]
    news = _news(reports)
    assert sorted(news) == ["new", "stays"]
    assert np.isnan([news["new"][LEFT], news["stays"][LEFT]]).tolist() == [True, False]
    assert (news["new"][TOTAL], news["new"][TENURE]) == (-1, new[1])
    stays = reports.of("stays")
    assert stays is not None
    stays.speed.new_company()
    reports.look_again(["stays", "old"])
    reports.hear(Hello("", "stays", 1, 1), Checkpoint(2, "there", 1.0))
    assert np.isnan(_news(reports)["stays"][LEFT])


def test_work_that_is_restored_counts(tmp_path: Path) -> None:
    reports = Reports(tmp_path, ())
    for step in range(1, 30):
        _speak(reports, "job", step)
    reports.hear(Hello("", "job", 1, 1), Restored(500, "", 1.0))
    assert _news(reports)["job"][LEFT] == 500
