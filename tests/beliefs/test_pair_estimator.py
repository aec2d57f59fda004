from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cotenant.beliefs.completion import factorise
from cotenant.beliefs.pair_estimator import Block, make_pair_belief
from cotenant.core.errors import InputError
from cotenant.core.workload import Codes, Workload, make_workload
from cotenant.workload.model_sets import GAVEL_TYPES, H200_MODELS
from cotenant.workload.profiles import Profile, load_profile


def jobs(names: tuple[str, ...], sizes: tuple[int, ...] = (1,)) -> Workload:
    code = np.repeat(np.arange(len(names)), len(sizes))
    gpus = np.tile(np.array(sizes), len(names))
    rows = len(code)
    return make_workload("x", np.zeros(rows), gpus, np.ones(rows), model=Codes(code, names))


def test_factorisation_fills_a_low_rank_table() -> None:
    rng = np.random.default_rng(0)
    truth = rng.random((20, 2)) @ rng.random((2, 30))
    holes = np.where(rng.random(truth.shape) < 0.4, np.nan, truth)
    assert np.abs(factorise(holes, 2, 1e-6) - truth).max() < 0.01
    assert (factorise(np.full((3, 2), np.nan), 2, 0.1) == 0).all()


def low_rank(kinds: int, rng: np.random.Generator) -> np.ndarray:
    """Ratios of kinds that are mixtures of three pure ones; two GPU types."""
    weights = rng.dirichlet(np.ones(3), kinds)
    pure = rng.uniform(0.2, 1.0, (3, 3, 2))
    return np.asarray(np.einsum("ar,rst,bs->abt", weights, pure, weights))


@pytest.mark.parametrize("rule", ["mixture", "nearest"])
def test_recovers_a_low_rank_table(rule: str) -> None:
    rng = np.random.default_rng(1)
    truth = low_rank(24, rng)
    references = np.arange(14)
    measured = truth.copy()
    measured[14:, :] = measured[:, 14:] = np.nan
    seen = rng.random((10, 14, 2)) < 0.3
    measured[14:, :14][seen] = truth[14:, :14][seen]
    measured[:14, 14:][np.swapaxes(seen, 0, 1)] = truth[:14, 14:][np.swapaxes(seen, 0, 1)]
    error = np.abs(Block(measured, references, rule).table() - truth)
    assert error.mean() < (0.02 if rule == "mixture" else 0.06)
    assert error[:14, :14].max() == 0


def test_observations_replace_beliefs_and_teach() -> None:
    profile = load_profile("h200", jobs(H200_MODELS, (1, 2)), ["h200", "v100"])
    belief = make_pair_belief("online:profiled=0.1,references=4", profile, 3)
    assert belief is not None
    assert profile.pairs is not None
    truth = profile.pairs.pair
    before = np.abs(belief.table() - truth).mean()
    assert before > 0.01
    unequal = np.array([[a[1] != b[1] for b in profile.kinds] for a in profile.kinds])
    assert (belief.table()[unequal] == 0).all()
    rows = np.flatnonzero(np.abs(belief.table()[6, :, 0] - truth[6, :, 0]) > 0.03)
    other = int(rows[0])
    assert belief.observe(6, other, 0, float(truth[6, other, 0]))
    assert belief.table()[6, other, 0] == pytest.approx(truth[6, other, 0])
    assert not belief.observe(6, other, 0, float(truth[6, other, 0]))
    assert not belief.observe(6, 7, 0, 0.5)  # one and two GPUs
    for a in range(0, 16, 2):
        for b in range(0, 8, 2):
            belief.observe(a, b, 0, float(truth[a, b, 0]))
            belief.observe(b, a, 0, float(truth[b, a, 0]))
    assert np.abs(belief.table() - truth).mean() < 0.7 * before


def test_oracle_and_no_pairs() -> None:
    profile = load_profile("h200", jobs(H200_MODELS), ["h200"])
    oracle = make_pair_belief("oracle", profile)
    assert oracle is not None
    assert profile.pairs is not None
    np.testing.assert_array_equal(oracle.table(), profile.pairs.pair)
    assert not oracle.observe(0, 0, 0, 0.1)
    assert make_pair_belief("online", load_profile("none", jobs(("a",)), ["h200"])) is None
    full = make_pair_belief("online:references=99", profile)
    assert full is not None
    np.testing.assert_allclose(full.table(), profile.pairs.pair)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("onlin", "unknown estimator of pairs 'onlin': did you mean 'online'"),
        ("online:profiled=2", "profiled is a share from 0 to 1"),
        ("online:rule=nearst", "did you mean 'nearest'"),
        ("oracle:x=1", "takes no parameters"),
    ],
)
def test_bad_estimators(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_pair_belief(text, load_profile("h200", jobs(H200_MODELS), ["h200"]))


@pytest.mark.data
def test_error_on_the_authors_pairs(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = data_dir / "gavel/simulation_throughputs.json.gz"
    profile: Profile = load_profile(path, jobs(GAVEL_TYPES), ["v100", "p100", "k80"])
    assert profile.pairs is not None
    alone = profile.speed[:, None, :, 0]
    found = {}
    for rule in ("mixture", "nearest"):
        errors = []
        for seed in range(5):
            belief = make_pair_belief(f"online:profiled=0.2,references=16,rule={rule}", profile, seed)
            assert belief is not None
            wrong = np.abs(belief.table() - profile.pairs.pair) / alone
            errors.append(wrong[wrong > 0].mean())
        found[rule] = float(np.mean(errors))
    with capsys.disabled():
        print(f"\npair ratios, 16 of 26 references, 20 % profiled: mean error {found}")
    assert found["mixture"] < 0.12
    assert found["mixture"] < found["nearest"]
