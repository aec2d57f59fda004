"""Promises of live Chronus, of `python -m bench.chronus --live`: are they the policy's own, and are they kept?

`play_fake`: random submissions to a service over the fake world, in virtual time; it is killed at random steps (before
and after every journal write and every act) and started again. `play_real`: real processes under `cotenant serve`,
which is killed with SIGKILL. Nothing fails otherwise, and jobs take as long as their owners say. What must hold: every
answer is the one of the policy's table, with the leases reserved that it speaks of; it stays as it is; whoever is
promised something ends in time; and who asks for what a refusal has named is promised it.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from cotenant.backends.base import NodeInfo
from cotenant.backends.fake import FakeBackend
from cotenant.client import Client
from cotenant.core.jobspec import parse_job
from cotenant.journal import open_journal
from cotenant.journal.memory import MemoryJournal, MemoryStore
from cotenant.policies.chronus import Chronus
from cotenant.service.core import CoreService
from cotenant.service.facade import Caller, Role
from cotenant.service.store.book import Book
from cotenant.service.store.store import Store

ME = Caller("bench", Role.ADMIN)
EPOCH_S = 1_800_000_000.0
SLOT_S, LEASE_S = 20.0, 60.0
REAL_SLOT_S, REAL_LEASE_S = 5.0, 20.0  # jobs leave some of their last lease: a service takes a while to start
PATIENCE_S = 120.0


@dataclass
class PromiseTally:
    """What came out."""

    told: dict[str, dict[str, Any]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    kills: int = 0
    named: int = 0  # refusals whose own proposal was asked for

    def count(self, verdict: str) -> int:
        """Answers of a kind."""
        return sum(answer["verdict"] == verdict for answer in self.told.values())

    def __str__(self) -> str:
        counts = ", ".join(f"{self.count(word)} {word}" for word in ("promised", "refused", "no deadline"))
        return f"{len(self.told)} jobs: {counts}; {self.named} proposals taken up, {self.kills} kills"

    def keep(self, job: str, answer: dict[str, Any]) -> None:
        """It is said for the first time, or has to be what was said before."""
        told = self.told.setdefault(job, answer)
        if _plain(told) != _plain(answer):
            self.wrong.append(f"job {job} was told {told}, then {answer}")

    def judge(self, job: str, ended_s: float | None) -> None:
        """A promise must have been kept."""
        answer = self.told[job]
        if answer["verdict"] == "promised" and not (ended_s and ended_s <= answer["deadline_s"] + 1e-6):
            self.wrong.append(f"job {job} ended at {ended_s} and was told {answer}")


def _plain(answer: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in answer.items() if key != "at_s" or answer.get("policy")}


def check_table(policy: Chronus, names: dict[int, str], told: dict[str, dict[str, Any]], nodes: list[int]) -> list[str]:
    """Where answers differ from the table, and leases of the table from what a node has."""
    tables, wrong = policy.timetables.table, []
    users: dict[tuple[int, int], int] = {}
    for row, answer in policy.deadline_answers().items():
        said, promise = told.get(names[row]), tables.promises.get(row)
        if said is not None and (said["verdict"], said["text"], said["at_s"]) != (
            answer.verdict,
            answer.text,
            answer.at_s,
        ):
            wrong.append(f"job {names[row]}: the desk says {said}, the table {answer}")
        if (answer.verdict == "promised") != (promise is not None):
            wrong.append(f"job {names[row]} is {answer.verdict}, and the table has {promise}")
        for node, gpus in promise.place if promise is not None else ():
            for lease in promise.leases.tolist() if promise is not None else ():
                users[node, lease] = users.get((node, lease), 0) + gpus
    wrong += [f"lease {at[1]} of node {at[0]}: {used} GPUs" for at, used in users.items() if used > nodes[at[0]]]
    return wrong


# -- the fake world ------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """As SIGKILL: nothing in the service may catch it."""


class FakeSite:
    """A service over a world and a journal in memory; `restart` begins another one over both."""

    def __init__(self, home: Path, policy: str, nodes: tuple[NodeInfo, ...]) -> None:
        self.home, self.policy, self.nodes = home, policy, nodes
        self.backend, self.journal_store = FakeBackend(nodes), MemoryStore()
        self.backend.world.now_s = EPOCH_S
        self.dies_in = 0  # steps until it is killed; 0: it is not
        self.service = self._open()

    def _open(self) -> CoreService:
        journal = MemoryJournal(self.journal_store, clock=lambda: self.backend.now_s)
        service = CoreService(
            journal, self.backend, home=self.home, policy=self.policy, grace_s=5.0, clock=lambda: self.backend.now_s,
            inline=True, check_invariants=True, budget_s=60.0, hook=self._step,
        )  # fmt: skip
        service.reconcile()
        return service

    def _step(self, point: str) -> None:
        if self.dies_in:
            self.dies_in -= 1
            if not self.dies_in:
                raise Killed(point)

    def restart(self) -> None:
        """Another service over what the last one has left."""
        self.dies_in = 0
        self.service.store.journal.close()
        self.backend = self.backend.reopen()
        self.service = self._open()

    def survive(self, act: Callable[[], Any], tally: PromiseTally) -> Any:
        """Do something; if the service is killed on the way, start it again."""
        try:
            return act()
        except Killed:
            tally.kills += 1
            self.restart()
            return None

    def look(self) -> None:
        """Until there is nothing to do at once."""
        while self.service.tick() == 0.0:
            pass

    def go(self, seconds: float, tally: PromiseTally) -> None:
        """Let time pass, from event to event and from slot to slot."""
        until_s = self.backend.now_s + seconds
        while self.backend.now_s < until_s:
            self.survive(self.look, tally)
            now_s = self.backend.now_s
            next_s = (int(now_s / SLOT_S) + 1) * SLOT_S
            self.backend.wait_change(min(next_s, until_s) - now_s)

    def submit(self, fields: dict[str, Any]) -> str:
        """One job."""
        ((job,),) = self.service.desk.submit(ME, [parse_job(fields)])
        return job


def play_fake(home: Path, seed: int, jobs: int = 200, nodes: tuple[NodeInfo, ...] = ()) -> PromiseTally:
    """Random submissions until so many jobs are there, then all of them to their ends."""
    chance, tally = random.Random(seed), PromiseTally()
    nodes = nodes or tuple(NodeInfo(f"n{k}", "gpu", 4, 16, 128.0) for k in range(2))
    site = FakeSite(home, f"chronus:lease={LEASE_S:g},slot={SLOT_S:g}", nodes)
    while len(tally.told) < jobs:
        fields = _draw(chance, len(tally.told), max(node.gpus for node in nodes))
        answer = _submit(site, fields, chance, tally)
        if answer["verdict"] == "refused" and answer["earliest_s"] and chance.random() < 0.5:
            due_s = site.service.store.book.jobs[answer["job"]].submitted_s
            again = {**fields, "name": f"again{len(tally.told)}", "deadline": answer["earliest_s"] - due_s}
            tally.named += 1
            if _submit(site, again, chance, tally, kill=False)["verdict"] != "promised":
                tally.wrong.append(f"job {answer['job']} was told {answer}, but {again} is not promised")
        site.go(chance.expovariate(1 / 30), tally)
    until_s = site.backend.now_s + 40_000
    while site.service.store.book.active and site.backend.now_s < until_s:
        site.go(SLOT_S, tally)
    for name in tally.told:
        job = site.service.store.book.jobs[name]
        tally.keep(name, site.service.desk.deadline(ME, name))
        tally.judge(name, job.last.ended_s if job.attempts and job.finished else None)
    return tally


def _draw(chance: random.Random, number: int, most_gpus: int) -> dict[str, Any]:
    length_s = chance.choice((5, 20, 45, 90, 200, 400)) * chance.uniform(0.5, 1.5)
    fields: dict[str, Any] = {"run": f"sleep {length_s}", "gpus": chance.randint(1, most_gpus), "name": f"j{number}"}
    if chance.random() < 0.8:
        due_s = length_s * chance.uniform(0.8, 6) + chance.choice((0, 60, 120))
        fields["deadline"] = (
            due_s if chance.random() < 0.7 else f"{due_s:.3f}s:10,{1.5 * due_s:.3f}s:8,{3 * due_s:.3f}s:2"
        )
    if chance.random() < 0.9:
        fields["expected"] = length_s
    if chance.random() < 0.1:
        fields["preemptible"] = False
    if chance.random() < 0.1:
        fields["priority"] = chance.choice((-1, 1))
    return fields


def _submit(
    site: FakeSite, fields: dict[str, Any], chance: random.Random, tally: PromiseTally, kill: bool = True
) -> dict[str, Any]:
    """Submit a job and have it answered; the service may be killed at any step, and is asked again after it."""
    site.dies_in = chance.randint(1, 12) if kill and chance.random() < 0.2 else 0
    job = site.survive(lambda: site.submit(fields), tally)
    while job is None:  # a careful client looks before it asks again
        found = [one for one in site.service.store.book.jobs.values() if one.spec.name == fields["name"]]
        job = found[0].id if found else site.survive(lambda: site.submit(fields), tally)
    site.survive(site.look, tally)
    site.dies_in = 0
    site.look()
    answer = site.service.desk.deadline(ME, job)
    tally.keep(job, answer)
    session = site.service.planner.live  # type: ignore[attr-defined]
    sizes = [node.gpus for node in site.nodes]
    tally.wrong += check_table(session.policy, session.follower.job_at, tally.told, sizes)
    return answer


# -- real processes ------------------------------------------------------------------------------------------------


@contextmanager
def _served(home: Path, gpus: int) -> Iterator[tuple[int, Client]]:
    """`cotenant serve` in a process of its own, until it is killed."""
    (home / "url").unlink(missing_ok=True)
    policy = f"chronus:lease={REAL_LEASE_S:g},slot={REAL_SLOT_S:g}"
    pid = _fork(["serve", "--port", "0", "--home", str(home), "--policy", policy, "--gpus", str(gpus)], home.parent)
    try:
        until_s = time.monotonic() + PATIENCE_S
        while not (home / "url").exists():
            if time.monotonic() > until_s:
                raise RuntimeError(f"the service did not start: {(home.parent / 'serve.log').read_text()[-2000:]}")
            time.sleep(0.05)
        with Client((home / "url").read_text().strip(), (home / "token").read_text().strip()) as client:
            yield pid, client
    finally:
        os.kill(pid, signal.SIGKILL)  # a dead one stays until it is waited for
        os.waitpid(pid, 0)


def _fork(arguments: list[str], folder: Path) -> int:
    """The command line in a child that has everything imported already: nothing is given out while it is down."""
    from cotenant.cli.main import main

    for name in ("cotenant.api.front", "cotenant.service.planner.planner", "cotenant.backends.local"):
        import_module(name)
    pid = os.fork()
    if pid:
        return pid
    try:
        log = os.open(folder / "serve.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.argv = ["cotenant", *arguments]
        main()
    finally:
        os._exit(1)


def play_real(folder: Path, seed: int = 0, jobs: int = 20, kills: int = 3, gpus: int = 4) -> PromiseTally:
    """Real jobs that come one after the other; the service is killed and started again on the way."""
    chance, tally, home = random.Random(seed), PromiseTally(), folder / "home"
    home.mkdir(parents=True)
    falls = sorted(chance.sample(range(2, jobs), kills))
    number = 0
    for last in (*falls, jobs):
        with _served(home, gpus) as (pid, client):
            for job in tally.told:
                tally.keep(job, client.deadline(job, wait_s=PATIENCE_S))
            while number < last:
                number += 1
                length_s = chance.uniform(1, 7) + chance.choice((0, 0, 20))
                fields = {"run": f"sleep {length_s:.2f}", "gpus": chance.randint(1, gpus), "expected": length_s}
                if chance.random() < 0.85:
                    fields["deadline"] = 1.1 * length_s + chance.uniform(0, 300)
                ((job,),) = client.submit([{**fields, "workdir": str(folder)}])
                tally.keep(job, client.deadline(job, wait_s=PATIENCE_S))
                time.sleep(chance.expovariate(1 / 1.5))
            if last == jobs:
                _end(client, tally)
            else:
                os.kill(pid, signal.SIGKILL)
        tally.kills += 1
        tally.wrong += _check_memory(_book(home), tally)
    tally.kills -= 1  # the last one was after everything
    return tally


def _end(client: Client, tally: PromiseTally) -> None:
    """Until all have ended, and whether in time."""
    for job in tally.told:
        client.wait([job], timeout_s=600.0)
        info = client.job(job)
        tally.keep(job, client.deadline(job))
        tally.judge(job, info.attempts[-1].ended_s if info.attempts else None)


def _book(home: Path) -> Book:
    """What a killed service has left."""
    with open_journal(str(home / "journal.db"), time.time) as journal:
        return Store(journal, time.time, lambda point: None, home / "owed", None).book


def _check_memory(book: Book, tally: PromiseTally) -> list[str]:
    """What people were told, what the journal says of the job, and the policy's table, which it remembers."""
    kept, wrong = book.memory.get("policy", {}).get("kept", {}), []
    for name, said in tally.told.items():
        job = book.jobs[name]
        if job.finished or not job.spec.deadline_s:
            continue
        told, (table, promise, *_) = job.deadline_answer, kept[name]
        verdict, step, _, text, at_s, by_s = table
        if told is None or [told[key] for key in ("step", "text", "at_s", "by_s")] != [step, text, at_s, by_s]:
            wrong.append(f"job {name}: the journal has {told}, the table {table}")
        if (said["verdict"] == "promised") != (promise is not None) or not verdict.startswith(said["verdict"]):
            wrong.append(f"job {name} was told {said}, the table has {table} and {promise}")
    return wrong
