"""The rules of CES: golden examples of the specification, and what holds for every series."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.errors import InputError
from cotenant.power import PRESETS, Ces, CesRules, PerfectForecast
from cotenant.power.account import run, saved_kwh
from cotenant.power.ces import PowerStep, sleep, wake

PHILLY = PRESETS["philly"]


def test_golden_decision() -> None:
    woken = wake(PHILLY, 420, 50, 300, 305, 0)
    assert woken == PowerStep(325, woken=25, frozen_until=60)
    later = PowerStep(325, frozen_until=60)
    assert sleep(PHILLY, 60, later, 280, 287, 275, 270).awake == 300
    assert sleep(PHILLY, 60, later, 280, 287, 275, 278) == later
    assert sleep(PHILLY, 59, later, 280, 287, 275, 270) == later


def test_golden_run() -> None:
    rules = CesRules(past=2, ahead=3, past_drop=1, ahead_drop=1, saving=2, buffer=5, keep=3, initial=2)
    used = np.array([40.0, 40, 47, 46, 44, 43, 40, 36, 34, 33, 33, 33])
    ces = Ces(rules, 60, PerfectForecast(used))
    account, decisions = run(ces, np.arange(12) * 600.0, used)
    assert [d.awake for d in decisions] == [45, 45, 52, 52, 52, 48, 45, 41, 41, 41, 41, 41]
    assert (account.wakes, account.sleeps, account.nodes_per_wake) == (1, 3, 7)


def test_golden_energy() -> None:
    assert saved_kwh(79.5, 8760) == pytest.approx(1_671_408)


def test_need_between_steps_wakes_at_once_and_keeps_nodes_awake() -> None:
    ces = Ces(PHILLY, 420, PerfectForecast(np.full(8, 100.0)))
    assert [ces.step(600.0 * at, 100) for at in range(6)] == [120] * 6
    assert ces.need(110) == 120
    assert ces.need(125) == 145
    assert ces.last.frozen_until == 6 + PHILLY.keep
    assert ces.need(1000) == 420
    assert ces.step(3600, 100, queued_nodes=400) == 420


@given(
    used=st.lists(st.integers(0, 50), min_size=1, max_size=60),
    preset=st.sampled_from(sorted(PRESETS)),
    buffer=st.integers(0, 8),
    saving=st.integers(0, 4),
)
def test_rules_hold_on_every_series(used: list[int], preset: str, buffer: int, saving: int) -> None:
    base = PRESETS[preset]
    rules = CesRules(base.past, 4, base.past_drop, base.ahead_drop, saving, buffer, 5)
    values = np.array(used, np.float64)
    _, decisions = run(Ces(rules, 50, PerfectForecast(values)), np.arange(len(used)) * 600.0, values)
    frozen, before = 0, None
    for step, (now, decision) in enumerate(zip(used, decisions, strict=True)):
        assert now <= decision.awake <= 50
        assert not (decision.woken and decision.slept)
        if step >= rules.initial and before is not None:
            assert decision.awake == pytest.approx(before + decision.woken - decision.slept)
            if decision.woken:
                frozen = step + rules.keep
            if decision.slept:
                assert step >= frozen
                assert decision.slept >= max(saving, 1)
                assert decision.awake == now + buffer
        before = decision.awake


def test_bad_input() -> None:
    with pytest.raises(InputError, match="past=0 must be at least 1"):
        CesRules(past=0)
    with pytest.raises(InputError, match="buffer=-1 must be at least 0"):
        CesRules(buffer=-1)
    with pytest.raises(InputError, match="nodes=0"):
        Ces(CesRules(), 0, PerfectForecast(np.ones(1)))
