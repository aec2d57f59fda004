"""A random walk with tenants: a random tree, which changes on the way, and what it promises always holds.

* Nobody holds more than a ceiling above it, and no user runs more jobs than he may.
* Only what is beyond a guarantee is stopped for others: a policy that stops nobody by itself stops nobody else.
* A job within its tenant's guarantee has its GPUs soon: the minimum run of a borrower, and the ladder, later.
* All jobs come to their end (as in every walk).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from live_session import promises_of
from service_kit import ADMIN
from service_walk import NODES, Walk

from cotenant.core.cluster import Cluster, NodeGroup
from cotenant.core.errors import InputError
from cotenant.core.lifecycle import JobState
from cotenant.core.tenants import Tree
from cotenant.journal import Record
from cotenant.service.facade import Caller, Role
from cotenant.service.store.job import LiveJob

MIN_RUN_S, GRACE_S = 3.0, 5.0
SOON_S = MIN_RUN_S + 3 * GRACE_S + 5.0
GPUS = sum(node.gpus for node in NODES)
STEADY = ("fifo", "backfill", "easy", "sjf")  # policies that stop nobody by themselves
POLICIES = (*STEADY, "srtf", "tiresias-l", "edf", "chronus", "gavel", "themis", "allox", "optimus:interval=2")


def random_tree(chance: random.Random) -> dict[str, Any]:
    """Two or three tenants at the top, some with children; no more is guaranteed than there is."""
    left, tenants = GPUS, {}
    for name in ("red", "blue", "green")[: chance.choice((2, 3))]:
        gpus = chance.randint(0, min(5, left))
        left -= gpus
        row: dict[str, Any] = {"guaranteed": gpus, "weight": chance.choice((1.0, 1.0, 3.0))}
        if chance.random() < 0.3:
            row["ceiling"] = chance.randint(6, GPUS)
        if chance.random() < 0.4:
            mine = chance.randint(0, gpus)
            row["children"] = {f"{name}-1": {"guaranteed": mine}, f"{name}-2": {"guaranteed": gpus - mine}}
        if chance.random() < 0.3:
            row["limits"] = {"running_jobs": 2}
        tenants[name] = row
    share = {"min_run": MIN_RUN_S, "reserve_after": 60, **({"half_life": 100} if chance.random() < 0.5 else {})}
    return {"fair_share": share, "tenants": tenants}


@dataclass
class TenantWalk(Walk):
    """One service with tenants from its first job to its last."""

    policies: tuple[str, ...] = POLICIES
    owed_s: dict[str, float] = field(default_factory=dict)  # since when a tenant has had a claim that is not met
    stopped: dict[str, LiveJob] = field(default_factory=dict)  # for others, since the last look

    def __post_init__(self) -> None:
        tree = Tree.from_dict(random_tree(random.Random(self.seed)), "walk")
        self.more = {"cluster": Cluster((NodeGroup(1, 4),), tenants=tree)}
        super().__post_init__()

    @property
    def tree(self) -> Tree:
        found = self.rig.service.store.book.tenants.tree
        assert found is not None
        return found

    def ways(self) -> tuple[tuple[Callable[[], None], int], ...]:
        return (*super().ways(), (self.change_quota, 8))

    def whose(self) -> dict[str, Any]:
        tenant = self.chance.choice([one.name for one in self.tree.tenants] + ["nobody"])
        return {"caller": Caller(self.chance.choice(("ann", "bob")), Role.ADMIN, tenant)}

    def change_quota(self) -> None:
        """Other numbers of some tenant, if they are possible."""
        one = self.chance.choice(self.tree.tenants)
        fields = self.chance.choice(
            ({"guaranteed": self.chance.randint(0, 5)}, {"weight": self.chance.choice((1.0, 4.0))})
        )
        try:
            self._tell(self.rig.service.tenants.set(ADMIN, one.name, dict(fields)))
            self.seen["changed"] += 1
        except InputError as error:
            self._tell(f"{one.name} {fields}: {error}")
        self.owed_s.clear()

    # -- what must hold ------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        super()._watch()
        store = self.rig.service.store
        hear = store.heard

        def heard(record: Record, job: LiveJob | None) -> None:
            if record.kind == "stop" and job is not None and record.data["why"] == "preempt":
                self.stopped[job.id] = job
            hear(record, job)

        store.heard = heard

    def _held(self, name: str) -> int:
        """GPUs of a tenant and those below it whose jobs are not about to leave."""
        jobs = self.rig.service.store.book.on_gpus.values()
        mine = (job for job in jobs if name in self.tree.path(job.tenant) and job.state != JobState.STOPPING)
        return sum(job.size for job in mine)

    def _check_stops(self) -> None:
        """Of each tenant that had to stop some, something was beyond its guarantee, with what it starts just now.

        What a tenant is guaranteed without its children's part is for the jobs that are its own.
        """
        stopped, self.stopped = self.stopped, {}
        book, promised = self.rig.service.store.book, promises_of(self.rig.service)
        for name in {job.tenant for job in stopped.values()} if book.policy in STEADY else ():
            self.seen["reclaimed"] += 1
            stay = (job for job in book.on_gpus.values() if job.state != JobState.STOPPING)
            come = (book.jobs[one] for one in promised if one not in stopped and one not in book.on_gpus)
            had = sum(job.spec.gpus for job in (*stay, *come, *stopped.values()) if job.tenant == name)
            below = sum(self.tree.guaranteed(one.name) for one in self.tree.children(name))
            has = self.tree.of(name).guaranteed - below
            self.need(had > has, f"{list(stopped)} are stopped, though {name} had {had} of the {has} guaranteed to it")

    def check(self) -> None:
        super().check()
        self._check_stops()
        if self._traits().shares:
            return
        book = self.rig.service.store.book
        for tenant in self.tree.tenants:
            held = self._held(tenant.name)
            self.need(held <= (tenant.ceiling or GPUS), f"{tenant.name} holds {held} of {tenant.ceiling}")
            most = tenant.limits.running_jobs
            for user in ("ann", "bob") if most is not None else ():
                runs = sum((job.tenant, job.user) == (tenant.name, user) for job in book.on_gpus.values())
                self.need(runs <= (most or 0), f"{user} of {tenant.name} runs {runs} jobs of {most}")
        self._check_owed()

    def _check_owed(self) -> None:
        """Claims within guarantees are met soon, where nothing but GPUs of borrowers stands in their way."""
        book, now_s = self.rig.service.store.book, self.rig.backend.now_s
        broken = book.drained or any(node.state != "up" for node in self.rig.backend.nodes())
        fixed = any(not job.spec.preemptible for job in book.on_gpus.values())
        if broken or fixed or self._traits().plans:
            self.owed_s.clear()
            return
        owed = [tenant.name for tenant in self.tree.tenants if self._is_owed(tenant.name)]
        self.owed_s = {name: self.owed_s.get(name, now_s) for name in owed}
        late = [name for name, since_s in self.owed_s.items() if now_s - since_s > SOON_S]
        self.need(not late, f"{late} wait for GPUs that are guaranteed to them")

    def _is_owed(self, name: str) -> bool:
        book, tree = self.rig.service.store.book, self.tree
        waiting = [job for job in book.active.values() if job.tenant == name and self._startable(job)]
        small = bool(waiting) and all(job.spec.gpus == 1 and not job.spec.gpu_type for job in waiting)
        if not small or tree.of(name).limits.running_jobs is not None or tree.children(name):
            return False
        pending = all(job.state == JobState.PENDING for job in waiting)
        return pending and self._held(name) + 1 <= tree.of(name).guaranteed
