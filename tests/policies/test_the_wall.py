"""Nothing that a policy can reach from its view is the engine's, is the truth, or changes anything when overwritten."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.core import schema
from cotenant.core.cluster import Cluster
from cotenant.core.spec import Spec
from cotenant.core.state import State
from cotenant.core.view import Shown, View
from cotenant.core.workload import Workload
from cotenant.policies import known_policies
from cotenant.policies.base import OrderPolicy
from cotenant.sim.driver import Experiment, Simulation
from cotenant.testing.policy import assert_same, random_workload
from cotenant.testing.vandal import Vandal, reachable
from cotenant.workload.generators import generate

POLICIES = (*known_policies(), "sjf-bsbf:preemptive=true", "gandiva:pairs=learned", "horus:pairs=learned,noise=0.2")


def _uneven(work: Workload) -> Workload:
    """The same jobs with durations that no other number is equal to by chance."""
    return replace(work, duration_s=work.duration_s + np.random.default_rng(3).random(len(work)) + 0.001)


def _worlds() -> dict[str, tuple[Workload, str, dict[str, str]]]:
    return {
        "plain": (_uneven(random_workload(4, 12, 8)), "1x8+2x4/cpu=64,mem=512", {"costs": "6"}),
        "types": (_uneven(random_workload(5, 10, 4)), "1x4:v100+2x2:k80", {}),
        "shared": (_uneven(generate(Spec.parse("philly-like:jobs=8,seed=3,load=1.5"), 8)), "2x4", {"profile": "h200"}),
        "elastic": (_uneven(generate(Spec.parse("ones-like:jobs=3,seed=0"), 8)), "2x4", {"costs": "none"}),
    }


WORLDS = _worlds()


def _experiment(policy: str, world: str) -> Experiment:
    work, cluster, options = WORLDS[world]
    fixed = {"round_s": 60.0, "seed": 2, "compiled": False, "estimator": "noisy:error=0.5"}
    return Experiment(work, Cluster.parse(cluster), policy, **{**fixed, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_vandal_changes_nothing_and_does_not_find_the_truth(policy: str, world: str) -> None:
    run = Simulation(_experiment(policy, world))
    if isinstance(run.policy, OrderPolicy):
        return  # it is data: nobody is asked, nothing is shown
    vandal = Vandal(run)
    run.advance(math.inf)
    alone = Simulation(_experiment(policy, world))
    alone.advance(math.inf)
    assert vandal.questions > 0
    assert not vandal.found
    assert_same(run.outcome(), alone.outcome())


def test_the_vandal_would_find_what_is_hidden() -> None:
    """Behind a closure, a base, a container in a slot, or as a number."""
    run = Simulation(_experiment("gavel", "plain"))
    run.advance(0.0)
    work = run.state.f[:, col.WORK]

    def secret() -> np.ndarray:
        return work

    view = run.engine.view(0.0)
    view._kept["here"] = (secret, [float(work[-1])])
    things = list(reachable(view))
    assert any(thing is work for thing in things)
    assert any(thing is run.state.f for thing in things)  # the base of the column
    vandal = Vandal(run)
    vandal._search(things)
    assert len(vandal.found) == 4  # the number, the column, its base, and that this is the engine's memory
    view._kept["here"] = run.state
    assert any(isinstance(thing, State) for thing in reachable(view))


def test_the_schema_names_the_columns_of_the_tables_and_of_the_view() -> None:
    for group, count in ((schema.FLOATS, col.FLOAT_COLUMNS), (schema.INTS, col.INT_COLUMNS)):
        assert [getattr(col, column.name) for column in group] == list(range(count))
    shown = [*schema.LOOKS, *schema.FLOATS, *schema.INTS, *schema.SHAPES]
    names = {name for name, value in vars(View).items() if isinstance(value, Shown)}
    assert names == {column.shown for column in shown if column.shown}
    assert not any(column.shown for column in shown if column.nature in (schema.TRUTH, schema.ENGINE))
    assert schema.table() in (Path(__file__).parents[2] / "docs" / "policies.md").read_text()
