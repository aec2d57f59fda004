"""What Horus believes of utilisation, memory and pairs, and what wrong predictions cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cotenant.beliefs.predictor import predict_known
from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError
from cotenant.core.together import Predicted, Together
from cotenant.core.workload import Codes, make_workload
from cotenant.policies.horus.cost import gpu_cost
from cotenant.sim.driver import Experiment, Simulation
from cotenant.testing.sharing import shared_run, sharing

NAN = float("nan")


def users(run: Simulation) -> list[list[int]]:
    return sorted(sorted(job for job in jobs if job >= 0) for jobs in run.state.gpu.tolist())


def predicted(table: Together, busy: list[float], gib: list[float] | None = None) -> Together:
    memory = np.full(len(busy), NAN) if gib is None else np.array(gib)
    return replace(table, predicted=Predicted(np.array(busy), memory))


@pytest.mark.parametrize(("policy", "pair"), [("horus", [1, 2]), ("horus:belief=profile", [0, 2])])
def test_utilisation_is_predicted_where_it_can_be(policy: str, pair: list[int]) -> None:
    """In truth kind 0 leaves room for kind 2; the predictor thinks that kind 1 does, and knows nothing of kind 2."""
    table = sharing(np.full((3, 3), 0.9), memory_gib=[4, 4, 4], gpu_gib=16, busy=[0.35, 0.70, 0.50])
    rows = [(0.0, 1, 900.0), (0.0, 1, 900.0), (1.0, 1, 900.0)]
    run = shared_run(rows, predicted(table, [0.9, 0.5, NAN]), "1x2", policy)
    run.advance(1.0)
    assert pair in users(run)


def test_memory_predicted_too_small_is_counted_once_and_corrected() -> None:
    """10 GiB are predicted as 2: the job would run out beside 8 of 16 GiB, and waits; its like is not tried there."""
    table = sharing(np.full((2, 2), 0.9), memory_gib=[8, 10], gpu_gib=16, busy=[0.3, 0.3])
    rows = [(0.0, 1, 900.0), (1.0, 1, 900.0), (2.0, 1, 900.0)]
    run = shared_run(rows, predicted(table, [0.3, 0.3], [8, 2]), "1x1", "horus", kinds=[0, 1, 1])
    run.advance(2.0)
    assert run.policy.out_of_memory == 1  # type: ignore[attr-defined]
    assert run.policy.story().startswith("1 placement")
    assert run.state.i[1:, col.STATE].tolist() == [col.WAITING, col.WAITING]
    run.advance(np.inf)
    assert (run.state.i[:, col.STATE] == col.FINISHED).all()


def test_memory_predicted_too_large_keeps_jobs_apart() -> None:
    table = sharing(np.full((2, 2), 0.9), memory_gib=[8, 4], gpu_gib=16, busy=[0.3, 0.3])
    for policy, seated in (("horus", [[0]]), ("horus:belief=profile", [[0, 1]])):
        run = shared_run(
            [(0.0, 1, 900.0), (1.0, 1, 900.0)], predicted(table, [0.3, 0.3], [8, 12]), "1x1", policy, kinds=[0, 1]
        )
        run.advance(1.0)
        assert users(run) == seated


def test_golden_costs_of_known_slowdowns() -> None:
    """80 % beside 60 % is 40 % too much; measured, the two slow each other by 1.1, or not at all."""
    company, memory = (60.0, 3000.0, 1), 1.3 * 6000 / 16384
    assert gpu_cost(*company, 80.0, 3000.0, 16384.0, 1.0, 0.0) == pytest.approx(memory + 1.6 * 0.4 + 1)
    assert gpu_cost(*company, 80.0, 3000.0, 16384.0, 1.0, 1.1) == pytest.approx(memory + 1.6 * 0.1 + 1)
    assert gpu_cost(*company, 80.0, 3000.0, 16384.0, 1.0, 1.0) == pytest.approx(memory + 1)
    assert gpu_cost(*company, 30.0, 3000.0, 16384.0, 1.0, 1.0) == pytest.approx(memory + 0.1 + 1)


@pytest.mark.parametrize(("policy", "pair"), [("horus", [0, 2]), ("horus:pairs=oracle", [1, 2])])
def test_known_slowdowns_take_the_place_of_utilisation(policy: str, pair: list[int]) -> None:
    """By utilisation kind 2 goes beside kind 0; but those two slow each other down, and it and kind 1 do not."""
    truth = np.array([[1.0, 1.0, 0.5], [1.0, 1.0, 0.99], [0.5, 0.99, 1.0]])
    table = sharing(truth, memory_gib=[4, 4, 4], gpu_gib=16, busy=[0.35, 0.70, 0.50])
    run = shared_run([(0.0, 1, 900.0), (0.0, 1, 900.0), (1.0, 1, 900.0)], table, "1x2", policy)
    run.advance(1.0)
    assert pair in users(run)


def test_simulations_predict_measured_models_without_having_seen_them() -> None:
    names = ("gpt2", "unheard of", "mlp_rl (batch size 64)")
    work = make_workload("w", np.zeros(3), np.ones(3, int), np.ones(3), model=Codes(np.arange(3), names))
    run = Simulation(Experiment(work, Cluster.parse("1x8:h200"), "horus", profile="h200", compiled=False))
    facts = run.engine.facts.together
    assert facts is not None
    assert facts.predicted is not None
    for at, (model, _) in enumerate(run.profile.kinds):
        found = predict_known(model)
        if found is None:
            assert np.isnan([facts.predicted.busy[at], facts.predicted.memory_gib[at]]).all()
        else:
            assert facts.predicted.busy[at] == found.utilisation
            assert facts.predicted.memory_gib[at] == (found.memory_mib + 600) / 1024


def test_an_unknown_belief_is_one_line() -> None:
    with pytest.raises(InputError, match="belief of policy 'horus'"):
        shared_run([(0.0, 1, 1.0)], sharing([[1.0]]), "1x1", "horus:belief=profil")
