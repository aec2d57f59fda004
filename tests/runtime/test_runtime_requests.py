"""What an inference server inside a job counts of its requests."""

from __future__ import annotations

import importlib.util
import urllib.error
import urllib.request

import pytest
from runtime_service import ROOT

from cotenant import runtime


def test_requests_are_counted_against_the_target_of_the_job_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of four within 100 ms; the slowest is the 99th percentile of so few."""
    monkeypatch.setenv("COTENANT_TARGET_MS", "100")
    requests = runtime.Requests()
    for took_s in (0.01, 0.02, 0.1, 0.3):
        requests.took(took_s)
    found = requests.metrics()
    assert (found["requests"], found["within_target"]) == (4, 0.75)
    assert found["p99_ms"] == pytest.approx(300)


def test_without_a_target_all_are_within_it_and_nothing_is_nothing() -> None:
    requests = runtime.Requests()
    assert requests.metrics() == {"p99_ms": 0.0, "requests_per_s": 0.0, "requests": 0.0, "within_target": 1.0}
    requests.took(9.0)
    assert requests.metrics()["within_target"] == 1.0
    late = runtime.Requests(target_ms=1000)
    late.took(9.0)
    assert late.metrics()["within_target"] == 0.0


def test_the_example_computes_counts_and_stops_listening() -> None:
    """One request at a time, whatever the work; afterwards nobody answers."""
    spec = importlib.util.spec_from_file_location("serve_http", ROOT / "examples" / "serve_http.py")
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    requests = runtime.Requests()
    with example.serve(0, example.multiplying(1), requests) as port:
        for _ in range(3):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as answer:
                assert answer.read() == b"answered\n"
    assert requests.metrics()["requests"] == 3
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30)
