"""Policies that name the GPUs of every job, live: pairs, turns, terms and moves, in a world with a clock of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_session import terms_of
from service_kit import ADMIN, Rig, plan_rig, play, states, tell

from cotenant.backends.base import NodeInfo
from cotenant.core.errors import InputError
from cotenant.runtime.protocol import Progress, Settings

FOUR = (NodeInfo("n0", "gpu", 4, 8, 64.0, gpu_mem_gib=80.0),)
MODELS = ("lstm", "recsys", "bert", "gpt2", "resnet50", "mlp_rl")
PLANS = ["sjf-bsbf", "sjf-ffs", "antman", "gandiva", "horus", "horus+"]


@pytest.mark.parametrize("policy", PLANS)
def test_a_crowd_comes_to_its_end_under_every_plan(tmp_path: Path, policy: str) -> None:
    rig = plan_rig(tmp_path, policy, (*FOUR, NodeInfo("n1", "gpu", 3, 8, 64.0, gpu_mem_gib=80.0)))
    jobs = [
        rig.submit(f"sleep {7 + 3 * k}", gpus=1 + k % 3, model=MODELS[k % 6], expected=7 + 3 * k, gpu_mem=20)
        for k in range(14)
    ]
    fixed = rig.submit("sleep 30", preemptible=False, model="lstm")
    shared = 0
    while rig.service.store.book.active:
        play(rig, 1.0)
        shared = max(shared, sum(node.gpus_shared for node in rig.service.admin.nodes(ADMIN)))
        assert rig.backend.now_s < 1_002_000, states(rig, [*jobs, fixed])
    assert states(rig, [*jobs, fixed]) == ["succeeded"] * 15
    assert len(rig.service.desk.job(ADMIN, fixed).attempts) == 1
    if policy in ("sjf-bsbf", "sjf-ffs"):
        assert shared > 0


def test_bsbf_shares_only_part_of_a_gang(tmp_path: Path) -> None:
    """One GPU of two is enough for a small job: the gang's other GPU stays its own."""
    rig = plan_rig(tmp_path, "sjf-bsbf", (NodeInfo("n0", "gpu", 2, 8, 64.0, gpu_mem_gib=80.0),))
    gang = rig.submit("sleep 400", gpus=2, model="lstm", expected=400)
    play(rig, 2)
    small = rig.submit("sleep 20", gpus=1, model="recsys", expected=20)
    play(rig, 2)
    assert states(rig, [gang, small]) == ["running"] * 2
    (node,) = rig.service.admin.nodes(ADMIN)
    assert (node.gpus_used, node.gpus_shared) == (2, 1)
    rig.finish()
    assert {len(rig.service.desk.job(ADMIN, job).attempts) for job in (gang, small)} == {1}


def test_gandiva_lets_jobs_take_turns(tmp_path: Path) -> None:
    """Two jobs on one GPU: never both at once, each suspended for the other after a quantum, none started again."""
    rig = plan_rig(tmp_path, "gandiva:packing=false,quantum=20")
    jobs = [rig.submit("sleep 50", model=model, expected=50) for model in ("gpt2", "bert")]
    seen = set()
    while rig.service.store.book.active:
        play(rig, 1.0)
        now = tuple(states(rig, jobs))
        seen.add(now)
        assert now != ("running", "running")
        assert rig.backend.now_s < 1_002_000, now
    assert {("running", "suspended"), ("suspended", "running")} <= seen
    assert states(rig, jobs) == ["succeeded"] * 2
    assert [len(rig.service.desk.job(ADMIN, job).attempts) for job in jobs] == [1, 1]


def test_a_restarted_service_leaves_pairs_where_they_are(tmp_path: Path) -> None:
    rig = plan_rig(tmp_path, "sjf-bsbf")
    jobs = []
    for seconds, model in ((90, "lstm"), (30, "recsys")):
        jobs.append(rig.submit(f"sleep {seconds}", model=model, expected=seconds))
        play(rig, 2)
    assert states(rig, jobs) == ["running"] * 2
    rig.restart()
    play(rig, 3)
    assert states(rig, jobs) == ["running"] * 2
    rig.finish()
    assert [len(rig.service.desk.job(ADMIN, job).attempts) for job in jobs] == [1, 1]


@pytest.mark.parametrize("after", ["fifo", "gandiva-packing", "antman", "gavel:sharing=true"])
def test_another_policy_takes_over(tmp_path: Path, after: str) -> None:
    rig = plan_rig(tmp_path, "sjf-bsbf", (NodeInfo("n0", "gpu", 2, 8, 64.0, gpu_mem_gib=80.0),), round_s=5.0)
    gang = rig.submit("sleep 60", gpus=2, model="lstm", expected=60)
    play(rig, 2)
    small = rig.submit("sleep 20", gpus=1, model="recsys", expected=20)
    play(rig, 2)
    assert states(rig, [gang, small]) == ["running"] * 2
    rig.service.admin.set_policy(ADMIN, after)
    play(rig, 8)
    rig.shares, rig.in_parts = after != "fifo", after == "antman"
    rig.finish()
    assert states(rig, [gang, small]) == ["succeeded"] * 2


@pytest.mark.parametrize("policy", PLANS)
def test_what_if_answers_for_every_plan(tmp_path: Path, policy: str) -> None:
    rig = plan_rig(tmp_path, "sjf-bsbf")
    jobs = [rig.submit(f"sleep {30 + 10 * k}", model=MODELS[k], expected=30 + 10 * k, gpu_mem=20) for k in range(4)]
    play(rig, 3)
    rows = rig.service.desk.whatif(ADMIN, [policy])["jobs"]
    assert [row["id"] for row in rows] == jobs
    assert all(row[policy] > rig.backend.now_s for row in rows)
    waiting = [job for job in jobs if rig.state(job) == "pending"]
    assert all(rig.service.desk.why(ADMIN, job)["text"] for job in waiting)


def test_a_guest_that_does_not_fit_whole_cuts_its_batch(tmp_path: Path) -> None:
    """80 GiB hold the host's 50 and what half a batch of the guest's 50 needs, so the guest takes two halves."""
    rig = plan_rig(tmp_path, "sjf-bsbf")
    host = rig.submit("sleep 4000", model="bert", expected=4000, gpu_mem=50, batch={"size": 32})
    play(rig, 2)
    guest = rig.submit("sleep 30", model="resnet50", expected=30, gpu_mem=50, batch={"size": 64})
    play(rig, 2)
    attempt = rig.service.store.book.jobs[guest].last
    assert states(rig, [host, guest]) == ["running"] * 2
    assert attempt.level >= 1
    limits = [spec.gpu_mem_gib for job in rig.backend.world.jobs.values() if (spec := job.spec).gpu_mem_gib]
    assert sum(limits) <= 80
    assert rig.service.reports.told(guest) == Settings(batch_size=64 >> attempt.level, accumulation=2**attempt.level)
    rig.restart()
    play(rig, 2)
    assert rig.service.store.book.jobs[guest].last.level == attempt.level, "journaled"


def test_a_pair_that_does_not_pay_is_parted_and_not_made_again(tmp_path: Path) -> None:
    rig = plan_rig(tmp_path, "sjf-bsbf")
    for model in ("recsys", "lstm"):  # each of them alone
        host = rig.submit("sleep 4000", model=model, expected=4000)
        for second in range(10):
            play(rig, 1)
            tell(rig, host, 10 * second, 0.1)
        if model == "recsys":
            rig.service.desk.cancel(ADMIN, host)
            play(rig, 12)
    guest = rig.submit("sleep 100", model="recsys", expected=100)
    play(rig, 2)
    assert states(rig, [host, guest]) == ["running"] * 2
    for second in range(8):
        play(rig, 1)
        tell(rig, host, 400 + 10 * second, 0.25)
        if rig.state(guest) == "running":
            tell(rig, guest, 10 * second, 0.25)
    play(rig, 10)
    assert states(rig, [host, guest]) == ["running", "suspended"], "0.4 + 0.4 is less than taking turns"


def test_antman_holds_an_opportunistic_job_back(tmp_path: Path) -> None:
    """Beside a job that is its tenant's right, one of negative priority pauses after every step, so that it costs 1 %.

    At work all the time it would cost 10 %. The mean counts: most steps of the guaranteed job feel nothing.
    """
    rig = plan_rig(tmp_path, "antman")
    mine = rig.submit("sleep 4000", model="recsys", expected=4000, gpu_mem=20)
    done, guest, shares, speeds = 0.0, "", [], []
    for second in range(200):
        play(rig, 1)
        if second == 40:
            guest = rig.submit("sleep 4000", model="mlp_rl", expected=4000, gpu_mem=20, priority=-1)
        agreed = terms_of(rig.service, guest) if guest else None
        share = agreed.share if agreed is not None and agreed.opportunistic else 0.0
        done += 1000 * (1 - 0.1 * share)
        rig.says(mine, Progress(int(done), 10**9, 0.001, saves=True, busy=0.5))
        if guest:
            tell(rig, guest, 10 * second, 0.05)
            shares.append(share)
            speeds.append(1 - 0.1 * share)
    assert [rig.state(job) for job in (mine, guest)] == ["running"] * 2
    assert 0 < max(shares[-20:]) <= max(shares) < 1
    assert min(shares[10:]) < max(shares[10:]), "the share moves"
    assert sum(speeds) / len(speeds) > 0.99
    paused = 0.05 * (1 / shares[-1] - 1) if shares[-1] else 60.0  # no share at all: the longest pause
    assert rig.service.reports.told(guest).throttle_s == pytest.approx(paused, rel=0.25)
    assert rig.service.reports.told(mine).throttle_s in (None, 0.0)


def test_chronus_changes_places_at_its_boundaries_live(tmp_path: Path) -> None:
    """A job with a deadline gets the lease that it needs, though a best-effort job has the GPU until then."""
    rig = Rig(tmp_path, "chronus:lease=40,slot=20", (NodeInfo("n0", "gpu", 1, 8, 64.0),), budget_s=60.0)
    free = rig.submit("sleep 300", expected=300)
    play(rig, 3)
    assert rig.state(free) == "running"
    urgent = rig.submit("sleep 70", expected=70, deadline=170)
    due_s = rig.backend.now_s + 170
    while rig.service.store.book.active:
        play(rig, 1)
    info = {job: rig.service.store.book.jobs[job] for job in (free, urgent)}
    assert [str(job.state) for job in info.values()] == ["succeeded"] * 2
    assert info[urgent].last.ended_s is not None
    assert info[urgent].last.ended_s <= due_s
    assert info[urgent].last.since_s is None
    assert len(info[urgent].attempts) == 1, "leases are held to their end"


def test_a_soft_deadline_is_promised_for_the_step_that_can_be_kept(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "chronus:lease=40,slot=20", (NodeInfo("n0", "gpu", 1, 8, 64.0),), budget_s=60.0)
    told = []
    for deadline in (180, "190s:10,600s:4"):
        soft = rig.submit("sleep 100", expected=100, deadline=deadline)
        rig.service.tick()
        told.append(rig.service.desk.deadline(ADMIN, soft))
    assert [item["verdict"] for item in told] == ["promised", "promised"]
    assert "worth 4 of 10" in told[1]["text"]
    rig.service.tick()
    steps = rig.service.planner.live.engine.facts.steps
    assert steps is not None
    assert steps.value[:2].tolist() == [[10.0, 0.0], [10.0, 4.0]]
    rig.restart()
    assert rig.service.store.book.jobs[soft].spec.deadline_steps == ((190.0, 10.0), (600.0, 4.0))
    rig.service.desk.set(ADMIN, soft, {"deadline": "700s"})
    assert rig.service.store.book.jobs[soft].spec.deadline_steps == ()
    for bad in ("2h:1,1h:0.5", "1h:1,2h:2", "1h:0", "1h:x", "x:1"):
        with pytest.raises(InputError, match="field 'deadline'"):
            rig.submit("sleep 1", deadline=bad)
    rig.finish()


def test_antman_makes_an_opportunistic_job_leave_where_memory_is_short(tmp_path: Path) -> None:
    rig = plan_rig(tmp_path, "antman")
    spare = rig.submit("sleep 400", model="recsys", expected=400, gpu_mem=50, priority=-1)
    play(rig, 2)
    assert rig.state(spare) == "running"
    mine = rig.submit("sleep 30", model="mlp_rl", expected=30, gpu_mem=50)
    play(rig, 4)
    assert rig.state(mine) == "running"
    assert rig.state(spare) in ("suspended", "pending")
    rig.finish()
    assert states(rig, [spare, mine]) == ["succeeded"] * 2


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("sjf-bsbf", "no GPU has the memory"),
        ("horus", "too few have the memory"),
        ("gandiva:time_slicing=false", "too few GPUs are free"),
        ("antman", "it is opportunistic"),
    ],
)
def test_plans_say_why_a_job_waits(tmp_path: Path, policy: str, words: str) -> None:
    rig = plan_rig(tmp_path, policy)
    rig.submit("sleep 100", model="bert", expected=100, gpu_mem=50)
    play(rig, 2)
    waits = rig.submit("sleep 100", model="bert", expected=100, gpu_mem=50, priority=-1)
    play(rig, 2)
    assert words in rig.service.desk.why(ADMIN, waits)["text"]


def test_a_node_may_have_more_gpus_than_a_number_has_bits(tmp_path: Path) -> None:
    rig = plan_rig(tmp_path, "sjf-bsbf", (NodeInfo("n0", "gpu", 64, 8, 64.0),))
    jobs = [rig.submit("sleep 5", gpus=gpus, model="lstm", expected=5) for gpus in (40, 16, 8)]
    play(rig, 2)
    assert states(rig, jobs) == ["running"] * 3
    assert rig.service.admin.nodes(ADMIN)[0].gpus_used == 64
    rig.finish()


def test_cores_and_memory_go_with_the_gpus_of_an_elastic_job(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "optimus:interval=5", (NodeInfo("n0", "gpu", 2, 8, 64.0),), budget_s=60.0)
    job = rig.submit("sleep 60", cpus=2, mem=10, elastic={"min_gpus": 1, "max_gpus": 2}, expected=60)
    play(rig, 3)
    assert rig.service.store.book.jobs[job].size == 2
    (spec,) = [item.spec for item in rig.backend.world.jobs.values()]
    assert (spec.cpu_share, spec.mem_gib) == (4.0, 20.0)
