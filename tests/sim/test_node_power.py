"""Node power states: sleeping nodes have no capacity, waking takes time, and what that costs is counted."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError
from cotenant.core.workload import Workload, make_workload
from cotenant.power import parse_power
from cotenant.sim.driver import Experiment, Simulation, simulate

HOUR = 3600.0


def _days(days: int = 2) -> Workload:
    """Busy days, quiet nights: eight gangs an hour from 8 to 18 h, one an hour otherwise."""
    rows = []
    for hour in range(24 * days):
        for k in range(8 if 8 <= hour % 24 < 18 else 1):
            rows.append((hour * HOUR + 60.0 * k, 4, 0.9 * HOUR))
    submit, gpus, duration = (np.array(column) for column in zip(*rows, strict=True))
    return make_workload("days", submit, gpus.astype(np.int64), duration)


def _experiment(power: str, policy: str = "fifo") -> Experiment:
    return Experiment(
        _days(), Cluster.parse("12x4"), policy, power=power, compiled=False, check_invariants=True, costs="none"
    )


def test_nodes_sleep_at_night_and_every_job_still_finishes() -> None:
    always, saving = simulate(_experiment("")), simulate(_experiment("ces:buffer=1,keep=2,boot=300"))
    assert np.isfinite(saving.finish_s).all()
    assert "nodes_asleep" not in always.summary
    found = saving.summary
    assert 1.0 < float(str(found["nodes_asleep"])) < 12.0
    assert float(str(found["wakeups_per_day"])) > 0
    assert float(str(found["saved_kwh"])) > 0
    delayed = saving.queue_s > always.queue_s + 1e-6
    assert 0 < int(str(found["jobs_delayed_by_waking"])) < len(saving.finish_s)
    assert delayed.sum() <= int(str(found["jobs_delayed_by_waking"]))


def test_a_boot_of_no_time_delays_nobody() -> None:
    always, saving = simulate(_experiment("")), simulate(_experiment("ces:buffer=1,keep=2,boot=0"))
    assert saving.finish_s == pytest.approx(always.finish_s)
    assert float(str(saving.summary["nodes_asleep"])) > 1.0


@pytest.mark.parametrize("policy", ["las", "chronus"])
def test_any_policy_can_run_over_sleeping_nodes(policy: str) -> None:
    experiment = _experiment("ces:buffer=1,keep=2", policy)
    run = Simulation(experiment)
    run.advance(1.5 * 24 * HOUR)
    result = run.outcome()
    assert result.summary["nodes_asleep"] is not None
    assert int(run.state.x[col.IDLE]) >= 0
    assert np.isfinite(result.finish_s[: len(result.finish_s) // 2]).all()


def test_rules_can_be_given_by_name() -> None:
    rules, boot_s = parse_power("ces:preset=philly,buffer=7,boot=60")
    assert (rules.buffer, rules.ahead, boot_s) == (7, 30, 60.0)
    for text in ("sleep", "ces:preset=nowhere", "ces:boot=-1", "ces:ahead=0"):
        with pytest.raises(InputError):
            parse_power(text)
    with pytest.raises(InputError, match="--power needs"):
        simulate(Experiment(_days(1), Cluster.parse("12x4"), "fifo", power="ces", placement="count"))
