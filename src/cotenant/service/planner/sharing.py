"""Several live jobs on one GPU: who sits where with whom, and how a plan with guests becomes stops and starts.

Of the jobs on the same GPUs the one that was launched first is the host, the others are its guests: nothing of it is
written down, so a guest that outlives its host simply has the GPUs. A plan says who is to be together; which of
them stays where it is and whom the others join is found here, so that as few as possible have to move.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cotenant.backends.base import NodeInfo
from cotenant.core.columns import SLOTS
from cotenant.core.lifecycle import JobState
from cotenant.service.planner.rows import Slices
from cotenant.service.store.job import Gpus, LiveJob

MOST_GPUS = 62  # of a node on which GPUs can be shared: a mask is one signed number
Masks = tuple[tuple[int, int], ...]
"""(node, mask of its GPUs), in order of nodes."""


def cells(gpus: Gpus) -> set[tuple[str, int]]:
    """Single GPUs: name of the node, and index."""
    return {(node, index) for node, indexes in gpus for index in indexes}


def can_share(nodes: Iterable[NodeInfo]) -> bool:
    """Whether every GPU of these nodes can be told apart."""
    return all(node.gpus <= MOST_GPUS for node in nodes)


def guests_of(jobs: Iterable[LiveJob]) -> dict[str, str]:
    """Guest -> host, by id, among jobs that have GPUs."""
    first: dict[tuple[str, int], str] = {}
    found: dict[str, str] = {}
    for job in sorted(jobs, key=lambda job: (job.last.launched_s, job.order)):
        mine = cells(job.last.gpus)
        host = next((first[cell] for cell in sorted(mine) if cell in first), None)
        if host is not None:
            found[job.id] = host
        for cell in mine:
            first.setdefault(cell, job.id)
    return found


def beside(job: LiveJob, jobs: Iterable[LiveJob]) -> list[LiveJob]:
    """The others on its GPUs, oldest first."""
    mine = cells(job.last.gpus)
    found = [other for other in jobs if other is not job and mine & cells(other.last.gpus)]
    return sorted(found, key=lambda other: other.order)


def used_gpus(jobs: Iterable[LiveJob]) -> dict[str, int]:
    """GPUs in use per node, shared ones counted once."""
    used: dict[str, int] = {}
    for node, _ in set().union(*(cells(job.last.gpus) for job in jobs)):
        used[node] = used.get(node, 0) + 1
    return used


def masks_of(jobs: Iterable[LiveJob], open_: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """Per job a mask for each of its nodes; bit k is the k-th of the node's GPUs that may be given away."""
    bit = {(node, index): 1 << at for node, indexes in open_.items() for at, index in enumerate(indexes)}
    return {
        job.id: tuple(sum(bit[node, index] for index in indexes) for node, indexes in job.last.gpus) for job in jobs
    }


def may_join(job: LiveJob, host: LiveJob, jobs: Iterable[LiveJob], nodes: Iterable[NodeInfo]) -> bool:
    """Whether a guest may come to its host now: nobody there is about to leave, and there is a place and memory."""
    there = [host, *beside(host, jobs)]
    if len(there) >= SLOTS or any(other.state == JobState.STOPPING for other in there):
        return False
    size = {node.name: node.gpu_mem_gib for node in nodes}
    need = sum(other.spec.gpu_mem_gib for other in [job, *there])
    return all(not size.get(name) or need <= size[name] for name, _ in host.last.gpus)


def regroup(
    after: Mapping[int, Slices], host_of: Mapping[int, int], masks: Mapping[int, Masks],
    before: Mapping[int, Slices], held: Mapping[int, Masks],
) -> tuple[set[int], dict[int, int]]:  # fmt: skip
    """Who of those that run stays on its very GPUs, and whom everybody else joins (guest -> host), by row.

    `after` and `masks` are the plan, in which new places are only counted: any free GPUs of the node will do. `before`
    and `held` are what really is. A group stays where one of its members is, if the plan has it on that node and no
    other group stays there; groups that the plan did not move come first.
    """
    groups: dict[int, list[int]] = {}
    for row in sorted(after, key=lambda row: (host_of.get(row, -1) >= 0, row)):
        host = host_of.get(row, -1)
        groups.setdefault(host if host >= 0 else row, []).append(row)
    anchors: dict[int, int] = {}
    used: dict[int, int] = {}
    for unmoved in (True, False):
        for top, members in groups.items():
            for row in members if top not in anchors else ():
                same = row in before and sorted(before[row]) == sorted(after[row])
                if not same or (unmoved and masks[row] != held[row]):
                    continue
                if any(used.get(node, 0) & mask for node, mask in held[row]):
                    continue
                anchors[top] = row
                for node, mask in held[row]:
                    used[node] = used.get(node, 0) | mask
                break
    stay: set[int] = set()
    hosts: dict[int, int] = {}
    for top, members in groups.items():
        anchor = anchors.get(top, top)
        stay.update(row for row in members if top in anchors and row in before and held[row] == held[anchor])
        hosts.update((row, anchor) for row in members if row != anchor)
    return stay, hosts
