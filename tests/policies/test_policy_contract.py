"""Every shipped policy, and one of each kind that a user may write, keeps the contract."""

from __future__ import annotations

from pathlib import Path

from cotenant.policies import known_policies
from cotenant.testing.policy import PolicyContract

LEAVES_IDLE = ("antman", "horus", "horus+", "philly")  # hold GPUs for gangs, or look only a few jobs ahead
TAKES_TURNS = ("gandiva",)
TWINS = Path(__file__).with_name("numpy_twins.py")

for _name in known_policies():
    globals()[f"Test_{_name}"] = type(
        f"Test_{_name}",
        (PolicyContract,),
        {"policy": _name, "work_conserving": _name not in LEAVES_IDLE, "shares": _name in TAKES_TURNS},
    )


class TestStrictSjf(PolicyContract):
    policy = "sjf:strict=true"


class TestThreeQueuesWithPromotion(PolicyContract):
    policy = "tiresias-l:thresholds=[240,960],knob=4"


class TestGittinsSupremum(PolicyContract):
    policy = "tiresias-g:quantum=sup,threshold=60"


class TestUserPriority(PolicyContract):
    policy = f"{TWINS}:Srsf"


class TestUserPlan(PolicyContract):
    policy = f"{TWINS}:FirstFitPlan"
