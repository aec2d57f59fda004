from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError
from cotenant.core.workload import Codes, Workload, make_workload
from cotenant.sim.driver import Experiment, simulate
from cotenant.workload.profiles import Profile, load_profile


def jobs(*kinds: tuple[str, int]) -> Workload:
    """One job of 100 s for each (model, GPUs)."""
    names = tuple(dict.fromkeys(model for model, _ in kinds))
    code = np.array([names.index(model) for model, _ in kinds])
    gpus = np.array([gpus for _, gpus in kinds])
    return make_workload("x", np.zeros(len(kinds)), gpus, np.full(len(kinds), 100.0), model=Codes(code, names))


ONE = jobs(("VGG19", 1), ("resnet50", 1), ("mine", 1))


def test_kinds_are_distinct_models_and_sizes() -> None:
    profile = load_profile("none", jobs(("b", 4), ("a", 1), ("b", 2), ("b", 4)), ["v100"])
    assert profile.kinds == (("b", 2), ("b", 4), ("a", 1))
    assert profile.row.tolist() == [1, 2, 0, 1]
    assert profile.speed.shape == (3, 1, 2)
    assert np.isnan(profile.steps_per_s).all()
    assert profile.pairs is None


def test_profiles(tmp_path: Path) -> None:
    types = ["v100", "k80"]
    assert (load_profile("none", ONE, types).speed == 1).all()
    spread = load_profile("tiresias", ONE, types)
    np.testing.assert_array_equal(spread.speed[:, 0, 1], [0.71, 1.08, 1.0])
    np.testing.assert_array_equal(spread.speed[:, :, 0], np.ones((3, 2)))
    table = tmp_path / "p.csv"
    table.write_text("model,gpu_type,consolidated,spread\n*,k80,0.2,0.1\nvgg19,k80,0.3,\nresnet50,*,1,0.9\n")
    speed = load_profile(table, ONE, types).speed
    np.testing.assert_allclose(speed[:, 1], [[0.3, 0.3], [1, 0.9], [0.2, 0.1]])
    np.testing.assert_allclose(speed[:, 0], [[1, 1], [1, 0.9], [1, 1]])
    for name, text in (
        ("p.json", json.dumps([{"model": "vgg19", "gpu_type": "k80", "consolidated": 0.3}])),
        ("q.json", json.dumps({"vgg19": {"k80": {"consolidated": 0.3, "spread": 0.3}}})),
        ("p.yaml", "- {model: vgg19, gpu_type: k80, consolidated: 0.3, spread: 0.3}\n"),
    ):
        (tmp_path / name).write_text(text)
        np.testing.assert_allclose(load_profile(tmp_path / name, ONE, types).speed[0, 1], [0.3, 0.3])


def test_speeds_by_gpu_count(tmp_path: Path) -> None:
    table = tmp_path / "p.csv"
    table.write_text("model,gpu_type,gpus,consolidated\nlm,k80,,0.5\nlm,k80,4,0.25\n")
    speed = load_profile(table, jobs(("lm", 1), ("lm", 4)), ["v100", "k80"]).speed
    np.testing.assert_allclose(speed[:, :, 0], [[1, 0.5], [1, 0.25]])


@pytest.fixture
def throughputs(tmp_path: Path) -> Path:
    """LM alone and in pairs at 1 and 2 GPUs; a big model that does not fit the K80 on two."""

    def rates(single: float, double: float, big: float, pair: tuple[float, float]) -> dict[str, dict[str, object]]:
        return {
            "('LM', 1)": {"null": single, "('LM', 1)": [single / 2, single / 2], "('Big', 1)": list(pair)},
            "('LM', 2)": {"null": double, "('LM', 2)": [0, 0]},
            "('Big', 1)": {"null": 3 * big + 1, "('LM', 1)": list(pair[::-1])},
            "('Big', 2)": {"null": big},
        }

    tables: dict[str, dict[str, dict[str, object]]] = {
        "v100": rates(10, 18, 6, (4, 8)),
        "v100_unconsolidated": rates(10, 9, 6, (0, 0)),
        "k80": rates(2, 4, 0, (0, 0)),
        "k80_unconsolidated": {"('LM', 2)": {"null": 3}},
    }
    path = tmp_path / "t.json"
    path.write_text(json.dumps(tables))
    return path


def test_gavel_throughputs_as_a_profile(throughputs: Path) -> None:
    work = jobs(("lm", 1), ("LM", 2), ("LM", 16), ("Big", 1), ("Big", 2), ("other", 1))
    profile = load_profile(throughputs, work, ["v100", "K80"])
    np.testing.assert_allclose(
        profile.speed,
        [
            [[1, 1], [0.2, 0.2]],
            [[1, 0.5], [4 / 18, 3 / 18]],
            [[1, 0.5], [4 / 18, 3 / 18]],  # 16 GPUs: nearest known count is 2
            [[1, 1], [1 / 19, 1 / 19]],
            [[1, 1], [0, 0]],
            [[1, 1], [1, 1]],
        ],
    )
    np.testing.assert_array_equal(profile.steps_per_s, [10, 18, 18, 19, 6, np.nan])
    assert profile.pairs is not None
    assert profile.pairs.pair_speed(0, 3, 0) == (0.4, 8 / 19)
    assert profile.pairs.pair_speed(3, 0, 0) == (8 / 19, 0.4)
    assert profile.pairs.pair_speed(0, 0, 1) == (0.1, 0.1)
    for a, b, kind in ((0, 3, 1), (1, 1, 0), (2, 2, 0), (0, 5, 0)):
        assert profile.pairs.pair_speed(a, b, kind) == (0, 0)
    dense = profile.pairs.pair
    assert dense.shape == (6, 6, 2)
    assert dense[0, 3, 0] == 0.4
    assert np.count_nonzero(dense) == 4
    assert "does not know 1 of 4 models ('other')" in profile.notes[0]


def test_missing_spread_rate_is_taken_from_the_other_models(throughputs: Path) -> None:
    data = json.loads(throughputs.read_text())
    data["k80"]["('Big', 2)"]["null"] = 2
    throughputs.write_text(json.dumps(data))
    speed = load_profile(throughputs, jobs(("Big", 2)), ["k80"]).speed
    np.testing.assert_allclose(speed[0, 0], [2 / 6, 2 / 6 * 0.75])


def test_unnamed_and_unknown_types(throughputs: Path) -> None:
    assert (load_profile(throughputs, jobs(("LM", 1)), ["gpu"]).speed == 1).all()
    with pytest.raises(InputError, match=r"unknown GPU type of profile .*'v1000': did you mean 'v100'"):
        load_profile(throughputs, jobs(("LM", 1)), ["v1000"])


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las", "easy", "random"])
def test_no_policy_starts_a_job_where_it_cannot_run(throughputs: Path, policy: str) -> None:
    work = jobs(*([("Big", 2), ("LM", 1), ("LM", 2)] * 6))
    outcome = simulate(
        Experiment(
            work, Cluster.parse("2x2:k80+1x2:v100"), policy, profile=str(throughputs), costs="none",
            check_invariants=True,
        )
    )  # fmt: skip
    assert np.isfinite(outcome.finish_s).all()
    big = np.flatnonzero(work.model.code == 0)
    assert set(outcome.segments.node[np.isin(outcome.segments.job, big)].tolist()) == {2}


def test_a_job_that_runs_nowhere_is_refused(throughputs: Path) -> None:
    with pytest.raises(InputError, match=r"job '0' asks for 2 GPUs for model 'Big', which does not run on"):
        simulate(Experiment(jobs(("Big", 2)), Cluster.parse("2x2:k80"), "fifo", profile=str(throughputs)))


@pytest.mark.data
def test_real_throughputs(data: Path) -> None:
    lm, bad = "LM (batch size 10)", "ResNet-50 (batch size 128)"
    work = jobs((lm, 8), (bad, 4), (lm, 1), (bad, 1))
    profile: Profile = load_profile(data / "gavel/simulation_throughputs.json.gz", work, ["v100", "k80"])
    wide, broken, single, other = profile.row.tolist()
    assert profile.speed[wide, 0, 1] == pytest.approx(65.5 / 615.1, rel=1e-2)
    assert (profile.speed[broken, 1] == 0).all()
    assert profile.pairs is not None
    assert profile.pairs.pair_speed(single, other, 0) == (0, 0)  # together they exceed the memory
    assert 0 < profile.pairs.pair_speed(single, single, 0)[0] < 1


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.csv", "model,gpu_type,consolidated,spread\na,b,fast,1\n", r"line 2: consolidated is 'fast'"),
        ("p.csv", "model,gpu_type,consolidated,spread\na,b,1,0\n", r"line 2: consolidated and spread must both"),
        ("p.csv", "model,gpu_type,gpus,consolidated\na,b,x,1\n", r"line 2: gpus is 'x'"),
        ("p.csv", "model,type,consolidated\na,b,1\n", r"line 2: unknown field 'type'"),
        ("p.csv", "model,gpu_type,consolidated\n", r"has no entries"),
        ("p.json", "{", r"broken JSON"),
        ("p.json", "[1]", r"a profile is a list of"),
        ("p.json", json.dumps({"k80": {"('a', 1)": {"null": 1}}}), r"has no GPU type 'v100'"),
        ("p.json", json.dumps({"v100": {"('a', 1)": {"null": -1}}}), r"v100, \('a', 1\): rate -1"),
        ("p.json", json.dumps({"v100": {"(a": {"null": 1}}}), r"not a Gavel throughput file"),
        ("p.yaml", "a: [", r"broken YAML"),
    ],
)
def test_bad_profiles(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        load_profile(path, jobs(("a", 1)), ["k80" if "k80" in text else "v100"])
    assert str(path) in str(caught.value)


def test_unknown_profile() -> None:
    with pytest.raises(InputError, match="unknown profile 'tiresia': did you mean 'tiresias'"):
        load_profile("tiresia", ONE, [])
