"""How many replicas a service should have: the rule by hand, and what holds whatever the rate does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.autoscaling import LOOK_S, Autoscaler
from cotenant.core.serving import InferenceService, RateCurve

CHAT = InferenceService(
    "chat", 0.1, 0.01, RateCurve.constant(1.0), least=1, most=4, start_s=30.0, calm_s=600.0
)  # one replica keeps 100 ms up to about 80 requests/s


def test_up_at_once_and_down_one_by_one_after_calm() -> None:
    rule = Autoscaler()
    assert rule.wanted(CHAT, 1, 250.0, 0.0) == 4
    assert rule.wanted(CHAT, 4, 10.0, 599.0) == 4
    assert rule.wanted(CHAT, 4, 10.0, 600.0) == 3
    assert rule.wanted(CHAT, 3, 10.0, 600.0 + LOOK_S / 2) == 3
    assert rule.wanted(CHAT, 3, 10.0, 600.0 + LOOK_S) == 2


def test_late_means_one_more_and_then_patience_until_it_answers() -> None:
    rule = Autoscaler()
    assert rule.wanted(CHAT, 1, 1.0, 0.0, late=True) == 2
    assert rule.wanted(CHAT, 2, 1.0, 20.0, late=True) == 2
    assert rule.wanted(CHAT, 2, 1.0, 30.0, late=True) == 3
    assert rule.wanted(CHAT, 4, 1.0, 90.0, late=True) == 4
    assert rule.wanted(CHAT, 4, 1.0, 600.0) == 4, "it was late 510 s ago"


@given(st.lists(st.tuples(st.floats(0, 600), st.booleans(), st.floats(0.1, 900)), max_size=40))
def test_always_within_its_limits_and_never_fewer_than_the_rate_needs(looks: list[tuple[float, bool, float]]) -> None:
    rule, have, now_s = Autoscaler(), 1, 0.0
    for rate, late, passed_s in looks:
        now_s += passed_s
        before, have = have, rule.wanted(CHAT, have, rate, now_s, late)
        assert CHAT.least <= have <= CHAT.most
        assert have >= CHAT.replicas_for(rate)
        assert have >= before - 1
        assert not late or have >= before
