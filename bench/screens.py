"""Pictures of every page and of a report, for docs/screens and for whoever changes the look of them.

    python -m bench.screens docs/screens
    python -m bench.screens docs/screens --only report     # and how large the reports of the README are

Starts a service with eight virtual GPUs and three tenants whose jobs wait, share, are preempted, fail and succeed for
half a minute, then photographs every page, some of them dark or as wide as a phone.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.window_kit import Served, browser_arguments, watched
from cotenant.client import Client

PAGES = (  # page, file, what must be there before the picture is taken
    ("overview", "overview", "GPUs held in the last hour"), ("queue", "queue", "running"), ("job", "job", "Timeline"),
    ("submit", "submit", "Deadline:"), ("gantt", "gantt", "bars of"), ("tenants", "tenants", "Accounts"),
    ("ledger", "ledger", "By cause"), ("whatif", "whatif", "Side by side"), ("nodes", "nodes", "GPUs used"),
    ("simulate", "simulate", "Open the report"), ("forecasts", "forecasts", "Forecasts"),
    ("settings", "settings", "Audit"),
)  # fmt: skip

REPORTS = {
    "demo": "gavel-like:jobs=600,load=0.95,seed=1,models=h200 --profile h200 --cluster 4x8:h200 --baseline easy"
    " --policies fifo,backfill,easy,sjf,srsf,las,tiresias-l,sjf-bsbf",
    "sweep": "philly-like:jobs=2000,seed=1,load=0.95 --cluster 16x8 --policies fifo,easy,srsf --seeds 0-4"
    " --loads 0.7,1.0",
}
_RUN = "from cotenant.cli.main import main; main()"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.screens", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=45.0, help="how long the cluster works before the pictures")
    parser.add_argument("--only", choices=("window", "report"), help="not both")
    asked = parser.parse_args()
    from playwright.sync_api import sync_playwright

    asked.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cotenant-screens-") as home, sync_playwright() as p:
        chromium = shutil.which("chromium")
        browser = p.chromium.launch(executable_path=chromium, headless=True, args=browser_arguments())
        if asked.only != "report":
            window(browser, Path(home), asked.folder, asked.seconds)
        if asked.only != "window":
            report(browser, Path(home), asked.folder)
        browser.close()


def window(browser: Any, home: Path, folder: Path, seconds: float) -> None:
    """Every page of a service that has been busy for so long."""
    served = Served(home, "--policy", "srtf", "--gpus", "8")
    served.start()
    try:
        with served.client() as client:
            busy(client, seconds)
        take(browser, served, folder)
    finally:
        served.end()


def report(browser: Any, home: Path, folder: Path) -> None:
    """The README's comparison and sweep: how large their files are; the first in light, dark and narrow."""
    for name, words in REPORTS.items():
        path = home / f"{name}.html"
        subprocess.run([sys.executable, "-c", _RUN, "compare", *words.split(), "--html", str(path)], check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip
        print(f"{name}: {path.stat().st_size / 1000:,.0f} kB")
    for name, width, scheme in (("light", 1400, "light"), ("dark", 1400, "dark"), ("600", 600, "light")):
        page = browser.new_page(
            viewport={"width": width, "height": 900}, color_scheme=scheme, device_scale_factor=0.75
        )
        page.goto((home / "demo.html").as_uri())
        page.locator("html[data-drawn]").wait_for(state="attached")
        page.wait_for_timeout(500)
        page.screenshot(path=folder / f"report-{name}.png", full_page=True)
        page.close()


def busy(client: Client, seconds: float) -> None:
    """Jobs of three tenants, for so long; enough are left waiting in the end."""
    for tenant, guaranteed in (("vision", 4), ("speech", 2), ("text", 2)):
        client.add_tenant(tenant, fields={"guaranteed": guaranteed})
    began, number = time.monotonic(), 0
    kinds = (
        ("vision", "resnet50", 2, 14), ("speech", "wav2vec", 1, 9), ("text", "gpt2", 1, 6), ("text", "bert", 4, 10),
        ("vision", "vit", 1, 20), ("speech", "conformer", 2, 5), ("text", "t5", 1, 3), ("vision", "unet", 4, 8),
    )  # fmt: skip
    while time.monotonic() - began < seconds:
        tenant, model, gpus, length = kinds[number % len(kinds)]
        fails = number % 13 == 5
        run = f"for i in $(seq {length * 4}); do echo step $i of {length * 4}; sleep 0.25; done"
        run += "; echo out of memory >&2; exit 1" if fails else ""
        job = {
            "run": run, "name": f"{model}-{number}", "gpus": gpus, "tenant": tenant, "model": model,
            "expected": f"{length}s",
        }  # fmt: skip
        client.submit([job])
        number += 1
        time.sleep(1.0)
    client.submit([{"run": "sleep 600", "name": "too-long-for-now", "gpus": 8, "tenant": "vision", "expected": "10m"}])
    client.submit([
        {"run": "for i in $(seq 2000); do echo epoch $i; sleep 0.5; done", "name": "pretrain", "gpus": 2,
         "tenant": "text", "model": "gpt2", "expected": "15m"},
        *({"run": "sleep 300", "name": f"sweep-{k}", "tenant": "speech", "expected": "5m"} for k in range(12)),
    ])  # fmt: skip


def take(browser: Any, served: Served, folder: Path) -> None:
    """All pictures."""
    with watched(browser, served) as window:
        window.sign_in(served.token)
        for page, file, there in PAGES:
            visit(window, served, page, there)
            window.page.screenshot(path=folder / f"{file}.png")
        window.check()
    with watched(browser, served, dark=True) as window:
        window.sign_in(served.token)
        for page, there in (("overview", "GPUs held in the last hour"), ("gantt", "bars of"), ("job", "Timeline")):
            visit(window, served, page, there)
            window.page.screenshot(path=folder / f"{page}-dark.png")
    with watched(browser, served) as window:
        window.page.set_viewport_size({"width": 390, "height": 800})
        window.page.goto(served.url)
        window.page.get_by_label("Token").wait_for()
        window.page.screenshot(path=folder / "signin-phone.png")
        window.sign_in_here(served.token)
        for page, there in (("overview", "GPUs held in the last hour"), ("queue", "running")):
            visit(window, served, page, there)
            window.page.screenshot(path=folder / f"{page}-phone.png")


def visit(window: Any, served: Served, page: str, there: str) -> None:
    """Go to a page and wait until it shows what it is about."""
    if page == "job":
        with served.client() as client:
            running = sorted(client.jobs(states=["running"]), key=lambda job: job.name != "pretrain")
        window.show(f"job/{running[0].id}")
        window.page.get_by_role("log").wait_for()
    else:
        window.show(page)
    if page == "submit":
        window.page.get_by_label("Command").fill("python train.py --epochs 10")
        window.page.get_by_label("GPUs").fill("2")
        window.page.get_by_label("Expected length").fill("20m")
        window.page.get_by_label("Deadline").fill("2h")
    if page == "whatif":
        window.page.get_by_label("Other policies").fill("fifo")
        window.page.get_by_label("Other policies").press("Enter")
        window.page.get_by_label("More nodes").fill("1")
        window.page.get_by_role("button", name="Play").click()
    if page == "simulate":
        window.page.get_by_role("button", name="Generate one").click()
        window.page.get_by_label("Generator").fill("philly-like:jobs=300,seed=1,load=0.95")
        window.page.get_by_role("button", name="Simulate").click()
    if page == "settings":
        window.page.get_by_role("button", name="vision").click()
    window.page.get_by_text(there).first.wait_for()
    window.page.wait_for_timeout(700)


if __name__ == "__main__":
    main()
