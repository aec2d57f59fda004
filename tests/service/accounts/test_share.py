"""`share`, its metrics and `why` of a live service, from the same picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from service_kit import ADMIN, Rig

from cotenant.api.metrics import exposition
from cotenant.backends.base import NodeInfo
from cotenant.service.accounts import metrics
from cotenant.service.accounts.metrics import MOST_TENANTS, OTHERS
from cotenant.service.facade import Caller, NotFound, Role

ALICE, BOB = Caller("alice", Role.USER, "vision"), Caller("bob", Role.USER, "nlp")
EIGHT = (NodeInfo("n0", "gpu", 8, 64, 512.0),)


def laid_out(home: Path, **more: Any) -> Rig:
    """Two tenants of research and one beside it, on 8 GPUs of which one is guaranteed to nobody."""
    made = Rig(home, nodes=EIGHT, **more)
    made.service.tenants.add(ADMIN, "research", "", {"guaranteed": 6})
    made.service.tenants.add(ADMIN, "vision", "research", {"guaranteed": 2, "weight": 2})
    made.service.tenants.add(ADMIN, "nlp", "research", {"guaranteed": 3})
    made.service.tenants.add(ADMIN, "product", "", {"guaranteed": 1})
    return made


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return laid_out(tmp_path)


def row(rig: Rig, tenant: str) -> dict[str, object]:
    return next(one for one in rig.service.accounts.share(BOB)["tenants"] if one["name"] == tenant)


def test_who_has_borrowed_from_whom_nearest_first(rig: Rig) -> None:
    rig.submit("sleep 1000", ALICE, gpus=6)
    rig.ticks(3)
    rig.submit("sleep 1000", BOB, gpus=3)
    found = rig.service.accounts.share(BOB)
    assert [one["name"] for one in found["tenants"]] == ["research", "vision", "nlp", "product"]
    vision = row(rig, "vision")
    assert (vision["used"], vision["borrowed"], vision["depth"]) == (6, 4, 1)
    assert vision["borrowed_from"] == {"nlp": 3, "research": 1}
    assert row(rig, "nlp")["lent_to"] == {"vision": 3}
    assert (row(rig, "nlp")["waiting"], row(rig, "nlp")["waiting_jobs"]) == (3, 1)
    assert (row(rig, "research")["borrowed"], row(rig, "research")["lent"]) == (0, 0), "it stays within"
    assert "vision holds 6 of 2 guaranteed GPUs, 4 borrowed" in str(vision["arithmetic"])
    assert (found["gpus"], found["idle"], found["half_life_s"]) == (8, 2, None)
    assert [one["name"] for one in rig.service.accounts.share(BOB, "research")["tenants"]] == [
        "research",
        "vision",
        "nlp",
    ]
    with pytest.raises(NotFound, match="unknown tenant 'visoin': did you mean 'vision'"):
        rig.service.accounts.share(ADMIN, "visoin")


def test_without_a_tree_who_runs_is_shown(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.submit("sleep 10", ALICE, gpus=3)
    rig.ticks(1)
    found = rig.service.accounts.share(ADMIN)
    assert [(one["name"], one["used"], one["guaranteed"], one["limit"]) for one in found["tenants"]] == [
        ("vision", 3, 0, None)
    ]
    assert not found["declared"]


def test_metrics_of_tenants_go_on_when_jobs_end_and_restart(rig: Rig) -> None:
    rig.submit("sleep 100", ALICE, gpus=6)
    rig.ticks(50)
    lines = exposition(rig.service.admin.metrics())
    assert 'cotenant_tenant_used_gpus{tenant="vision"} 6.0' in lines
    assert 'cotenant_tenant_borrowed_gpus{tenant="vision"} 4.0' in lines
    assert 'cotenant_tenant_lent_gpus{tenant="nlp"} 3.0' in lines
    assert "# TYPE cotenant_tenant_gpu_seconds_total counter" in lines
    total = 'cotenant_tenant_gpu_seconds_total{tenant="vision"}'
    half = rig.service.admin.metrics()[total]
    assert half == pytest.approx(6 * 50, abs=12)
    rig.finish()
    whole = rig.service.admin.metrics()[total]
    assert whole == pytest.approx(6 * 100, abs=12)
    rig.restart()
    assert rig.service.admin.metrics()[total] == whole


def test_lines_of_metrics_are_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_TENANTS == 200
    monkeypatch.setattr(metrics, "MOST_TENANTS", 5)
    for number in range(4):
        rig.submit("sleep 100", Caller("x", Role.USER, f'un"known\\{number}'), gpus=1)
    rig.ticks(2)
    found = rig.service.admin.metrics()
    mine = {name.partition('tenant="')[2].removesuffix('"}') for name in found if "cotenant_tenant_" in name}
    assert len(mine) == 6
    assert OTHERS in mine
    assert r"un\"known\\0" in mine
    assert sum(value for name, value in found.items() if name.startswith("cotenant_tenant_used_gpus")) >= 4


def test_why_names_lenders_and_who_gives_back(tmp_path: Path) -> None:
    rig = laid_out(tmp_path, max_suspended=0)
    rig.service.tenants.share(ADMIN, {"min_run": 20})
    rig.submit("trap '' TERM; sleep 1000", ALICE, gpus=2)
    borrower = rig.submit("trap '' TERM; sleep 1000", ALICE, gpus=4)
    rig.ticks(10)
    more = rig.submit("sleep 1000", ALICE, gpus=4)
    rig.ticks(1)
    assert (why := rig.service.desk.why(ALICE, more))["cause"] == "over quota"
    assert "vision holds 6 of 2 GPUs, 4 borrowed: 3 from nlp, 1 from research until they ask" in why["text"]
    mine = rig.submit("sleep 100", BOB, gpus=3)
    rig.ticks(1)
    assert "nlp's guarantee is being taken back: who has borrowed it" in rig.service.desk.why(BOB, mine)["text"]
    rig.ticks(10)
    taken = "nlp's guarantee is being taken back: 4 GPUs of"
    assert rig.service.desk.why(ADMIN, mine)["text"].startswith(f"{taken} job {borrower} in about ")
    assert rig.service.desk.why(BOB, mine)["text"].startswith(f"{taken} a job of vision in about ")
    rig.ticks(12)
    assert rig.state(mine) == "running"


def test_usage_shows_an_administrator_what_is_below_him(rig: Rig) -> None:
    rig.service.tenants.set(ADMIN, "research", {"admins": ["ada"]})
    for caller in (ALICE, BOB, Caller("pia", Role.USER, "product")):
        rig.submit("sleep 5", caller)
    rig.finish()
    ada = rig.service.tenants.known(Caller("ada", Role.USER, "vision"))
    assert [row["tenant"] for row in rig.service.accounts.usage(ada)["rows"]] == ["nlp", "vision"]
    assert [row["tenant"] for row in rig.service.accounts.usage(ALICE)["rows"]] == ["vision"]
    assert len(rig.service.accounts.usage(ADMIN)["rows"]) == 3


def test_why_says_for_whom_gpus_are_kept(rig: Rig) -> None:
    """A gang that has waited too long keeps borrowers off GPUs that it could use."""
    rig.service.tenants.share(ADMIN, {"reserve_after": 30, "min_run": 1000})
    for _ in range(3):
        rig.submit("sleep 2000", ALICE, gpus=2)
    rig.ticks(2)
    gang = rig.submit("sleep 100", BOB, gpus=6)
    rig.ticks(40)
    small = rig.submit("sleep 2000", Caller("pia", Role.USER, "product"), gpus=2)
    rig.ticks(2)
    assert rig.state(gang) == rig.state(small) == "pending"
    words = rig.service.desk.why(ADMIN, small)["text"]
    assert words.startswith(f"held back by a reservation for job {gang} that has waited 4"), words
