from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cotenant.core.errors import InputError
from cotenant.core.spec import Spec
from cotenant.core.workload import Codes, make_workload
from cotenant.workload.generators import generate
from cotenant.workload.model_sets import GAVEL_TYPES, MODEL_SETS, assign_models
from cotenant.workload.readers import read

THROUGHPUTS = "gavel/simulation_throughputs.json.gz"


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("cont_single_lam900_s0_n2000", "jobs=2000,lam=900,multi=false"),
        ("cont_multi_lam1800_s0_n2000", "jobs=2000,jobs_per_hour=2"),
        ("static_single_s0_n100", "jobs=100,load=inf,multi=no"),
        ("static_multi_s2_n700", "jobs=700,load=inf,seed=2"),
    ],
)
def test_the_authors_traces_come_out_identically(data: Path, name: str, spec: str) -> None:
    theirs = read(data / f"gavel/{name}.trace.gz", profile=data / THROUGHPUTS)
    ours = generate(Spec.parse(f"gavel-like:{spec}"), profile=data / THROUGHPUTS)
    assert [ours.model.names[c] for c in ours.model.code] == [theirs.model.names[c] for c in theirs.model.code]
    np.testing.assert_array_equal(ours.gpus, theirs.gpus)
    np.testing.assert_array_equal(ours.extra["total_steps"], theirs.extra["total_steps"])
    np.testing.assert_array_equal(ours.duration_s, theirs.duration_s)
    np.testing.assert_allclose(ours.submit_s, theirs.submit_s, rtol=0, atol=1e-6)


def test_gavel_parameters() -> None:
    plain = generate(Spec.parse("gavel-like:jobs=4000,jobs_per_hour=5.6,multi=false"))
    assert plain.gpus.max() == 1
    assert 3600 * len(plain) / plain.span_s == pytest.approx(5.6, rel=0.05)
    assert np.isnan(plain.deadline_s).all()
    assert set(plain.extra["weight"].tolist()) == {1.0}
    rich = generate(Spec.parse("gavel-like:jobs=4000,lam=60,weights=true,slos=true"))
    assert np.mean(rich.extra["weight"] == 5) == pytest.approx(0.2, abs=0.02)
    slack = (rich.deadline_s - rich.submit_s) / rich.duration_s
    assert [np.mean(np.isclose(slack, s)) for s in (1.2, 2, 10)] == pytest.approx((0.33, 0.34, 0.33), abs=0.03)


def test_models_of_generators() -> None:
    for text in ("gavel-like:jobs=500,models=h200", "philly-like:jobs=500,models=h200"):
        assert set(generate(Spec.parse(text), 64).model.names) == set(MODEL_SETS["h200"].at(1))
    gangs = generate(Spec.parse("philly-like:jobs=5000,models=gavel"), 64)
    used = {gangs.model.names[c] for c in gangs.model.code[gangs.gpus > 1]}
    assert used == set(GAVEL_TYPES[:19])
    assert {gangs.model.names[c] for c in gangs.model.code} == set(GAVEL_TYPES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gavel-like:lam=5,jobs_per_hour=5", "give either lam"),
        ("gavel-like:lam=-1", "give either lam"),
        ("gavel-like:lam=9,load=0.5", "replace load"),
        ("gavel-like:models=h20", "unknown set of models 'h20': did you mean 'h200'"),
        ("philly-like:models=profile", "are those of a Gavel throughput file"),
    ],
)
def test_bad_parameters(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        generate(Spec.parse(text), 64)


def test_slo_of_a_trace_is_a_deadline(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps({"v100": {"('LM', 1)": {"null": 2.0}}}))
    line = "LM\tpython x\tdir\t--steps\t1\t100\t1\t5\t{}\t7.0\n"
    (tmp_path / "a.trace").write_text(line.format(1.2) + line.format(-1))
    work = read(tmp_path / "a.trace", profile=tmp_path / "t.json")
    np.testing.assert_allclose(work.deadline_s, [7 + 1.2 * 50, np.nan])


def bare(jobs: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(jobs, dtype=float), np.where(np.arange(jobs) % 4 == 0, 3, 1)


def test_models_by_hash_of_the_job_id() -> None:
    submit, gpus = bare(4000)
    work = make_workload("x", submit, gpus, np.ones(4000))
    given = assign_models(work, "gavel")
    names = np.array(given.model.names, dtype=object)[given.model.code]
    assert set(names[gpus == 1]) == set(GAVEL_TYPES)
    assert set(names[gpus == 3]) == set(GAVEL_TYPES[:19])
    counts = np.unique(names[gpus == 1].astype(str), return_counts=True)[1]
    assert counts.min() > 0.6 * counts.mean()
    assert "4000 jobs have no model" in given.notes[-1]
    # The same job gets the same model in any window of the log, another one under another seed.
    part = assign_models(work.take(np.arange(100, 200)), "gavel:seed=0")
    assert [part.model.names[c] for c in part.model.code] == names[100:200].tolist()
    other = assign_models(work, "gavel:seed=1")
    assert np.mean(np.array(other.model.names, dtype=object)[other.model.code] == names) < 0.1
    assert names[:3].tolist() == EXPECTED


# A change of these would silently change every result on logs without models.
EXPECTED = ["LM (batch size 80)", "ResNet-18 (batch size 16)", "Recommendation (batch size 512)"]


def test_models_that_are_there_stay() -> None:
    work = make_workload(
        "x", np.zeros(3), np.ones(3, np.int64), np.ones(3), model=Codes(np.array([0, 1, 1]), ("", "mine"))
    )
    given = assign_models(work, "h200:seed=3")
    assert given.model.names[given.model.code[1]] == "mine"
    assert given.model.names[given.model.code[0]] in MODEL_SETS["h200"].at(1)
    assert "changes nothing" in assign_models(given, "h200").notes[-1]


@pytest.mark.data
def test_models_of_the_profile_are_those_of_the_set(data: Path) -> None:
    submit, gpus = bare(200)
    work = make_workload("x", submit, gpus, np.ones(200))
    file, named = assign_models(work, "profile", data / THROUGHPUTS), assign_models(work, "gavel")
    assert [file.model.names[c] for c in file.model.code] == [named.model.names[c] for c in named.model.code]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gavle", "unknown set of models 'gavle': did you mean 'gavel'"),
        ("profile", "give it with --profile"),
        ("gavel:sed=1", "unknown parameter of models 'gavel' 'sed'"),
    ],
)
def test_bad_models(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        assign_models(make_workload("x", np.zeros(1), np.ones(1, np.int64), np.ones(1)), text)
