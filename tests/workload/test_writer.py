from __future__ import annotations

import io
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.core.deadlines import steps_of
from cotenant.core.errors import InputError
from cotenant.core.spec import Spec
from cotenant.core.workload import Codes, Workload, make_workload
from cotenant.workload.elastic import LIMITS
from cotenant.workload.generators import generate
from cotenant.workload.readers import read
from cotenant.workload.writer import write_csv


def texts(codes: Codes) -> list[str]:
    return [codes.names[code] for code in codes.code]


def assert_same(a: Workload, b: Workload) -> None:
    assert a.job_id.tolist() == b.job_id.tolist()
    for column in ("submit_s", "gpus", "duration_s", "status", "cpus", "mem_gib", "deadline_s", "priority", "nodes"):
        np.testing.assert_array_equal(getattr(a, column), getattr(b, column), column)
    for column in ("tenant", "user", "model", "gpu_type"):
        assert texts(getattr(a, column)) == texts(getattr(b, column))
    assert a.attempts == b.attempts
    for column in LIMITS:
        none = np.zeros(len(a))
        np.testing.assert_array_equal(a.extra.get(column, none), b.extra.get(column, none), column)


name = st.text(st.characters(codec="utf-8", exclude_characters="\r\x00", exclude_categories=["Cs"]), max_size=6)
amount = st.floats(0, 1e9, allow_nan=False)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    rows = draw(st.integers(1, 8))

    def column(items: st.SearchStrategy[float]) -> np.ndarray:
        return np.array(draw(st.lists(items, min_size=rows, max_size=rows)))

    def codes() -> Codes:
        names = tuple(draw(st.lists(name, min_size=1, max_size=3, unique=True)))
        return Codes(column(st.integers(0, len(names) - 1)), names)

    ids = draw(st.lists(name.filter(bool), min_size=rows, max_size=rows, unique=True))
    duration_s = column(amount)
    parts = draw(st.lists(st.floats(0, 0.3), min_size=1, max_size=3))
    maybe = st.one_of(amount, st.just(float("nan")))
    gpus = column(st.integers(1, 64))
    limits = {"min_gpus": gpus * column(st.integers(0, 1)), "max_gpus": gpus * column(st.integers(0, 3))}
    submit_s = np.sort(column(amount))
    return make_workload(
        "x",
        submit_s,
        gpus,
        duration_s,
        job_id=np.array(ids, dtype=object),
        tenant=codes(),
        user=codes(),
        model=codes(),
        status=column(st.integers(0, 3)),
        cpus=column(maybe).astype(float),
        mem_gib=column(maybe).astype(float),
        deadline_s=submit_s + column(maybe).astype(float),
        priority=column(st.integers(-5, 5)),
        gpu_type=codes(),
        nodes=column(st.integers(0, 1)),
        attempts={0: tuple(float(duration_s[0] * part) for part in parts)} if draw(st.booleans()) else {},
        extra={name: limits[name] for name in draw(st.sets(st.sampled_from(LIMITS)))},
    )


@settings(max_examples=60, deadline=None)
@given(workloads(), st.sampled_from(["t.csv", "t.csv.gz", "t.parquet"]))
def test_what_is_written_reads_back(work: Workload, file: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_csv(work, Path(folder) / file)
        assert_same(work, read(Path(folder) / file))


def test_same_bytes_and_only_the_columns_that_carry_something(tmp_path: Path) -> None:
    work = make_workload("x", np.array([0.0, 1.5]), np.array([1, 2]), np.array([10.0, 20.0]))
    handle = io.StringIO()
    write_csv(work, handle)
    assert handle.getvalue() == "job_id,submit_s,num_gpus,duration_s\n0,0.0,1,10\n1,1.5,2,20\n"
    for suffix in ("csv", "csv.gz", "parquet"):
        write_csv(work, tmp_path / f"a.{suffix}")
        write_csv(work, tmp_path / f"b.{suffix}")
        assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()


def test_a_generated_log_survives_the_file(tmp_path: Path) -> None:
    work = generate(Spec.parse("philly-like:jobs=3000,gpus=128"))
    write_csv(work, tmp_path / "t.csv.gz")
    back = read(tmp_path / "t.csv.gz")
    assert_same(work, back)
    assert back.attempts


step = st.tuples(st.floats(0.001, 1e7), st.floats(0.001, 100))
soft_job = st.lists(step, max_size=4, unique_by=lambda pair: pair[0]).map(
    lambda pairs: (tuple(sorted(time for time, _ in pairs)), tuple(sorted((value for _, value in pairs), reverse=True)))
)


@settings(max_examples=60, deadline=None)
@given(st.lists(soft_job, min_size=1, max_size=6), st.sampled_from(["t.csv", "t.parquet"]))
def test_soft_deadlines_read_back(jobs: list[tuple[tuple[float, ...], tuple[float, ...]]], file: str) -> None:
    times, values = np.empty(len(jobs), object), np.empty(len(jobs), object)
    for row, (after_s, worth) in enumerate(jobs):
        times[row], values[row] = after_s, worth
    submit_s = np.arange(len(jobs)) * 7.0
    first_s = np.array(
        [at + after_s[0] if after_s else np.nan for at, (after_s, _) in zip(submit_s, jobs, strict=True)]
    )
    ones = np.ones(len(jobs))
    extra = {"expect_time_s": times, "expect_value": values}
    work = make_workload("x", submit_s, ones, ones, deadline_s=first_s, extra=extra)
    with tempfile.TemporaryDirectory() as folder:
        write_csv(work, Path(folder) / file)
        back = read(Path(folder) / file)
    np.testing.assert_array_equal(back.deadline_s, work.deadline_s)
    here, there = steps_of(work), steps_of(back)
    for mine, again in ((here.time_s, there.time_s), (here.value, there.value)):
        np.testing.assert_array_equal(mine[:, : again.shape[1]], again[:, : mine.shape[1]])


def test_soft_and_strict_deadlines_in_one_file(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text(
        "job_id,submit_s,num_gpus,duration_s,deadline_s,deadlines\n"
        "soft,100,1,5,,3600:1.0;7200:0.5\nstrict,200,1,5,900,\nbest,300,1,5,,\n"
    )
    work = read(file)
    steps = steps_of(work)
    np.testing.assert_array_equal(work.deadline_s, [3700, 900, np.nan])
    np.testing.assert_array_equal(steps.time_s, [[3700, 7300], [900, np.nan], [np.nan, np.nan]])
    np.testing.assert_array_equal(steps.value, [[1, 0.5], [10, 0], [0, 0]])
    np.testing.assert_array_equal(steps.earned(np.array([7300.0, 900.0, 1.0])), [0.5, 10, 0])
    handle = io.StringIO()
    write_csv(work, handle)
    assert handle.getvalue() == (
        "job_id,submit_s,num_gpus,duration_s,deadline_s,deadlines\n"
        "soft,100,1,5,,3600:1;7200:0.5\nstrict,200,1,5,900,\nbest,300,1,5,,\n"
    )


def test_unwritable_path(tmp_path: Path) -> None:
    work = generate(Spec.parse("gavel-like:jobs=3,gpus=8"))
    with pytest.raises(InputError, match="cannot be written"):
        write_csv(work, tmp_path / "no" / "t.csv")


def test_weights_and_who_may_not_be_moved_read_back(tmp_path: Path) -> None:
    extra = {"weight": np.array([1.0, 2.5]), "movable": np.array([False, True]), "gradient_mb": np.array([400.0, 9.5])}
    work = make_workload("two", np.zeros(2), np.ones(2, np.int64), np.full(2, 60.0), extra=extra)
    write_csv(work, tmp_path / "two.csv")
    found = read(tmp_path / "two.csv").extra
    assert {name: column.tolist() for name, column in found.items()} == {k: v.tolist() for k, v in extra.items()}


@pytest.mark.parametrize(("column", "value"), [("weight", "0"), ("movable", "2"), ("step_s", "0")])
def test_what_weights_and_moves_cannot_be(tmp_path: Path, column: str, value: str) -> None:
    (tmp_path / "bad.csv").write_text(f"job_id,submit_s,num_gpus,duration_s,{column}\na,0,1,60,{value}\n")
    with pytest.raises(InputError, match=f"line 2: {column} is {value}: write"):
        read(tmp_path / "bad.csv")
