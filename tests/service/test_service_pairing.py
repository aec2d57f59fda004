"""Pairs that do not pay are undone, in a world whose clock moves only when told to."""

from __future__ import annotations

from pathlib import Path

import pytest
from service_kit import ADMIN, ONE, Rig, plan_rig, play, states
from test_service_beliefs import left_s
from test_service_sharing import ROUND_S, sharing

from cotenant.beliefs.pairing import WINDOW_S, WINDOW_STEPS
from cotenant.runtime.protocol import Progress

COLD = 20  # steps after which nobody takes them for a start-up any more
POLICIES = ["gandiva-packing", "gavel:sharing=true"]


def step(rig: Rig, job: str, steps: int, step_time_s: float) -> None:
    """A running job says so."""
    rig.says(job, Progress(steps, None, step_time_s))


def measured(rig: Rig, jobs: list[str], first: int, step_time_s: float) -> None:
    """All jobs make enough steps of that time in their present company, while looked at: the first few are cold."""
    for wait_s, steps in ((0.0, 0), (0.1, COLD), (WINDOW_S, COLD + WINDOW_STEPS)):
        rig.backend.advance(wait_s)
        for job in jobs:
            step(rig, job, first + steps, step_time_s)
        rig.service.tick()


def pair(rig: Rig) -> list[str]:
    """One job that was alone for a while, and a second that came to it."""
    host = rig.submit("sleep infinity", model="bert")
    play(rig, 1.0)
    measured(rig, [host], 1, 0.1)
    guest = rig.submit("sleep infinity", model="bert")
    play(rig, 2 * ROUND_S - WINDOW_S)  # there is time to be measured before the next round
    assert states(rig, [host, guest]) == ["running"] * 2
    return [host, guest]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pair_that_is_slow_is_split_at_the_next_round(tmp_path: Path, policy: str) -> None:
    rig = sharing(tmp_path, policy, ONE)
    jobs = pair(rig)
    measured(rig, jobs, 100, 0.2)  # as slow as taking turns
    assert states(rig, jobs) == ["running"] * 2, "between rounds nothing is taken away"
    events = [event for event in rig.service.desk.events(ADMIN, jobs[0]) if event.kind == "split"]
    assert [event.data for event in events] == [{"beside": jobs[1], "worth": 1.0}]
    play(rig, 2 * ROUND_S)
    rig.shares = False
    play(rig, 6 * ROUND_S)
    assert "running" in states(rig, jobs)
    third = rig.submit("sleep 3", model="bert")
    rig.service.desk.cancel(ADMIN, jobs[0])
    rig.service.desk.cancel(ADMIN, jobs[1])
    rig.finish()
    assert rig.state(third) == "succeeded"


def test_a_pair_that_gains_stays(tmp_path: Path) -> None:
    rig = sharing(tmp_path, "gandiva-packing", ONE)
    jobs = pair(rig)
    measured(rig, jobs, 100, 0.15)
    play(rig, 4 * ROUND_S)
    assert states(rig, jobs) == ["running"] * 2
    assert rig.attempts(*jobs) == [1, 1]


def test_step_times_count_only_after_enough_steps_in_one_company(tmp_path: Path) -> None:
    rig = sharing(tmp_path, "gandiva-packing", ONE)
    jobs = pair(rig)
    for job in jobs:
        step(rig, job, 100, 0.9)
    play(rig, 1.0)
    for job in jobs:
        step(rig, job, 100 + WINDOW_STEPS - 1, 0.9)
    play(rig, 2 * ROUND_S)
    assert states(rig, jobs) == ["running"] * 2
    assert "vetoes" not in rig.service.store.book.memory.get("pairs", {})


def test_a_pair_is_not_judged_by_what_nobody_measured(tmp_path: Path) -> None:
    rig = sharing(tmp_path, "gandiva-packing", ONE)
    jobs = [rig.submit("sleep infinity", model="bert") for _ in range(2)]
    play(rig, ROUND_S)
    measured(rig, jobs, 1, 9.9)
    play(rig, 2 * ROUND_S)
    assert states(rig, jobs) == ["running"] * 2


@pytest.mark.parametrize("policy", ["sjf-ffs", "horus"])
def test_the_younger_leaves_where_the_policy_never_stops_anybody(tmp_path: Path, policy: str) -> None:
    rig = plan_rig(tmp_path, policy)
    host = rig.submit("sleep infinity", model="lstm", expected=1000)
    play(rig, 1.0)
    measured(rig, [host], 1, 0.1)
    guest = rig.submit("sleep infinity", model="lstm", expected=900)
    play(rig, 2.0)
    assert states(rig, [host, guest]) == ["running"] * 2
    measured(rig, [host, guest], 100, 0.3)
    for job, other in ((host, guest), (guest, host)):
        (split,) = [record.data for record in rig.service.store.story(job) if record.kind == "split"]
        assert (split["beside"], split["worth"]) == (other, 0.667)
    play(rig, 1.0)
    assert (rig.state(host), rig.attempts(host)) == ("running", [1])
    assert rig.state(guest) in ("suspended", "pending")
    play(rig, 60.0)
    assert rig.service.admin.nodes(ADMIN)[0].gpus_shared == 0


def test_what_was_measured_of_pairs_survives_a_crash(tmp_path: Path) -> None:
    """Kinds that do not pay together are not put together again by the next service."""
    rig = sharing(tmp_path, "gandiva-packing", ONE)
    jobs = pair(rig)
    measured(rig, jobs, 100, 0.2)
    kept = rig.service.store.book.memory["pairs"]
    assert kept["vetoes"] == [[["bert", 1], ["bert", 1], "gpu"]]
    play(rig, 2 * ROUND_S)
    rig.restart()
    rig.shares = False  # checked at every look
    play(rig, 6 * ROUND_S)
    assert rig.service.store.book.memory["pairs"]["vetoes"] == kept["vetoes"]
    assert "running" in states(rig, jobs)


def test_what_is_left_in_company_is_not_slowed_by_company_twice(tmp_path: Path) -> None:
    """A job says what is left in seconds beside its guest; forecasts count work alone, and slow it down once."""
    rig = plan_rig(tmp_path, "sjf-ffs")
    host = rig.submit("sleep infinity", model="lstm", expected=1000)
    play(rig, 1.0)
    measured(rig, [host], 1, 0.1)
    guest = rig.submit("sleep infinity", model="lstm", expected=900)
    play(rig, 2.0)
    measured(rig, [host, guest], 100, 0.15)
    rig.says(host, Progress(1000, 2000, 0.15))
    rig.says(guest, Progress(1000, 9000, 0.15))
    rig.service.tick()
    for policy in ("sjf-ffs", "fifo"):
        (rows,) = [row for row in rig.service.desk.whatif(ADMIN, [policy])["jobs"] if row["id"] == host]
        assert rows[policy] - rig.backend.now_s == pytest.approx(150.0 if policy == "sjf-ffs" else 100.0, rel=0.12)


def test_who_leaves_its_company_has_no_more_to_do_than_before(tmp_path: Path) -> None:
    """The steps of one that is suspended were measured beside its host: they say how much is left, slowed by it."""
    rig = plan_rig(tmp_path, "gandiva:quantum=1000,watch_s=1,trial_s=1000")
    host = rig.submit("sleep infinity", model="lstm", expected=1000)
    play(rig, 5.0)
    measured(rig, [host], 1, 0.1)
    guest = rig.submit("sleep infinity", model="lstm", expected=900)
    play(rig, 5.0)
    measured(rig, [host, guest], 100, 0.15)
    rig.says(guest, Progress(1000, 9000, 0.15))
    assert left_s(rig, guest) == pytest.approx(800.0)
    rig.service.desk.hold(ADMIN, guest)
    play(rig, 2.0)
    assert rig.state(guest) == "suspended"
    assert left_s(rig, guest) == pytest.approx(800.0)
