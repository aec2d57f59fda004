"""What somebody is told who submits a job with a deadline."""

from __future__ import annotations

import math

import pytest

from cotenant.policies.deadline_answer import AT_RISK, IMPOSSIBLE, NONE, PROMISED, Demand, answer_deadline

HOUR = 3600.0


def _answer(job: Demand, others: list[Demand] | None = None, policy: str = "chronus") -> tuple[str, float, str]:
    found = answer_deadline(0.0, job, others or [], 8, 8, policy=policy, lease_s=1200.0, restore_s=60.0)
    return found.verdict, found.earliest_s, found.text


def test_promised_at_risk_or_impossible() -> None:
    job = Demand(4, HOUR, 2 * HOUR)
    assert _answer(job)[0] == PROMISED
    assert _answer(job, policy="fifo")[0] == AT_RISK
    assert "'chronus' would" in _answer(job, policy="fifo")[2]
    assert _answer(Demand(4, HOUR, math.nan))[0] == NONE
    verdict, earliest_s, text = _answer(Demand(4, 3 * HOUR, 2 * HOUR))
    assert (verdict, earliest_s) == (IMPOSSIBLE, 3 * HOUR)
    assert "it takes 3.0 h and its deadline is in 2.0 h" in text
    assert _answer(Demand(16, HOUR, 2 * HOUR))[0] == IMPOSSIBLE
    assert "expected" in _answer(Demand(1, math.nan, HOUR))[2]


def test_others_who_were_promised_come_first() -> None:
    full = [Demand(8, 1.7 * HOUR, 2 * HOUR)]
    verdict, earliest_s, text = _answer(Demand(4, HOUR, 2 * HOUR), full)
    assert verdict == AT_RISK
    assert earliest_s > 2 * HOUR
    assert "others were promised" in text
    assert "could be promised" in text
    later = _answer(Demand(4, HOUR, earliest_s), full)
    assert later[0] == PROMISED
    assert later[1] == pytest.approx(earliest_s)
