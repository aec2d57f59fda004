"""Taking jobs in: checked, numbered and durable; once only for submissions with a key."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from cotenant.backends.base import NodeInfo
from cotenant.core.errors import InputError
from cotenant.core.jobspec import OK, JobSpec, changed_fields, dependency
from cotenant.core.tenants import Tenant
from cotenant.journal import Entry
from cotenant.service.admission import Admission, demand_of
from cotenant.service.desk import selecting
from cotenant.service.desk.changing import check_priority, check_weight
from cotenant.service.desk.machines import Machines
from cotenant.service.desk.user_limits import LimitedUsers, check_size
from cotenant.service.facade import Caller, Conflict, NotFound, Role, TooMany
from cotenant.service.notify.settings import NOBODY, NotifySettings
from cotenant.service.options import MOST_UNFINISHED
from cotenant.service.store import idempotency as once
from cotenant.service.store.job import LiveJob
from cotenant.service.store.store import Store

ARRAY_INDEX = "COTENANT_ARRAY_INDEX"


@dataclass(frozen=True, slots=True)
class Rules:
    """What may be asked for. `hosts`: whether cores and memory that jobs ask for bind them.

    `most_priority`: the highest that others than admins may ask for. `notify`: whom jobs may have told.
    `most_unfinished`: jobs that one caller may have waiting and running.
    """

    hosts: bool = True
    most_priority: int = 0
    notify: NotifySettings = NOBODY
    most_unfinished: int = MOST_UNFINISHED


ANYTHING = Rules()


class Submissions:
    """Those that were taken, and those on their way to the disk."""

    def __init__(self, store: Store, machines: Machines, rules: Rules) -> None:
        self._store, self._machines, self._rules = store, machines, rules
        self._next_id = 1  # above every id that was ever given out, also to submissions on their way
        self._limited, self._admission = LimitedUsers(store), Admission((), store.book.tenants)
        self._on_way: dict[str, tuple[once.GivenAnswer, Future[list[int]]]] = {}  # those with a key, by its name

    def take(self, caller: Caller, specs: Sequence[JobSpec], key: str, asked: str) -> list[list[str]]:
        """The ids per spec, once they are on disk. Those who wait together share one flush."""
        store, name = self._store, once.name_of(caller, key) if key else ""
        with store.lock:
            known = store.book.answers.get(name, asked, store.clock())
            if known is not None:
                return known
            first = name not in self._on_way
            if first:
                entries, ids, number = self._entries(caller, specs)
                if not entries:
                    return ids
                self._check_share(caller, entries)
                asked_jobs = Counter(entry.data["tenant"] for entry in entries)
                self._limited.check(caller.name, asked_jobs)
                if key:
                    entries.append(Entry("once", data={"name": name, "asked": asked, "ids": once.packed(ids)}))
                future = store.begin_write(entries)
                self._limited.begin(caller.name, asked_jobs)
                self._next_id = number
                if key:
                    self._on_way[name] = once.GivenAnswer(asked, store.clock(), ids), future
            else:
                answer, future = self._on_way[name]
                ids = once.same(answer, asked).ids
        try:
            store.end_write(future)
        finally:
            if first:
                self._on_way.pop(name, None)
                self._limited.end(caller.name, asked_jobs)
        return ids

    def check(self, caller: Caller, specs: Sequence[JobSpec]) -> list[JobSpec]:
        """What would be taken, with defaults filled in; raises as `take` does. Nothing is submitted."""
        with self._store.lock:
            entries, _, _ = self._entries(caller, specs)
            self._check_share(caller, entries)
            self._limited.check(caller.name, Counter(entry.data["tenant"] for entry in entries))
        first: dict[str, JobSpec] = {}
        for entry in entries:  # of an array its first element
            first.setdefault(entry.job.partition(".")[0], JobSpec.from_dict(entry.data["spec"]))
        return list(first.values())

    def _check_share(self, caller: Caller, entries: Sequence[Entry]) -> None:
        """One caller's queue is bounded, so that he cannot fill everybody's."""
        more = Counter(entry.data["tenant"] for entry in entries)
        for tenant, count in more.items():
            have = self._store.book.unfinished[tenant, caller.name]
            most = self._rules.most_unfinished
            if have + count > most:
                raise TooMany(f"you have {have} unfinished jobs, and {most} is the most: let some end first")

    def _entries(self, caller: Caller, specs: Sequence[JobSpec]) -> tuple[list[Entry], list[list[str]], int]:
        """What to journal for a submission, the ids in it, and the next number after them."""
        nodes = self._machines.nodes()
        entries, ids = [], []
        number = max(self._store.book.next_id, self._next_id)
        named: dict[str, str] = {}  # jobs of this very submission, by id and by name
        for spec in specs:
            spec = self._accepted(caller, spec, nodes, named)
            named[str(number)] = named[spec.name] = str(number)
            mine = []
            for index in spec.array or (None,):
                job_id = f"{number}" if index is None else f"{number}.{index}"
                one = spec if index is None else replace(
                    spec, array=(), env={**spec.env, ARRAY_INDEX: str(index)}
                )  # fmt: skip
                data = {"spec": one.as_dict(), "tenant": spec.tenant, "user": caller.name}
                entries.append(Entry("submit", job_id, data))
                mine.append(job_id)
            ids.append(mine)
            number += 1
        return entries, ids, number

    def _accepted(self, caller: Caller, spec: JobSpec, nodes: Sequence[NodeInfo], named: dict[str, str]) -> JobSpec:
        tenant = spec.tenant or caller.tenant or "default"
        if not caller.is_of(tenant):
            raise InputError(
                f"job '{spec.name}': field 'tenant' is '{tenant}', but your token is for '{caller.tenant}'"
            )
        book = self._store.book.tenants
        if not self._admission.is_of(nodes, book):
            self._admission = Admission(nodes, book)
        if wrong := self._admission.wrong(demand_of(spec, self._rules.hosts), tenant):
            raise InputError(f"job '{spec.name}': {wrong}")
        spec = _prioritised(caller, spec, book.of(tenant), self._rules.most_priority)
        check_weight(caller, spec.weight)
        check_size(spec, book.of(tenant), book.tree)
        self._rules.notify.check(spec)
        if spec.image and not self._machines.capabilities().containers:
            why = "there is neither apptainer nor podman where jobs run: install one, or leave it out"
            raise InputError(f"job '{spec.name}': field 'image' is '{spec.image}', but {why}")
        folder = spec.checkpoint_dir
        if folder and not os.path.isabs(folder):
            if not os.path.isabs(spec.workdir):
                raise InputError(f"job '{spec.name}': field 'checkpoint.dir' is '{folder}': write an absolute path")
            folder = os.path.join(spec.workdir, folder)
        after = tuple(self._dependency(caller, spec, item, named) for item in spec.after)
        return replace(spec, tenant=tenant, after=after, checkpoint_dir=folder)

    def _dependency(self, caller: Caller, spec: JobSpec, item: str, named: dict[str, str]) -> str:
        how, other = dependency(item)
        found = named.get(other) or self._existing(caller, spec, other)
        return found if how == OK else f"{how}:{found}"

    def _existing(self, caller: Caller, spec: JobSpec, other: str) -> str:
        """The id that `after` means: an id, an array, or the newest job of that name."""
        try:
            found = selecting.named(self._store.book, caller, other)
        except NotFound:
            raise InputError(f"job '{spec.name}': field 'after' names '{other}', but there is no such job") from None
        return found[0].id if len(found) == 1 else found[0].id.partition(".")[0]


def _prioritised(caller: Caller, spec: JobSpec, tenant: Tenant, most: int) -> JobSpec:
    """With the tenant's default priority where none was asked for. Its highest holds for everybody, if it has one."""
    if tenant.highest_priority is None:
        check_priority(caller, spec.priority, most)
    asked = spec.priority or tenant.default_priority
    if tenant.highest_priority is not None and asked > tenant.highest_priority:
        limit = f"the highest in tenant '{tenant.name}' is {tenant.highest_priority}"
        raise InputError(f"job '{spec.name}': field 'priority' is {asked}: {limit}")
    return replace(spec, priority=asked)


def again(caller: Caller, jobs: Sequence[LiveJob], changes: dict[str, Any]) -> list[JobSpec]:
    """Specs of new jobs like these, but for some fields. Elements of one array are one; nobody is waited for.

    An environment may hold secrets that are shown to nobody: whoever runs something else with it would see them.
    """
    values = changed_fields(changes, "change")
    specs: dict[str, JobSpec] = {}
    for job in jobs:
        if job.spec.env.keys() - {ARRAY_INDEX} and caller.role is not Role.ADMIN and job.user != caller.name:
            raise Conflict(f"job {job.id} has an environment: only {job.user} or an admin may submit it again")
        if job.spec.foreign:
            raise Conflict(f"job {job.id} was made by somebody else ({job.spec.run}): make it again there")
        array, dot, index = job.id.partition(".")
        spec = replace(job.spec, tenant=job.tenant, gpus=job.asked_gpus or job.spec.gpus, after=())
        if dot:
            env = {name: value for name, value in spec.env.items() if name != ARRAY_INDEX}
            before = specs[array].array if array in specs else ()
            spec = replace(spec, env=env, array=(*before, int(index)))
        specs[array] = spec
    return [replace(spec, **values) for spec in specs.values()]
