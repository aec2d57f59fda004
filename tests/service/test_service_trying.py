"""Jobs that no profile knows share GPUs when what they use says that it may pay, and are parted when it does not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from service_kit import ADMIN, ONE, Rig, play, states
from test_service_pairing import measured

from cotenant.backends.base import LaunchSpec
from cotenant.beliefs.pairing import VETO_S
from cotenant.beliefs.trying import SAMPLES
from cotenant.runtime.protocol import Progress

POLICIES = ["sjf-bsbf", "sjf-ffs", "gandiva:quantum=10,watch_s=0", "horus", "antman", "muri-s"]
USES = {"light": (0.3, 20.0), "half": (0.5, 20.0), "heavy": (0.9, 20.0), "large": (0.3, 70.0)}
LIGHT = {"gpu_mem": 20, "expected": 900}


def uses(spec: LaunchSpec) -> tuple[float, float]:
    """By the script's name."""
    return next(use for name, use in USES.items() if name in spec.script)


def unknown(home: Path, policy: str, **more: float) -> Rig:
    """A service without a profile on one GPU that tells what it does."""
    rig = Rig(home, policy, ONE, budget_s=60.0, **more)
    rig.shares = rig.in_parts = True
    rig.backend.world.uses = uses
    return rig


def alone(rig: Rig, name: str = "light", **fields: object) -> str:
    """A job that was alone for a while, and was seen meanwhile."""
    job = rig.submit(f"python {name}.py; sleep infinity", **{**LIGHT, "expected": 1000, **fields})
    play(rig, 1.0)
    measured(rig, [job], 1, 0.1)
    play(rig, SAMPLES + 1.0)
    return job


def shared(rig: Rig) -> int:
    return rig.service.admin.nodes(ADMIN)[0].gpus_shared


def standing(rig: Rig, *jobs: str) -> list[dict[str, object]]:
    return [dict(e.data) for job in jobs for e in rig.service.desk.events(ADMIN, job) if e.kind == "pause"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pair_that_nobody_knows_is_tried_and_stays_if_it_pays(tmp_path: Path, policy: str) -> None:
    rig = unknown(tmp_path, policy)
    name = "half" if policy == "muri-s" else "light"  # the stages of other halves do not fill each other's gaps
    host = alone(rig, name)
    priority = {"priority": -1} if policy == "antman" else {}
    guest = rig.submit(f"python {name}.py --other; sleep infinity", **LIGHT, **priority)
    play(rig, 25.0)
    assert states(rig, [host, guest]) == ["running"] * 2
    assert shared(rig) == 1
    (told,) = [event.data for event in rig.service.desk.events(ADMIN, guest) if event.kind == "try"]
    assert told["beside"] == host
    assert 0.5 < told["believed"] < 1


def test_what_jobs_use_keeps_them_apart(tmp_path: Path) -> None:
    rig = unknown(tmp_path, "sjf-ffs")
    host = alone(rig, "heavy")
    other = rig.submit("python heavy.py; sleep infinity", **LIGHT)
    play(rig, 10.0)
    assert states(rig, [host, other]) == ["running", "pending"]
    (node,) = rig.service.admin.nodes(ADMIN)
    assert (node.gpu_busy, node.gpu_used_gib) == ((0.9,), (20.0,))
    info = rig.service.desk.job(ADMIN, host)
    assert (info.gpu_busy, info.gpu_used_gib) == (0.9, 20.0)
    assert rig.service.admin.metrics()['cotenant_gpu_busy{node="n0",gpu="0"}'] == 0.9


@pytest.mark.parametrize(
    "fields", [{"exclusive": True}, {"preemptible": False}, {"gpu_mem": 60}, {"gpu_mem": 0}], ids=str
)
def test_some_are_never_tried(tmp_path: Path, fields: dict[str, object]) -> None:
    """Who opts out, may not be stopped, would not fit with some to spare, or says nothing of its memory."""
    rig = unknown(tmp_path, "sjf-ffs")
    host = alone(rig)
    guest = rig.submit("python large.py; sleep infinity", **{**LIGHT, **fields})
    play(rig, 10.0)
    assert states(rig, [host, guest]) == ["running", "pending"]


def test_memory_that_was_seen_counts_though_nobody_stated_it(tmp_path: Path) -> None:
    rig = unknown(tmp_path, "sjf-ffs")
    host = alone(rig, "large", gpu_mem=0)
    guest = rig.submit("python light.py; sleep infinity", **LIGHT)
    play(rig, 10.0)
    assert states(rig, [host, guest]) == ["running", "pending"], "70 GiB were seen, and 20 asked for, of 80"
    rig.service.desk.cancel(ADMIN, host)
    rig.service.desk.cancel(ADMIN, guest)
    rig.finish()


def test_a_pair_that_does_not_pay_is_parted_and_not_formed_again_within_its_veto(tmp_path: Path) -> None:
    rig = unknown(tmp_path, "sjf-ffs")
    host = alone(rig)
    guest = rig.submit("python light.py; sleep infinity", **LIGHT)
    play(rig, 2.0)
    assert states(rig, [host, guest]) == ["running"] * 2
    measured(rig, [host, guest], 100, 0.25)
    (pause,) = standing(rig, host, guest)
    assert pause["beside"] == guest, "the guest was never alone: the host stands still for it"
    speak(rig, guest, 200, 0.1)  # while the host says nothing
    measured(rig, [host, guest], 400, 0.25)
    play(rig, 1.0)
    assert sorted(states(rig, [host, guest])) == ["pending", "running"] or rig.state(guest) == "suspended"
    for _ in range(30):
        play(rig, 5.0)
        assert shared(rig) == 0
    rig.restart()
    rig.backend.world.uses = uses
    play(rig, 30.0)
    assert shared(rig) == 0
    assert rig.service.store.book.memory["pairs"]["until_s"][0] == pytest.approx(rig.backend.now_s + VETO_S, rel=0.01)


def speak(rig: Rig, job: str, first: int, step_s: float, seconds: float = 5.0) -> None:
    """A job makes steps of that length and says so."""
    until_s, steps = rig.backend.now_s + seconds, first
    while rig.backend.now_s < until_s:
        rig.backend.advance(0.2)
        steps += round(0.2 / step_s)
        rig.says(job, Progress(steps, None, step_s))
        rig.service.tick()


def paused(tmp_path: Path) -> tuple[Rig, str, str]:
    """A pair of unknown jobs whose host was just told to stand still."""
    rig = unknown(tmp_path, "sjf-ffs")
    host = alone(rig)
    guest = rig.submit("python light.py; sleep infinity", **LIGHT)
    play(rig, 2.0)
    measured(rig, [host, guest], 100, 0.12)
    assert len(standing(rig, host)) == 1
    return rig, host, guest


def test_whoever_stood_still_though_it_was_not_to_says_nothing(tmp_path: Path) -> None:
    """An older runtime does not know of pauses: what the other does meanwhile is not its speed alone."""
    rig, host, guest = paused(tmp_path)
    for at in range(20):
        rig.backend.advance(0.2)
        for job in (host, guest):
            rig.says(job, Progress(200 + 2 * at, None, 0.12))
        rig.service.tick()
    measured(rig, [host, guest], 400, 0.12)
    play(rig, 1.0)
    ratios = rig.service.store.book.memory["pairs"]["ratios"]
    assert {round(row[3], 2) for row in ratios} == {0.83}, "the guest is taken to be slowed as its host is"
    assert states(rig, [host, guest]) == ["running"] * 2


def test_a_service_that_dies_in_a_pause_leaves_nobody_paused(tmp_path: Path) -> None:
    rig, host, guest = paused(tmp_path)
    rig.restart()
    rig.backend.world.uses = uses
    rig.service.tick()
    assert states(rig, [host, guest]) == ["running"] * 2
    assert {item.state for item in rig.backend.observe()} == {"running"}
    measured(rig, [host, guest], 400, 0.12)
    play(rig, 5.0)
    assert len(standing(rig, host, guest)) <= 3, "once per neighbour of each attempt, in this life of the service"


@pytest.mark.parametrize("policy", ["sjf-ffs", "antman", "horus"])
def test_a_crowd_that_nobody_knows_never_exceeds_the_memory_that_it_was_seen_to_use(
    tmp_path: Path, policy: str
) -> None:
    chance, needs = random.Random(13), {}

    def used(spec: LaunchSpec) -> tuple[float, float]:
        return needs[spec.job]

    rig = unknown(tmp_path, policy)
    rig.backend.world.uses = used
    together = 0
    for number in range(16):
        gib, busy = chance.choice((10.0, 25.0, 45.0)), chance.choice((0.2, 0.4, 0.9))
        run = f"python job{int(gib)}.py; sleep {chance.randrange(70, 200)}"
        job = rig.submit(run, expected=200, priority=-chance.randrange(2), gpu_mem=chance.choice((0, gib)))
        needs[job] = busy, gib
        for _ in range(10):
            play(rig, 2.0)
            specs = [one.spec for one in rig.backend.world.jobs.values() if one.state in ("starting", "running")]
            assert sum(needs[spec.job][1] for spec in specs) <= 80.0, (number, [needs[spec.job] for spec in specs])
            together = max(together, len(specs))
    assert together > 1
