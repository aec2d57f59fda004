"""What tenants have used before counts less and less, exactly, and is not forgotten with jobs or by restarts."""

from __future__ import annotations

from math import log
from pathlib import Path

import pytest
from service_kit import ADMIN, Rig

from cotenant.service.accounts.past import PastUse, decayed_gpus
from cotenant.service.core import CoreService
from cotenant.service.facade import Caller, Role
from cotenant.service.options import Keep

ALICE, BOB = Caller("alice", Role.USER, "vision"), Caller("bob", Role.USER, "nlp")
HALF_S = 3600.0


def test_the_integral_is_that_of_a_sum_over_small_steps() -> None:
    had = ((0.0, 1000.0), (2500.0, 7000.0))
    steps = [t + 0.5 for from_s, to_s in had for t in range(int(from_s), int(to_s))]
    by_steps = 3 * sum(0.5 ** ((9000.0 - t) / HALF_S) for t in steps) * log(2) / HALF_S
    assert decayed_gpus(3, had, 9000.0, HALF_S) == pytest.approx(by_steps, rel=1e-6)
    assert decayed_gpus(5, ((-1e9, 0.0),), 0.0, HALF_S) == pytest.approx(5), "5 GPUs since ever count as 5"
    assert decayed_gpus(5, ((-1e9, 0.0),), HALF_S, HALF_S) == pytest.approx(2.5)


def standing(service: CoreService) -> dict[str, float]:
    return {name: found.past_gpus for name, found in service.planner.standing().items()}


def test_past_use_survives_restarts_and_forgetting(tmp_path: Path) -> None:
    rig = Rig(tmp_path, keep=Keep(jobs_s=4000.0))
    for name in ("vision", "nlp"):
        rig.service.tenants.add(ADMIN, name, "", {"guaranteed": 2})
    rig.service.tenants.share(ADMIN, {"half_life": HALF_S})
    first = rig.submit("sleep 1800", ALICE, gpus=2)
    rig.finish(step_s=60.0)
    ended_s = rig.service.desk.job(ADMIN, first).ended_s
    assert ended_s is not None
    rig.backend.advance(HALF_S)
    rig.submit("sleep 900", BOB, gpus=1)
    rig.submit("sleep 9000", ALICE, gpus=1)
    rig.ticks(60, 30)
    true = 2 * (
        0.5 ** ((rig.backend.now_s - ended_s) / HALF_S) - 0.5 ** ((rig.backend.now_s - ended_s + 1800) / HALF_S)
    )
    true += 1 - 0.5 ** (60 / HALF_S)  # by the one that runs
    rig.restart().tick()
    assert standing(rig.service)["vision"] == pytest.approx(true, rel=1e-3)
    assert standing(rig.service)["nlp"] == pytest.approx(1 - 0.5 ** (60 / HALF_S), rel=0.05)
    before = PastUse(rig.service.store).of(rig.backend.now_s)["vision"]
    rig.backend.advance(2000)
    assert rig.service.retention.retire() == 1, "the first is forgotten"
    rig.restart().tick()
    after = PastUse(rig.service.store).of(rig.backend.now_s)["vision"]
    aged = 0.5 ** (2000 / HALF_S)
    assert after == pytest.approx(before * aged + 1 - aged, rel=1e-6)
    assert standing(rig.service)["vision"] == pytest.approx(after, rel=1e-3)
    rig.service.tenants.share(ADMIN, {"half_life": 1e9})
    rig.service.tick()
    assert standing(rig.service)["vision"] == pytest.approx((3600 + 2060) * log(2) / 1e9, rel=1e-2)
