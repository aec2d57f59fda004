"""Numbers for Prometheus: the service's own, as text, and those of the door."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class HttpMetrics:
    """Requests by route and their latency. Labels come from our routes only, so a stranger cannot add any."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._count = Counter(
            "cotenant_http_requests", "Requests.", ("method", "route", "code"), registry=self.registry
        )
        self._latency = Histogram(
            "cotenant_http_seconds", "Time to answer.", ("route",), registry=self.registry, buckets=_BUCKETS
        )

    def note(self, scope: Mapping[str, Any], status: int, seconds: float) -> None:
        """One request is over."""
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._count.labels(method, route, str(status)).inc()
        if "stream" not in route:
            self._latency.labels(route).observe(seconds)

    def text(self, numbers: Mapping[str, float]) -> str:
        """Everything, in the text format."""
        return exposition(numbers) + generate_latest(self.registry).decode()


def exposition(numbers: Mapping[str, float]) -> str:
    """`{'name{label="x"}': 1.0}` as lines, the samples of a metric together under its type."""
    histograms = {name.split("{")[0].removesuffix("_bucket") for name in numbers if "_bucket{" in name}
    families: dict[str, list[str]] = {}
    for name, value in numbers.items():
        base = name.split("{")[0]
        for suffix in ("_bucket", "_sum", "_count"):
            if base.removesuffix(suffix) in histograms:
                base = base.removesuffix(suffix)
        families.setdefault(base, []).append(f"{name} {_number(value)}")
    lines: list[str] = []
    for base, samples in sorted(families.items()):
        kind = "histogram" if base in histograms else "counter" if base.endswith("_total") else "gauge"
        lines += [f"# TYPE {base} {kind}", *samples]
    return "".join(line + "\n" for line in lines)


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))
