"""Taking jobs in: checked, numbered and durable; once only for submissions with a key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace

from cotenant.backends.base import NodeInfo
from cotenant.core.errors import InputError
from cotenant.core.jobspec import JobSpec
from cotenant.journal import Entry
from cotenant.service.desk.admission import check_gpu_memory, check_place
from cotenant.service.desk.parts import Machines
from cotenant.service.facade import Caller, TooMany
from cotenant.service.store import idempotency as once
from cotenant.service.store.store import Store


class Submissions:
    """Those that were taken, and those on their way to the disk."""

    def __init__(self, store: Store, machines: Machines, most_unfinished: int) -> None:
        self._store, self._machines, self._most = store, machines, most_unfinished
        self._next_id = 1  # above every id that was ever given out, also to submissions on their way
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
                if key:
                    entries.append(Entry("once", data={"name": name, "asked": asked, "ids": once.packed(ids)}))
                future = store.begin_write(entries)
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
        return ids

    def _check_share(self, caller: Caller, entries: Sequence[Entry]) -> None:
        """One caller's queue is bounded, so that he cannot fill everybody's."""
        more = Counter(entry.data["tenant"] for entry in entries)
        for tenant, count in more.items():
            have = self._store.book.unfinished[tenant, caller.name]
            if have + count > self._most:
                raise TooMany(f"you have {have} unfinished jobs, and {self._most} is the most: let some end first")

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
                    spec, array=(), env={**spec.env, "COTENANT_ARRAY_INDEX": str(index)}
                )  # fmt: skip
                data = {"spec": one.as_dict(), "tenant": spec.tenant, "user": caller.name}
                entries.append(Entry("submit", job_id, data))
                mine.append(job_id)
            ids.append(mine)
            number += 1
        return entries, ids, number

    def _accepted(self, caller: Caller, spec: JobSpec, nodes: Sequence[NodeInfo], named: dict[str, str]) -> JobSpec:
        tenant = spec.tenant or caller.tenant or "default"
        if not caller.sees(tenant):
            raise InputError(
                f"job '{spec.name}': field 'tenant' is '{tenant}', but your token is for '{caller.tenant}'"
            )
        if spec.gpus < 1:
            raise InputError(f"job '{spec.name}': field 'gpus' must be at least 1")
        check_place(spec, nodes)
        check_gpu_memory(spec, nodes)
        after = tuple(named.get(other) or self._existing(caller, spec, other) for other in spec.after)
        return replace(spec, tenant=tenant, after=after)

    def _existing(self, caller: Caller, spec: JobSpec, other: str) -> str:
        """The id that `after` means: an id, an array, or the newest job of that name."""
        book = self._store.book
        if any(caller.sees(job.tenant) for job in book.members(other)):
            return other
        for job in reversed(book.jobs.values()):
            if job.spec.name == other and caller.sees(job.tenant):
                return job.id.split(".")[0]
        raise InputError(f"job '{spec.name}': field 'after' names '{other}', but there is no such job")
