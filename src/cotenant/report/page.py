"""One HTML file that opens anywhere, offline: words and tables from here, style and charts from the window's sources.

The script and the style sheet are built from `web/src/report` by `make web` and ship with packages. A content security
policy in the page forbids every request and every script but that one, so the file depends on nothing outside it
and text of users can do nothing. The bytes depend on the arguments and the build only: no time of day, no random ids,
nothing about the machine that ran the simulation.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cotenant.report.charts import Chart

DIST = Path(__file__).parent / "web_dist"
NOT_BUILT = "charts are left out, for they are not built here: run `make web` once (it needs Node, or fetches it)"
DATA_TYPE = "application/gzip"


def built() -> bool:
    """Whether reports can have charts."""
    return (DIST / "report.js").is_file()


def esc(value: object) -> str:
    """Text of users inside markup."""
    return html.escape(str(value), quote=True)


def place_of(chart: Chart, before: str = "") -> str:
    """Where the script of the page draws a chart, with its heading and explanation."""
    wide = ' class="wide"' if chart.wide else ""
    return (
        f'<figure{wide} id="{chart.slug}"><figcaption><h3>{esc(chart.title)}</h3><p>{esc(chart.note)}</p>'
        f'</figcaption>{before}<div class="plot" id="plot-{chart.slug}" data-slug="{chart.slug}" '
        f'data-label="{esc(chart.label)}"></div></figure>'
    )


def page(
    title: str, body: Sequence[str], charts: Sequence[Chart], version: str = "",
    cells: Sequence[Mapping[str, Any]] = (), sizes: Sequence[tuple[str, str]] = (),
) -> str:  # fmt: skip
    """A whole file around a body whose charts have been given their places (`place_of`).

    `charts` are the same in the whole report; `cells` are sets of charts and a schedule of which one is seen at a time.
    """
    data = {"charts": figures(charts), "cells": list(cells), "sizes": [list(size) for size in sizes]}
    footer = (
        f"<footer>Made by Cotenant {esc(version)}. "
        "This file needs no network: data, charts and style are inside it.</footer>"
    )
    script = (DIST / "report.js").read_text(encoding="utf-8") if built() else ""
    style = (DIST / "report.css").read_text(encoding="utf-8") if built() else ""
    missing = "" if built() else f'<p class="note"><strong>{esc(NOT_BUILT)}</strong></p>'
    # The script must not end its own element; in a string `<\/` is the same as `</`.
    script = script.replace("</script", "<\\/script").strip()
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{esc(title)}</title>",
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            *(part for part in (missing, *body, footer) if part),
            f'<script type="{DATA_TYPE}" id="report-data">{_packed(data)}</script>',
            f"<script>{script}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def figures(charts: Sequence[Chart]) -> dict[str, Any]:
    """Charts by name, as the script reads them."""
    return {chart.slug: chart.figure for chart in charts}


def _packed(data: Mapping[str, Any]) -> str:
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def _policy(script: str) -> str:
    """No request; no script but this one. Styles of elements (colours of swatches) are allowed."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; base-uri 'none';"
        " form-action 'none'"
    )
