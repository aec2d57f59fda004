from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_outcomes import outcome

from cotenant.core.outcome import Outcome, Segments, Series
from cotenant.report import page as pages
from cotenant.report.html import render_html, write_html
from cotenant.report.paired import differences
from cotenant.report.stats import aggregate
from cotenant.report.table import comparison_rows

EVIL = "<script>alert('x')</script>&\"q\""


class Page(HTMLParser):
    """Tags with their attributes, and the text inside scripts apart from the text of the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.text += data

    def ids(self) -> list[str]:
        return [attrs["id"] or "" for _, attrs in self.tags if "id" in attrs]


def render(runs: list[Outcome], **options: Any) -> str:
    return render_html(runs, title="A title", command="cotenant compare t.csv --policies a,b", **options)


@pytest.fixture(scope="module", autouse=True)
def dist(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A stand-in for what `make web` builds: what is tested here is what Python makes."""
    folder = tmp_path_factory.mktemp("dist")
    (folder / "report.js").write_text("console.log('</script>');\n")
    (folder / "report.css").write_text(":root { color-scheme: light dark; }\n")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pages, "DIST", folder)
        yield folder


@pytest.fixture(scope="module")
def runs() -> list[Outcome]:
    return [outcome("fifo", delay=4.0), outcome("srsf", delay=0.5), outcome(EVIL)]


@pytest.fixture(scope="module")
def text(runs: list[Outcome]) -> str:
    return render(runs)


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def data_of(page: Page) -> dict[str, Any]:
    return json.loads(gzip.decompress(base64.b64decode(page.scripts[0])))  # type: ignore[no-any-return]


def charts_of(page: Page, cell: int = 0) -> dict[str, Any]:
    data = data_of(page)
    return data["charts"] | data["cells"][cell]["charts"]  # type: ignore[no-any-return]


def test_nothing_is_fetched(page: Page, text: str) -> None:
    for tag, attrs in page.tags:
        assert tag not in ("link", "iframe", "img", "object", "embed", "base", "form")
        assert not {"src", "href", "srcset", "action", "data"} & set(attrs)
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    policy = next(a for t, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in (policy["content"] or "")


def test_only_its_own_script_may_run(page: Page, text: str) -> None:
    script = text[text.rindex("<script>") + len("<script>") : text.rindex("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert "unsafe-inline" not in text[text.index("script-src") : text.index("style-src")]
    assert len(page.scripts) == 2
    assert "<\\/script>" in script, "the script must not end its own element"


def test_without_a_build_it_says_how_to_make_one(
    runs: list[Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "DIST", tmp_path / "nothing")
    made = Page(render(runs))
    assert "make web" in made.text
    assert "srsf" in made.text


def test_every_section_is_there(page: Page) -> None:
    ids = page.ids()
    for slug in (
        "jct-cdf",
        "queue-cdf",
        "utilisation",
        "queue-length",
        "jct-by-size",
        "slowdown-cdf",
        "gantt",
    ):
        assert slug in ids
        assert f"plot-{slug}" in ids
    assert len(ids) == len(set(ids))
    for words in ("A title", "philly-like:jobs=2000", "8x8 (64 GPUs)", "cotenant compare t.csv", "0.1.0"):
        assert words in page.text


def test_it_is_accessible(page: Page, text: str) -> None:
    assert '<html lang="en">' in text
    assert "<title>A title</title>" in text
    assert [tag for tag, _ in page.tags if tag == "h1"] == ["h1"]
    plots = [attrs for _, attrs in page.tags if attrs.get("class") == "plot"]
    assert len(plots) == 10
    assert all(attrs["data-label"] and attrs["data-slug"] for attrs in plots)
    cells = [attrs for tag, attrs in page.tags if tag == "th"]
    assert {attrs["scope"] for attrs in cells} == {"col", "row"}
    assert all(attrs["aria-sort"] == "none" for attrs in cells if attrs["scope"] == "col")


def test_user_text_cannot_become_markup(page: Page, text: str) -> None:
    evil = render_html([outcome(EVIL), outcome("b")], title=EVIL, command=EVIL)
    for made in (text, evil):
        assert "<script>alert" not in made
        assert "</script>&" not in made
    assert len(Page(evil).scripts) == 2
    assert EVIL in page.text
    assert EVIL in {mark["name"] for chart in charts_of(page).values() for mark in chart["marks"]}


def test_marks_are_what_the_script_knows(page: Page) -> None:
    for slug, chart in charts_of(page).items():
        assert set(chart) <= {"x", "y", "marks", "across", "stack", "legend", "height", "rule"}, slug
        for mark in chart["marks"]:
            assert mark["type"] in {"line", "fill", "area", "bar", "dot", "box", "cells"}
            assert len(mark["x"]) == len(mark["y"]) <= 400
            assert {len(mark[key]) for key in ("low", "high", "five") if key in mark} <= {len(mark["x"])}
    schedule = data_of(page)["cells"][0]["schedule"]
    assert len(schedule["lines"]) == 3
    for bars in schedule["lines"]:
        assert max(row + tall for row, tall in zip(bars["row"], bars["tall"], strict=True)) <= len(schedule["rows"])
        assert max(bars["job"]) < len(bars["jobs"]) == len(bars["size"])
        assert all(start < end for start, end in zip(bars["start"], bars["end"], strict=True))


def test_a_policy_has_one_colour_everywhere(page: Page) -> None:
    colors: dict[int, set[str]] = {}
    for chart in charts_of(page).values():
        for mark in chart["marks"]:
            if "of" in mark:  # what belongs to no policy has colours of its own
                colors.setdefault(mark["of"], set()).add(mark["color"])
    assert [len(colors[index]) for index in range(3)] == [1, 1, 1]
    assert len(set.union(*colors.values())) == 3


def test_same_input_same_bytes_whatever_the_machine(runs: list[Outcome], tmp_path: Path, text: str) -> None:
    slower = [replace(run, summary={**run.summary, "wall_s": 9.0, "peak_rss_mib": 1.0}) for run in runs]
    assert render(slower) == text
    write_html(runs, tmp_path / "r.html", title="A title", command="cotenant compare t.csv --policies a,b")
    assert (tmp_path / "r.html").read_bytes() == text.encode()


def test_many_jobs_stay_small() -> None:
    run = outcome("fifo", 20_000)
    made = render([replace(run, policy=f"policy-{i}", summary={**run.summary}) for i in range(10)])
    assert len(made.encode()) < 200_000, "the data of a report; style and script are 120 kB more"


def test_all_runs_of_a_sweep_are_in_the_report() -> None:
    runs = [
        outcome(policy, 60, delay=delay * load, seed=seed, load=load)
        for load in (0.7, 1.0)
        for seed in (0, 1)
        for policy, delay in (("fifo", 2.0), ("srsf", 1.0))
    ]
    rows = comparison_rows(runs)
    page = Page(render(runs, rows=rows, aggregates=aggregate(rows)))
    assert "±" in page.text
    assert "All 8 runs" in page.text
    assert "pool the jobs of 2 seeds" in page.text
    data = data_of(page)
    assert [len(mark["x"]) for mark in data["charts"]["seeds"]["marks"]] == [2, 2]
    assert len(charts_of(page)["jct-cdf"]["marks"]) == 4  # a curve and a band for each policy
    assert [one["label"] for one in data["cells"]] == ["load 0.7", "load 1.0"]
    assert charts_of(page, 0)["jct-cdf"] != charts_of(page, 1)["jct-cdf"]
    assert [len(one["schedule"]["lines"]) for one in data["cells"]] == [2, 2]
    assert sum(attrs.get("class") == "cell" for _, attrs in page.tags) == 2, "a selector by the charts and the schedule"


def test_paired_differences_are_in_the_report() -> None:
    runs = [
        outcome(policy, 60, delay=d, seed=seed) for seed in range(4) for policy, d in (("fifo", 2.0), ("srsf", 1.0))
    ]
    rows = comparison_rows(runs)
    text = render(runs, rows=rows, aggregates=aggregate(rows), lines=differences(rows, runs, "fifo"))
    assert "Against fifo" in text
    assert "paired t over 4 seeds" in text
    assert "paired" in data_of(Page(text))["charts"]


def test_a_run_without_anything_still_makes_a_page() -> None:
    none = np.zeros(0, np.int64)
    run = outcome("fifo", 5)
    run = replace(
        run,
        finish_s=np.full(5, np.nan),
        series=Series(*(np.zeros(0) for _ in range(4))),
        segments=Segments(none, none, none, np.zeros(0), np.zeros(0)),
        summary={},
    )
    assert "plot-gantt" not in Page(render([run])).ids()
    assert Page(render([])).text


def test_importing_the_room_is_cheap() -> None:
    code = (
        "import sys, cotenant.report.html, cotenant.report.table, cotenant.report.jobs_csv;"
        "print([m for m in ('rich', 'polars', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": re.sub(r"/cotenant/.*", "", sys.modules["cotenant.report"].__file__ or "")},
    )
    assert done.stdout.strip() == "[]"
