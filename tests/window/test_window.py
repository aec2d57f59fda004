"""The page in a real browser, against a real service: what people do with it, one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from bench.window_kit import Served, Watched, until, watched

pytestmark = pytest.mark.slow
AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
PAGES = (
    "overview", "queue", "submit", "gantt", "tenants", "ledger", "whatif", "simulate", "forecasts", "nodes", "settings",
)  # fmt: skip
LOG = "job_id,submit_s,num_gpus,duration_s\n" + "".join(f"{k},{k * 30},{1 + k % 4},{300 + k}\n" for k in range(40))


def _reason(window: Watched) -> str:
    return str(window.page.get_by_test_id("reason").inner_text())


def _row(window: Watched, job: str) -> Any:
    return window.page.get_by_role("row").filter(has=window.page.get_by_role("link", name=job, exact=True))


def test_a_job_from_its_form_to_its_last_line(browser: Any, served: Served) -> None:
    """Sign in, submit by form, watch it wait, run and succeed without a reload, and read its log as it comes."""
    with watched(browser, served) as window:
        window.sign_in(served.token)
        page, go = window.page, served.home / "go"
        window.show("submit")
        page.get_by_label("Command").fill("x")
        page.get_by_label("GPUs").fill("99")
        page.get_by_test_id("complaint").get_by_text("99").wait_for()
        page.get_by_label("Command").fill(
            f"echo 'one <img src=x onerror=alert(1)>'; while [ ! -e {go} ]; do sleep 0.1; done; echo '<b>two</b>'"
        )
        page.get_by_label("GPUs").fill("2")
        page.get_by_label("Name").fill("first")
        page.get_by_label("Expected length").fill("20s")
        page.get_by_label("Deadline").fill("1h")
        page.get_by_test_id("outlook").get_by_text("would start at once").wait_for()
        page.get_by_test_id("deadline").get_by_text("expected to be met").wait_for()
        page.get_by_role("button", name="Submit", exact=True).click()
        page.get_by_role("heading", name="running").wait_for()
        first = str(page.get_by_role("heading", level=1).inner_text()).split()[1]
        log = page.get_by_role("log")
        log.get_by_text("one <img src=x onerror=alert(1)>").wait_for()

        with served.client() as client:  # it cannot fit, and says so until capacity frees
            second = client.submit([{"run": "true", "name": "second", "gpus": 1, "expected": "5s"}])[0][0]
        window.show("queue")
        _row(window, second).get_by_text("pending").wait_for()
        window.show(f"job/{second}")
        until(lambda: "needs 1 GPU" in _reason(window), "the reason of a job that does not fit")
        page.get_by_text("would unblock it").wait_for()
        window.show(f"job/{first}")
        log.get_by_text("one").wait_for()
        go.touch()
        log.get_by_text("<b>two</b>").wait_for()
        page.get_by_role("heading", name="succeeded").wait_for()
        assert page.locator("pre.log img, pre.log b").count() == 0, "markup in a log is text"
        page.get_by_label("Search").fill("two")
        page.locator("mark").get_by_text("two").wait_for()
        window.show("queue")
        _row(window, second).get_by_text("succeeded").wait_for()
        window.check()
        assert page.evaluate("Object.keys(localStorage).concat(Object.keys(sessionStorage))") == []
        assert "HttpOnly" not in page.evaluate("document.cookie")
        assert page.evaluate("document.cookie") == ""


def test_cancel_policy_and_what_if(browser: Any, served: Served) -> None:
    with watched(browser, served) as window:
        window.sign_in(served.token)
        page = window.page
        with served.client() as client:
            jobs = client.submit([{"run": "sleep 500", "name": "<i>long</i>"[3:7], "expected": "500s"}] * 3)
        window.show(f"job/{jobs[0][0]}")
        page.get_by_role("heading", name="running").wait_for()
        page.get_by_role("button", name="Priority").click()
        page.get_by_label("Priority", exact=True).fill("3")
        page.get_by_role("button", name="Save").click()
        page.get_by_text("is changed").wait_for()

        window.show("whatif")
        page.get_by_label("Other policies").fill("srtf")
        page.get_by_label("Other policies").press("Enter")
        page.get_by_label("More nodes").fill("1")
        page.get_by_label("A job that nobody submitted").fill("run: x\nexpected: 10s")
        page.get_by_role("button", name="Play").click()
        page.get_by_test_id("sums").get_by_text("srtf with changes").wait_for()
        page.get_by_text("new-1").wait_for()

        window.show("settings")
        page.get_by_label("Change to").fill("srtf")
        page.get_by_role("button", name="Change the policy").click()
        until(lambda: page.get_by_test_id("policy").inner_text() == "srtf", "the policy is changed")
        with served.client() as client:
            assert client.policy() == "srtf"
        for (job,) in jobs:
            window.show(f"job/{job}")
            page.get_by_role("heading", name=f"Job {job}").wait_for()
            page.get_by_role("button", name="Cancel").click()
            page.get_by_role("heading", name="cancelled").wait_for()
        window.check()


def test_a_log_is_uploaded_and_its_report_opened(browser: Any, served: Served) -> None:
    with watched(browser, served) as window:
        window.sign_in(served.token)
        page = window.page
        window.show("simulate")
        page.get_by_label("Log").set_input_files({"name": "mine.csv", "mimeType": "text/csv", "buffer": LOG.encode()})
        page.get_by_label("Cluster").fill("2x4")
        page.get_by_role("button", name="Simulate").click()
        with page.context.expect_page() as opened:
            page.get_by_role("link", name="Open the report").click()
        report = opened.value
        report.get_by_role("heading", level=1).get_by_text("2 policies on 2x4").wait_for()
        assert report.evaluate("origin") == "null", "the report has no origin, and so no cookie"
        report.close()
        window.check()


def test_roles_and_tenants(browser: Any, served: Served) -> None:
    with served.client() as client:
        other = client.submit([{"run": "true", "name": "theirs", "tenant": "b"}])[0][0]
    viewer, user = served.token_for("viewer"), served.token_for("user", "a")
    with watched(browser, served) as window:
        window.sign_in(viewer)
        window.page.get_by_role("heading", name="Overview").wait_for()
        denied = window.page.evaluate(
            "fetch('/v1/jobs', {method: 'POST', headers: {'X-Cotenant-Window': '1',"
            " 'Content-Type': 'application/json'}, body: JSON.stringify({jobs: [{run: 'true'}]})})"
            ".then(answer => answer.status)"
        )
        assert denied == 403
        window.show(f"job/{other}")
        window.page.get_by_role("heading", name=f"Job {other}").wait_for()
        assert window.page.get_by_role("button", name="Submit again").count() == 0
        window.page.get_by_role("button", name="Sign out").click()
        window.page.get_by_label("Token").wait_for()
        window.errors = [one for one in window.errors if "403" not in one]  # the browser tells of the denied write
        window.check()
    with watched(browser, served) as window:
        window.sign_in(user)
        window.show("queue")
        window.page.get_by_text(re.compile(r"\d+ of \d+ jobs$")).wait_for()
        assert window.page.get_by_role("link", name=other, exact=True).count() == 0
        window.show(f"job/{other}")
        window.page.get_by_text("or it is not yours").wait_for()


def test_the_page_survives_a_restart(browser: Any, served: Served) -> None:
    """It reconnects by itself, still signed in; no event is lost and none is told twice."""
    with watched(browser, served) as window:
        window.sign_in(served.token)
        page = window.page
        window.show("queue")
        page.get_by_text("Live").wait_for()
        with served.client() as client:
            before = client.submit([{"run": "true", "name": "before"}])[0][0]
            _row(window, before).get_by_text("succeeded").wait_for()
            page.evaluate("() => { cotenantLive.hear(some => { window.told = (window.told ?? []).concat(some) }) }")
            last = page.evaluate("window.cotenantLive.seq")
        served.stop()
        page.get_by_text("Reconnecting").wait_for()
        served.start()
        with served.client() as client:
            after = client.submit([{"run": "true", "name": "after"}])[0][0]
            page.get_by_text("Live").wait_for()
            _row(window, after).get_by_text("succeeded").wait_for()
            happened = [event.seq for event in client.events(after=last)]

        def told() -> list[int]:  # what came of the first job while the page was told to listen is not meant
            return [event["seq"] for event in page.evaluate("window.told ?? []") if event["seq"] > last]

        until(lambda: len(told()) >= len(happened), "all that happened is told")
        assert told()[: len(happened)] == happened
        assert page.evaluate("window.cotenantLive.repeated") == 0
        assert page.url.startswith(served.url)


@pytest.mark.parametrize("dark", [False, True])
def test_every_page_is_usable_by_everybody(browser: Any, served: Served, dark: bool) -> None:
    """No serious violation by axe, no error in the console, no request to anybody else."""
    with served.client() as client:
        job = client.submit([{"run": "seq 50", "name": "seen", "gpus": 1}])[0][0]
        client.wait([job])
    with watched(browser, served, dark=dark, bypass_csp=True) as window:
        page = window.page
        page.goto(served.url)
        page.get_by_label("Token").wait_for()
        page.add_script_tag(path=str(AXE))
        found = {"sign in": _violations(page)}
        window.sign_in_here(served.token)
        for name in (*PAGES, f"job/{job}"):
            window.show(name)
            page.locator("main h1").wait_for()
            page.locator("main .loading").wait_for(state="detached")
            found[name] = _violations(page)
        assert {name: some for name, some in found.items() if some} == {}
        window.check()


def _violations(page: Any) -> list[str]:
    told = page.evaluate(
        "axe.run(document, {resultTypes: ['violations'], rules: {'page-has-heading-one': {enabled: false}}})"
        ".then(found => found.violations.filter(one => ['serious', 'critical'].includes(one.impact))"
        ".map(one => `${one.id}: ${one.nodes.slice(0, 3).map(node => node.html.slice(0, 160)).join(' | ')}`))"
    )
    return [str(one) for one in told]


def test_a_link_from_the_command_line_signs_in_once(browser: Any, served: Served) -> None:
    with served.client() as client:
        link = f"{served.url}/#code={client.sign_in_code()}"
    with watched(browser, served) as window:
        window.page.goto(link)
        window.page.get_by_role("heading", name="Overview").wait_for()
        assert "code" not in window.page.url
    with watched(browser, served) as window:
        window.page.goto(link)
        window.page.get_by_text("was used already").wait_for()
