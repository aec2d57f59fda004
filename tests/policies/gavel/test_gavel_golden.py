"""The collection's golden vectors through the policy layer, and reference runs of the authors' simulator."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gavel_kit import problem

from compiled_kit import simulate_apart
from cotenant.core import jit
from cotenant.core.cluster import Cluster
from cotenant.policies.gavel.targets import OBJECTIVES, TargetOptions
from cotenant.sim.driver import Experiment
from cotenant.workload.readers import read

CLUSTER = "36x1:v100+36x1:p100+36x1:k80"

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def golden(data_dir: Path) -> Any:
    file = data_dir / "gavel" / "golden_vectors.json"
    if not file.is_file():
        pytest.skip(f"no golden vectors at {file}")
    return json.loads(file.read_text())


@pytest.mark.parametrize("name", ["fairness_real", "fifo_real"])
@pytest.mark.parametrize("how", ["aware", "agnostic"])
def test_hierarchical_vectors(golden: Any, name: str, how: str) -> None:
    """Normalised throughput of each job as jobs come one by one; entities of weight 1, 2 and 3."""
    data, result = golden["hierarchical"], golden["hierarchical"]["results"][name]
    rates = np.array([row[-3:] for row in data["throughputs_real_steps_per_s"]], float)
    inner = result["inner_policy"]
    options = TargetOptions(
        aware=how == "aware", budget_s=np.inf, entity_weights={0: 1.0, 1: 2.0, 2: 3.0}, inner=inner
    )  # fmt: skip
    for step in result["by_number_of_jobs"][2::3]:
        n = step["jobs"]
        weights = np.where(np.arange(n) % 2 == 0, 1.0, 2.0) if inner == "fairness" else np.ones(n)
        made = replace(problem(rates[:n], [3, 3, 3], weights=weights.tolist()), tenant=np.arange(n) // 6)
        x = OBJECTIVES["hierarchical"](made, options).x
        level = (rates[:n] * x).sum(axis=1) / rates[:n].mean(axis=1) if how == "aware" else x.sum(axis=1)
        assert level == pytest.approx(np.array(step[f"{how}_exact"]), abs=1.1e-5), n


@pytest.mark.parametrize(
    ("trace", "policy", "measure", "name", "theirs", "allowed"),
    [
        ("static_single_s0_n100", "gavel", None, "makespan_s", 483_365, 0.03),
        ("static_multi_s0_n100", "gavel:objective=makespan", None, "makespan_s", 596_970, 0.03),
        ("cont_single_lam900_s0_n2000", "gavel:objective=fifo", (100, 199), "avg_jct_s", 48_841.146, 0.001),
        ("cont_single_lam900_s0_n2000", "gavel", (100, 199), "avg_jct_s", 50_563.894, 0.03),
    ],
)
@pytest.mark.slow
def test_reference_runs(
    data_dir: Path, trace: str, policy: str, measure: tuple[int, int] | None, name: str, theirs: float, allowed: float
) -> None:
    """What the authors' simulator gives on the same input; `python -m bench.gavel` has them all."""
    profile = data_dir / "gavel" / "simulation_throughputs.json.gz"
    work = read(data_dir / "gavel" / f"{trace}.trace.gz", profile=str(profile))
    (result,) = simulate_apart(
        Experiment(
            work, Cluster.parse(CLUSTER), policy, profile=str(profile), compat=("gavel",), measure=measure,
            compiled=jit.is_cached(),
        )
    )  # fmt: skip
    assert result.summary[name] == pytest.approx(theirs, rel=allowed)
