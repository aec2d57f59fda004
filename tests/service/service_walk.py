"""A random walk of a live service through its policies: people and nodes do anything at any time, rules always hold.

All of it follows from a number. Jobs that save go on where they were; the others begin again after every stop.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crash_memory import Crash
from live_session import promises_of, terms_of
from service_kit import ADMIN, Rig, cells

from cotenant.backends import LaunchSpec, NodeInfo
from cotenant.backends.fake import FakeJob, Script, read_script
from cotenant.core.columns import SLOTS
from cotenant.core.errors import InputError
from cotenant.core.lifecycle import WAITING, JobState
from cotenant.core.traits import Traits
from cotenant.policies import make_policy
from cotenant.runtime.protocol import Progress
from cotenant.service.facade import Conflict
from cotenant.service.store.job import LiveJob

ROUND_S = 4.0
NODES = (
    NodeInfo("n0", "h200", 4, 8, 64.0, gpu_mem_gib=80.0),
    NodeInfo("n1", "h200", 3, 8, 64.0, gpu_mem_gib=80.0),
    NodeInfo("n2", "a100", 2, 8, 64.0, gpu_mem_gib=40.0),
)
MODELS = ("", "lstm", "recsys", "bert", "gpt2", "resnet50", "mlp_rl")
POLICIES = (
    *("fifo", "backfill", "easy", "sjf", "srtf", "tiresias-l", "edf", "chronus"),
    *("gavel", "gavel:sharing=true", "allox", "gandiva-packing", "muri-s", "muri-l"),
    *("ones:interval=2", "ones-goodput:interval=2", "optimus:interval=2"),
    *("sjf-bsbf", "sjf-ffs", "antman:control_s=3", "horus", "horus+"),
    *("gandiva:quantum=3,watch_s=1,trial_s=4,residence_s=6,idle_s=2", "gandiva:quantum=2,packing=false"),
)
MANY = 5  # attempts
GRACES = 3
PATIENCE_S = 60.0  # for which GPUs that somebody could have may lie idle while he waits


@dataclass
class Walk:
    """One service from its first job to its last."""

    home: Path
    seed: int
    policies: tuple[str, ...] = POLICIES
    more: dict[str, Any] = field(default_factory=dict)  # options of the service
    story: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.fuse = 0  # steps until the service crashes; 0: it does not
        first = self.chance.choice(self.policies)
        suspended = self.chance.choice((0, 1, 8, 8))
        self.rig = Rig(
            self.home, first, NODES, profile="h200", round_s=ROUND_S, budget_s=60.0, max_suspended=suspended,
            hook=self._step, **self.more,
        )  # fmt: skip
        self.rig.backend.behave = self._behave
        self.totals: dict[str, float] = {}
        self.saves: set[str] = set()
        self.idle_s: float | None = None
        self.promised_s: dict[str, float] = {}
        self.seen: Counter[str] = Counter()
        self._watch()
        self._tell(f"policy {first}, {suspended} suspended")

    # -- what happens --------------------------------------------------------------------------------------------

    def go(self, acts: int) -> None:
        """Do so many things, then let everything come to its end."""
        ways = self.ways()
        for _ in range(acts):
            self.chance.choices([act for act, _ in ways], [weight for _, weight in ways])[0]()
            self.play(self.chance.choice((0.0, 0.0, 0.5, 1.0, 3.0, 9.0)))
        for node in NODES:
            self.rig.backend.set_node(node.name, up=True)
            self.rig.service.admin.drain(ADMIN, node.name, undo=True)
        for job in list(self.rig.service.store.book.active.values()):
            self.rig.service.desk.resume(ADMIN, job.id)
        self.finish()

    def ways(self) -> tuple[tuple[Callable[[], None], int], ...]:
        """What may happen, and how often."""
        return (
            (self.submit, 30), (self.cancel, 6), (self.hold, 5), (self.resume, 5), (self.resize, 6), (self.drain, 3),
            (self.undrain, 4), (self.lose, 2), (self.find, 4), (self.switch, 8), (self.restart, 4), (self.loosen, 3),
            (self.crash, 6),
        )  # fmt: skip

    def whose(self) -> dict[str, Any]:
        """By whom a job is submitted."""
        return {}

    def finish(self) -> None:
        """To the end of all jobs, which must come: nobody may hinder the others for ever."""
        left_s = sum(self.totals[job] for job in self.rig.service.store.book.active) * 3 + 600
        until_s = self.rig.backend.now_s + left_s
        while self.rig.service.store.book.active:
            self.play(1.0)
            if self.excused():
                self.rig.service.admin.set_policy(ADMIN, "fifo")
            if self.rig.backend.now_s > until_s:
                self.fail("some never end")
        for job in self.rig.service.store.book.jobs.values():
            good = job.state in (JobState.SUCCEEDED, JobState.CANCELLED) or "lost" in job.message
            self.need(good, f"job {job.id} has {job.state}: {job.message}")
        self.need(not promises_of(self.rig.service), "promises outlive all jobs")

    def excused(self) -> bool:
        """Whether all who are left can neither save nor stand still, and begin anew in every round of the policy."""
        active = self.rig.service.store.book.active
        rounds = self._traits().names_pools
        return rounds and not self.saves & active.keys() and all(len(job.attempts) > MANY for job in active.values())

    def play(self, seconds: float) -> None:
        until_s = self.rig.backend.now_s + seconds
        ticks = 0
        while True:
            ticks += 1
            self.need(ticks < 200 + 40 * seconds, "the service never rests")
            self._report()
            try:
                wait_s = self.rig.service.tick()
            except Crash:
                self._tell("crashed")
                self.seen["crashed"] += 1
                self.rig.restart()
                self._watch()
                continue
            self.check()
            left_s = until_s - self.rig.backend.now_s
            if left_s <= 0:
                return
            self.rig.backend.wait_change(min(max(wait_s, 0.01), left_s))

    def submit(self) -> None:
        chance = self.chance
        for _ in range(chance.choice((1, 1, 2, 5))):
            seconds = chance.choice((1, 3, 8, 20, 30))
            fields: dict[str, Any] = {"gpus": chance.choice((1, 1, 1, 2, 2, 3, 4))}
            fields["priority"] = chance.choice((0, 0, 0, 2, -1))
            fields["model"] = chance.choice(MODELS)
            if chance.random() < 0.6:
                fields["expected"] = max(seconds * chance.choice((0.3, 1, 1, 5)), 1)
            if chance.random() < 0.4:
                fields["gpu_mem"] = chance.choice((10, 20, 35, 40))
            if chance.random() < 0.3:
                fields["batch"] = {"size": chance.choice((16, 64))}
            if chance.random() < 0.1:
                fields["deadline"] = chance.choice((5, 60, 600))
            if chance.random() < 0.15:
                fields["preemptible"] = False
            if chance.random() < 0.1:
                fields["gpus"] = f"a100:{chance.choice((1, 2))}"
            elif chance.random() < 0.3:
                most = chance.choice((2, 4, 6))
                fields["gpus"] = chance.choice((1, 2))
                fields["elastic"] = {"min_gpus": 1, "max_gpus": most}
            deaf = "trap '' TERM; " if chance.random() < 0.1 else ""
            try:
                job = self.rig.submit(f"{deaf}sleep {seconds}", **fields, **self.whose())
            except InputError as error:
                self._tell(f"refused {fields}: {error}")
                continue
            self.totals[job] = seconds
            if chance.random() < 0.5:
                self.saves.add(job)
            self._tell(f"submit {job} {seconds} s {fields} {'saves' if job in self.saves else ''}")

    def cancel(self) -> None:
        self._to_one("cancel")

    def hold(self) -> None:
        self._to_one("hold")

    def resume(self) -> None:
        held = [job.id for job in self.rig.service.store.book.active.values() if job.held]
        if held:
            self._to_one("resume", held)

    def resize(self) -> None:
        elastic = [job for job in self.rig.service.store.book.active.values() if job.elastic]
        if elastic:
            job = self.chance.choice(elastic)
            gpus = self.chance.randint(max(job.spec.min_gpus, 1), job.spec.max_gpus)
            self.rig.service.desk.set(ADMIN, job.id, {"gpus": gpus})
            self._tell(f"set {job.id} gpus={gpus}")

    def loosen(self) -> None:
        active = sorted(self.rig.service.store.book.active)
        if active:
            job, priority = self.chance.choice(active), self.chance.choice((-1, 0, 3))
            self.rig.service.desk.set(ADMIN, job, {"priority": priority})
            self._tell(f"set {job} priority={priority}")

    def _to_one(self, verb: str, among: list[str] | None = None) -> None:
        active = among if among is not None else sorted(self.rig.service.store.book.active)
        if active:
            job = self.chance.choice(active)
            self._tell(f"{verb} {job}")
            try:
                getattr(self.rig.service.desk, verb)(ADMIN, job)
            except Conflict as error:
                self._tell(str(error))

    def drain(self) -> None:
        self._node("drain", lambda name: self.rig.service.admin.drain(ADMIN, name))

    def undrain(self) -> None:
        self._node("undrain", lambda name: self.rig.service.admin.drain(ADMIN, name, undo=True))

    def lose(self) -> None:
        self._node("lose", lambda name: self.rig.backend.set_node(name, up=False))

    def find(self) -> None:
        self._node("find", lambda name: self.rig.backend.set_node(name, up=True))

    def _node(self, what: str, act: Any) -> None:
        name = self.chance.choice(NODES).name
        self._tell(f"{what} {name}")
        act(name)

    def switch(self) -> None:
        policy = self.chance.choice(self.policies)
        self._tell(f"policy {policy}")
        self.rig.service.admin.set_policy(ADMIN, policy)

    def restart(self) -> None:
        self._tell("restart")
        self.rig.restart()
        self._watch()

    def crash(self) -> None:
        """In the middle of what it does next, sooner or later."""
        self.fuse = self.chance.randint(1, 12)
        self.play(self.chance.choice((1.0, 4.0)))
        self.fuse = 0

    def _step(self, point: str) -> None:
        if self.fuse:
            self.fuse -= 1
            if not self.fuse:
                raise Crash(point)

    # -- the jobs' side ------------------------------------------------------------------------------------------

    def _report(self) -> None:
        """As if jobs that save had said so, and how far they are."""
        service = self.rig.service
        for job in service.store.book.on_gpus.values():
            if job.state == JobState.RUNNING and (job.id in self.saves):
                done_s = sum(attempt.active_s(self.rig.backend.now_s) for attempt in job.attempts)
                total = int(self.totals[job.id] * 10)
                step = min(int(done_s * 10), total - 1)
                metrics = {"batch": 32.0, "loss": 1 / (1 + step)}
                self.rig.says(job.id, Progress(step, total, 0.1, metrics, saves=True))

    def _behave(self, spec: LaunchSpec) -> Script:
        job = self.rig.service.store.book.jobs[spec.job]
        size = sum(len(indexes) for _, indexes in spec.gpus)
        low, high = (max(job.spec.min_gpus, 1), job.spec.max_gpus) if job.elastic else (job.spec.gpus,) * 2
        self.need(low <= size <= high, f"{spec.key} starts with {size} GPUs")
        if not self._traits().resizes:
            self.need(size == job.spec.gpus, f"{spec.key} starts with {size} GPUs, not {job.spec.gpus}")
        for other in self.rig.backend.world.jobs.values():
            alive = other.state in ("starting", "running", "suspended")
            self.need(not alive or other.spec.job != spec.job, f"{spec.key} starts beside {other.spec.key}")
        self._check_company(spec)
        script = read_script(spec)
        if spec.job in self.saves:
            done_s = sum(attempt.ran_s for attempt in job.attempts[:-1])
            return Script(max(script.duration_s - done_s, 0.5), script.exit_code, script.signal, script.stubborn)
        return script

    def _watch(self) -> None:
        def hook(point: str, key: str) -> None:
            if point == "resume.after" and key in self.rig.backend.world.jobs:
                self._check_company(self.rig.backend.world.jobs[key].spec)

        self.rig.backend.hook = hook

    # -- what must hold ------------------------------------------------------------------------------------------

    def _traits(self) -> Traits:
        return make_policy(self.rig.service.store.book.policy).traits

    def _startable(self, job: LiveJob) -> bool:
        return job.state in WAITING and not job.held and not job.stop_why

    def _running(self) -> list[FakeJob]:
        return [job for job in self.rig.backend.world.jobs.values() if job.state in ("starting", "running")]

    def _check_company(self, spec: LaunchSpec) -> None:
        """Whoever comes to GPUs may be there beside those that are there."""
        service, mine = self.rig.service, cells(spec.gpus)
        policy = make_policy(service.store.book.policy)
        in_parts = policy.traits.names_gpus
        others = [job.spec for job in self._running() if job.spec.key != spec.key and mine & cells(job.spec.gpus)]
        self.need(policy.traits.shares or not others, f"{spec.key} comes to {[other.key for other in others]}")
        most = SLOTS if in_parts else int(policy.params.get("group", 2))
        for other in others:
            self.need(in_parts or cells(other.gpus) == mine, f"{spec.key} takes a part of {other.key}")
            turns = {terms_of(service, job).turn for job in (spec.job, other.job)} - {0}
            self.need(len(turns) < 2, f"{spec.key} comes to {other.key} out of turn")
        on = Counter(cell for one in [spec, *others] for cell in cells(one.gpus) & mine)
        self.need(max(on.values()) <= most, f"{spec.key} is one of {max(on.values())} on a GPU")
        for node, index in mine:
            there = [one for one in [spec, *others] if (node, index) in cells(one.gpus)]
            need_gib = sum(one.gpu_mem_gib or 0.0 for one in there)
            room_gib = self.rig.backend.world.nodes[node].gpu_mem_gib
            self.need(need_gib <= room_gib + 1e-6, f"{[one.key for one in there]} need {need_gib} GiB of {node}")
        if others:
            self.seen["shared"] += 1

    def check(self) -> None:
        """After every tick."""
        service, world = self.rig.service, self.rig.backend.world
        book = service.store.book
        on_gpus = {job.id for job in book.jobs.values() if job.state in _ON}
        self.need(on_gpus == set(book.on_gpus), "the index of running jobs is wrong")
        suspended = {job.id for job in book.jobs.values() if job.state == JobState.SUSPENDED}
        self.need(suspended == set(book.suspended), "the index of suspended jobs is wrong")
        self.seen["suspended"] += len(suspended)
        living: Counter[str] = Counter(
            job.spec.job for job in world.jobs.values() if job.state in ("starting", "running", "suspended")
        )
        self.need(max(living.values(), default=0) <= 1, f"{living} live twice")
        for job in self._running():
            self.need(job.spec.job not in suspended, f"{job.spec.key} runs, but counts as suspended")
            self.need(job.spec.job in book.on_gpus, f"{job.spec.key} runs on GPUs that do not count as its")
        self._check_turns(list(book.on_gpus.values()))
        self._check_idle()
        self._check_promises()

    def _check_turns(self, jobs: list[LiveJob]) -> None:
        """Whoever takes turns is not there while others have theirs."""
        service = self.rig.service
        there: dict[tuple[str, int], set[int]] = {}
        for job in jobs:
            turn = terms_of(service, job.id).turn
            if job.state != JobState.STOPPING and turn:
                for cell in cells(job.last.gpus):
                    there.setdefault(cell, set()).add(turn)
        for cell, turns in there.items():
            self.need(len(turns) == 1, f"jobs of turns {turns} run on {cell}")

    def _check_idle(self) -> None:
        """No job waits for long while no GPU is in use."""
        service = self.rig.service
        usable: Counter[str] = Counter()
        for node in self.rig.backend.nodes():
            if node.state == "up" and node.name not in service.store.book.drained:
                usable[node.gpu_type] += node.gpus
        able = [
            job.id
            for job in service.store.book.active.values()
            if self._startable(job)
            and job.spec.gpus <= (usable[job.spec.gpu_type] if job.spec.gpu_type else usable["h200"])
            and (job.state == JobState.PENDING or all(usable for _ in job.last.gpus))
        ]
        if service.store.book.on_gpus or not able:
            self.idle_s = None
        elif self.idle_s is None:
            self.idle_s = self.rig.backend.now_s
        else:
            self.need(self.rig.backend.now_s - self.idle_s < PATIENCE_S, f"{able} wait though all GPUs are idle")

    def _check_promises(self) -> None:
        """Whoever is promised GPUs by name has them soon after the last one has left them."""
        service, now_s = self.rig.service, self.rig.backend.now_s
        used = {cell for job in service.store.book.on_gpus.values() for cell in cells(job.last.gpus)}
        up = {n.name for n in self.rig.backend.nodes() if n.state == "up" and n.name not in service.store.book.drained}
        waits = {
            job
            for job, place in promises_of(service).items()
            if job in service.store.book.active
            and self._startable(service.store.book.active[job])
            and not cells(place) & used
            and all(name in up for name, _ in place)
        }
        self.promised_s = {job: self.promised_s.get(job, now_s) for job in waits}
        late = [job for job, since_s in self.promised_s.items() if now_s - since_s > GRACES * service.options.grace_s]
        self.need(not late, f"{late} do not get the idle GPUs that they were promised")

    def need(self, good: bool, what: str) -> None:
        if not good:
            self.fail(what)

    def fail(self, what: str) -> None:
        service, book = self.rig.service, self.rig.service.store.book
        promised = promises_of(service)
        jobs = [
            f"{job.id} {job.state} {job.stop_why} held={job.held} {job.spec.gpus} GPUs "
            f"{job.attempts[-1].gpus if job.attempts else ''} {terms_of(service, job.id)} {promised.get(job.id)}"
            for job in book.active.values()
        ]
        now = f"{self.rig.backend.now_s:.2f} under {book.policy}"
        raise AssertionError("\n".join([f"seed {self.seed}: {what} at {now}", *self.story[-60:], "now:", *jobs]))

    def _tell(self, what: str) -> None:
        self.story.append(f"{self.rig.backend.now_s:.2f} {what}")


_ON = (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)
