from __future__ import annotations

import io

import pytest
from rich.console import Console
from synthetic_outcomes import outcome

from cotenant.report.stats import aggregate
from cotenant.report.table import (
    best_of,
    columns_of,
    comparison_rows,
    print_aggregates,
    print_comparison,
    print_summary,
)


def piped() -> Console:
    return Console(file=io.StringIO())


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture(scope="module")
def rows() -> list[dict[str, object]]:
    return comparison_rows([outcome("fifo", delay=4.0), outcome("srsf", delay=0.5)])


def test_rows_carry_the_summary_and_the_ratio_to_the_best(rows: list[dict[str, object]]) -> None:
    fifo, srsf = rows
    assert srsf["jct_ratio"] == 1.0
    assert fifo["jct_ratio"] == pytest.approx(fifo["avg_jct_s"] / srsf["avg_jct_s"])  # type: ignore[operator]
    assert (fifo["lost_gpu_h"], fifo["unfinished"], fifo["policy"]) == (4.0, 0, "fifo")


def test_piped_output_is_plain_complete_and_marks_the_best(rows: list[dict[str, object]]) -> None:
    console = piped()
    print_comparison(rows, console)
    text = text_of(console)
    assert "\x1b" not in text
    assert "…" not in text
    for heading in (
        "policy",
        "avg JCT",
        "p50",
        "p95",
        "p99",
        "avg queue",
        "makespan",
        "GPU util",
        "preempt.",
    ):
        assert heading in text
    srsf = next(line for line in text.splitlines() if "srsf" in line)
    assert "*" in srsf
    assert "1.00x" in srsf
    assert "0.5" in srsf
    assert "placement" not in text
    assert console.width == 80


def test_terminal_output_is_coloured_and_fits(rows: list[dict[str, object]]) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=70, color_system="standard")
    print_comparison(rows, console)
    assert "\x1b[1;32m" in text_of(console)
    plain = Console(file=io.StringIO(), force_terminal=True, width=70, color_system=None)
    print_comparison(rows, plain)
    assert max(map(len, text_of(plain).splitlines())) <= 70
    assert "…" not in text_of(plain)
    assert "fairness" in text_of(plain)


def test_what_tells_rows_apart_becomes_a_column() -> None:
    console = piped()
    print_comparison(comparison_rows([outcome(placement="count"), outcome(placement="spread")]), console)
    assert "placement" in text_of(console)
    assert "spread" in text_of(console)


def test_unfinished_jobs_are_shown_only_when_there_are_some() -> None:
    keys = [column.key for column in columns_of(comparison_rows([outcome(), outcome("x", unfinished=3)]))]
    assert "unfinished" in keys
    assert "unfinished" not in [column.key for column in columns_of(comparison_rows([outcome()]))]


def test_markup_in_names_is_text() -> None:
    console = piped()
    print_comparison(comparison_rows([outcome("[red]a[/red]"), outcome("b")]), console)
    print_summary({"policy": "[bold]p", "cluster": "[x]"}, console)
    assert "[red]a[/red]" in text_of(console)
    assert "[bold]p" in text_of(console)


def test_missing_values_do_not_break_the_table() -> None:
    console = piped()
    print_comparison(comparison_rows([outcome("a", avg_jct_s=None), outcome("b", avg_jct_s=float("nan"))]), console)
    print_comparison([], console)
    assert "no runs to compare" in text_of(console)


def test_best_has_a_direction_and_ties() -> None:
    assert best_of([1.0, None, 1.0, 2.0], -1) == [True, False, True, False]
    assert best_of([1.0, 2.0], 1) == [False, True]
    assert best_of([1.0, 2.0], 0) == [False, False]
    assert best_of([1.0, 1.0], -1) == [False, False]
    assert best_of([1.0], -1) == [False]


def test_summary_of_one_run() -> None:
    console = piped()
    print_summary({**outcome("tiresias-l:queues=2").summary, "avg_jct_s": 8840.4}, console)
    text = text_of(console)
    assert "tiresias-l:queues=2" in text
    assert "2.46 h" in text
    assert "8,840.4 s" in text
    assert "200 of 200 jobs finished" in text


def test_aggregates_show_means_with_intervals() -> None:
    runs = [
        outcome(policy, seed=seed, load=load, avg_jct_s=mean + seed)
        for load in (0.7, 1.0)
        for seed in (0, 1, 2)
        for policy, mean in (("fifo", 50.0), ("srsf", 40.0))
    ]
    console = piped()
    print_aggregates(aggregate(comparison_rows(runs)), console)
    text = text_of(console)
    assert "51.0 ± 2.5" in text  # 4.302653 / sqrt(3) = 2.484
    assert text.count("*41.0 ± 2.5") == 2
    assert "95 % confidence interval over 3 seeds" in text
    ascii_only = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    print_aggregates(aggregate(comparison_rows(runs)), ascii_only)


def test_one_seed_has_no_interval() -> None:
    console = piped()
    print_aggregates(aggregate(comparison_rows([outcome("fifo"), outcome("srsf", delay=0.5)])), console)
    assert "±" not in text_of(console)
    assert "confidence" not in text_of(console)
