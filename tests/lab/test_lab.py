"""`import cotenant`: a few names, documented by examples that run."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys

import polars as pl
import pytest

import cotenant as ct
from cotenant.core.view import View
from cotenant.core.workload import Floats

SMALL = "philly-like:jobs=60,seed=1"


class Largest(ct.PriorityPolicy):
    """Largest first."""

    def priority(self, view: View) -> Floats:
        return -view.gpus.astype(float)


class Broken(ct.PriorityPolicy):
    """Raises."""

    def priority(self, view: View) -> Floats:
        raise KeyError("no such thing")


@pytest.mark.parametrize("name", ["trace", "results", "running"])
def test_examples_in_docstrings(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(f"cotenant.lab.{name}"))
    assert tried > 2
    assert failed == 0


def test_import_is_light_and_names_are_few() -> None:
    code = "import sys, cotenant; print(*dir(cotenant)); print(sorted({'numpy', 'polars', 'typer'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, heavy = done.stdout.splitlines()
    assert heavy == "[]"
    assert names.split() == sorted(ct.__all__)
    assert len(names.split()) <= 16
    for name in names.split():
        assert getattr(ct, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        ct.nothing  # noqa: B018


def test_frames_come_and_go() -> None:
    trace = ct.Trace.generate(SMALL, cluster="2x8")
    again = ct.Trace.from_polars(trace.to_polars())
    assert again.to_polars().equals(trace.to_polars())
    pandas = pytest.importorskip("pandas")
    assert isinstance(trace.to_pandas(), pandas.DataFrame)
    assert ct.Trace.from_pandas(trace.to_pandas()).to_polars().equals(trace.to_polars())


def test_a_frame_that_lacks_a_column_is_one_clear_error() -> None:
    with pytest.raises(ct.InputError, match="'num_gpus' is missing"):
        ct.Trace.from_polars(pl.DataFrame({"job_id": ["a"], "submit_s": [0], "duration_s": [1.0]}))


def test_policies_are_names_classes_and_objects() -> None:
    found = ct.compare(SMALL, "2x8", ["fifo", Largest, Largest()], workers=2, progress=False)
    assert found.policies == ["fifo", "Largest", "Largest-2"]
    assert found["Largest"].metrics["avg_jct_s"] == found["Largest-2"].metrics["avg_jct_s"]
    assert found["Largest"].metrics["avg_jct_s"] != found["fifo"].metrics["avg_jct_s"]
    with pytest.raises(ct.InputError, match=r"test_lab.py line \d+: KeyError"):
        ct.simulate(SMALL, "2x8", Broken)
    with pytest.raises(ct.InputError, match="is no policy"):
        ct.simulate(SMALL, "2x8", int)  # type: ignore[arg-type]


def test_the_same_run_as_the_command_line() -> None:
    from cotenant.sim.driver import Experiment, simulate

    trace = ct.Trace.generate(SMALL, cluster="2x8")
    ours = ct.simulate(trace, "2x8", "srsf", costs="none")
    theirs = simulate(Experiment(trace.work, ct.Cluster.parse("2x8"), "srsf", costs="none"))
    assert ours.jobs["finish_s"].to_list() == theirs.finish_s.tolist()


def test_results_are_frames_and_plots() -> None:
    found = ct.compare(SMALL, "2x8", ["fifo", "srsf"], seeds=range(3), workers=1, progress=False)
    assert found.summary.shape[0] == found.jobs["seed"].n_unique() * 2 == 6
    assert {"policy", "time_s", "gpus_busy"} <= set(found.timeline.columns)
    assert {"policy", "job_id", "node", "start_s"} <= set(found.segments.columns)
    assert found.means["avg_jct_s_ci"].null_count() == 0
    assert set(found.differences["method"]) == {"paired t over 3 seeds"}
    for figure in (found.plot.jct(), found.plot.means(), found.plot.gantt("srsf"), found["fifo"].plot.utilisation()):
        assert len(figure.data) > 0
        assert len(figure.data[0]["x" if "x" in figure.data[0] else "start"]) > 0
    assert "<table>" in found._repr_html_()
    assert "&lt;b&gt;" in ct.Trace.generate(SMALL, cluster="2x8").renamed("<b>")._repr_html_()


def test_options_are_checked() -> None:
    with pytest.raises(ct.InputError, match="did you mean 'placement'"):
        ct.simulate(SMALL, "2x8", "fifo", placment="spread")  # type: ignore[call-arg]
    with pytest.raises(ct.InputError, match="give a list"):
        ct.compare(SMALL, "2x8", "fifo,srsf")


@pytest.mark.parametrize(
    ("where", "jobs"),
    [
        ("gpus > 1", 2), ("tenant == 'a' or not gpus < 4", 2), ("tenant in ['a', 'b']", 3), ("tenant not in ('a',)", 2),
        ("gpus * duration_s / 60 >= 2", 2), ("1 <= gpus <= 2", 2), ("status == 'passed'", 1),
    ],
)  # fmt: skip
def test_where(where: str, jobs: int) -> None:
    columns = {
        "job_id": ["x", "y", "z"], "submit_s": [0, 10, 20], "num_gpus": [1, 2, 4], "duration_s": [60.0, 60.0, 60.0],
        "tenant": ["a", "b", "b"], "status": ["passed", "failed", ""],
    }  # fmt: skip
    assert len(ct.Trace.from_polars(pl.DataFrame(columns)).filter(where)) == jobs


@pytest.mark.parametrize(
    "where", ["gpus", "gpus >", "__import__('os')", "gpus.real > 1", "[1] == [1]", "1 == 1", "gpus > 'a'"]
)
def test_where_is_no_python(where: str) -> None:
    with pytest.raises(ct.InputError, match="--where"):
        ct.Trace.generate(SMALL, cluster="2x8").filter(where)
