"""The report in a real browser: it draws offline, in light, dark and on paper, and its figures can be taken away."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from bench.window_kit import browser_arguments
from synthetic_outcomes import outcome

from cotenant.report.html import write_html
from cotenant.report.page import built

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    missing = (
        "no chromium: make components" if chromium is None else "" if built() else "charts are not built: make web"
    )
    if missing and os.environ.get("CI"):
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as p:
        found = p.chromium.launch(executable_path=chromium, headless=True, args=browser_arguments())
        yield found
        found.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    runs = [
        outcome(policy, 150, delay=delay * load, load=load)
        for load in (0.7, 1.0)
        for policy, delay in (("fifo", 2.0), ("<b>srsf</b>", 0.4))
    ]
    write_html(runs, path, title="browser test", command="cotenant compare ...")
    return path


@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 1400), ("light", 600)])
def test_charts_are_drawn_without_any_request(browser: Any, report: Path, scheme: str, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report.as_uri())
    page.locator("html[data-drawn]").wait_for(state="attached")
    assert page.locator("figure svg[role=img]").count() >= 8
    assert page.locator("figure canvas").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert asked == [report.as_uri()]
    assert said == []
    page.close()


def test_what_is_seen_follows_the_reader(browser: Any, report: Path, tmp_path: Path) -> None:
    page = browser.new_page()
    page.goto(report.as_uri())
    curves = page.locator("#jct-cdf svg path[stroke-width='2']")
    curves.first.wait_for()
    before, other = curves.count(), curves.nth(1).get_attribute("d")
    page.get_by_role("button", name="fifo").first.click()
    assert curves.count() == before - 1
    assert curves.first.get_attribute("d") != other, "what is left is drawn on its own scale"
    page.get_by_label("Runs").first.select_option("load 1.0")
    assert page.get_by_label("Runs").last.input_value() == "1"
    with page.expect_download() as taken:
        page.get_by_role("button", name="jct-cdf as SVG").click()
    taken.value.save_as(tmp_path / "figure.svg")
    text = (tmp_path / "figure.svg").read_text()
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert "var(--" not in text
    with page.expect_download() as taken:
        page.get_by_role("button", name="jct-cdf as CSV").click()
    taken.value.save_as(tmp_path / "figure.csv")
    assert (tmp_path / "figure.csv").read_text().startswith("series,x,y,low,high\nfifo,")
    with page.expect_download() as taken:
        page.get_by_role("button", name="gantt as SVG").click()
    taken.value.save_as(tmp_path / "gantt.svg")
    assert "<path" in (tmp_path / "gantt.svg").read_text()
    page.close()


def test_paper_is_light(browser: Any, report: Path) -> None:
    page = browser.new_page(color_scheme="dark")
    page.goto(report.as_uri())
    page.locator("html[data-drawn]").wait_for(state="attached")
    page.evaluate("addEventListener('beforeprint', () => { window.paper = getComputedStyle(document.body).color })")
    assert page.pdf().startswith(b"%PDF")
    assert page.evaluate("window.paper") == "rgb(26, 34, 48)"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(230, 234, 240)"
    page.close()
