"""Muri-S and Muri-L: order, admit, group, place; at every arrival and completion (SIGCOMM'22, algorithm 1).

Asked at other times (a waiting job may now be spread, a node is back) the order of the last arrival or completion
stands. Least attained time first would otherwise turn everybody round whenever somebody has waited long enough to be
spread, and whoever is stopped by that waits and turns them round again: restarts without end.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import numpy as np

from cotenant.core.cycles import SLOTS, Cycles
from cotenant.core.errors import InputError
from cotenant.core.plan import Plan, Pools, Why
from cotenant.core.spec import Value
from cotenant.core.stages import Stages
from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints
from cotenant.policies.base import Context, PlanPolicy
from cotenant.policies.muri.admission import admit
from cotenant.policies.muri.grouping import Group, Grouping

_NOBODY: Ints = np.zeros(0, np.int64)


class MuriS(PlanPolicy):
    """Shortest remaining GPU time first; up to four jobs interleave their stages on the same GPUs."""

    name = "muri-s"
    source = "Muri-S, SIGCOMM'22"
    names_pools = True
    shares = True
    interleaves = True
    pair_belief = "oracle"
    order_words = "remaining GPU time"
    defaults: ClassVar[dict[str, Value]] = {
        "group": SLOTS,  # most jobs of a group
        "least_efficiency": 0.0,
        "autopack": True,  # dissolve groups that make less progress than their members in turn
        "matching": True,
        "order": "best",  # of the stages in a group: best or worst
        "merge_order": "auto",  # efficiency; with --compat muri released: by first appearance
        "noise": 0.0,  # simulated: how wrong stage times are believed, standard deviation of logarithms
        "turns": True,  # live: stages of a group take turns; otherwise they overlap as they happen to
    }

    @property
    def stage_noise(self) -> float:
        """How wrong it is about stage times."""
        return self.number("noise")

    def begin(self, context: Context) -> None:
        """Nothing is known of groups."""
        self._released = "muri" in context.compat
        order, merge = str(self.params["order"]), str(self.params["merge_order"])
        if order not in ("best", "worst") or merge not in ("auto", "efficiency", "released"):
            raise InputError(f"policy '{self.name}': order is best or worst, merge_order auto, efficiency or released")
        if not 1 <= self.number("group") <= SLOTS:
            raise InputError(f"policy '{self.name}': group={self.params['group']} must be 1 to {SLOTS}")
        if merge == "auto":
            merge = "released" if self._released else "efficiency"
        self._worst, self._merge = order == "worst", merge
        self._grouping: Grouping | None = None
        self._of_kinds: tuple[Stages, float] | None = None
        self._listed: tuple[Stages, list[int]] | None = None
        self._present, self._values = _NOBODY, np.zeros(0)

    def order_value(self, view: View, nominal_s: Floats) -> Floats:
        """Smaller comes first: believed remaining time times GPUs."""
        left = view.remaining_s
        if self._released and len(nominal_s):
            left = np.where(np.isnan(view.first_start_s), nominal_s[view.rows], left)
        return left * view.gpus

    def _standing_values(self, view: View, nominal_s: Floats) -> Floats:
        """Values of the order, as they were when a job last came or went."""
        by_row = np.argsort(view.rows)
        present = view.rows[by_row]
        if not np.array_equal(present, self._present):
            self._present, self._values = present, self.order_value(view, nominal_s)[by_row]
        value = np.empty(len(by_row))
        value[by_row] = self._values
        return value

    def decide(self, view: View) -> Plan:
        """Who runs, and with whom."""
        if not len(view.rows):
            return Plan(pools=Pools(_NOBODY, _NOBODY, _NOBODY))
        stages = view.facts.stages
        nominal = stages.nominal_s if stages is not None else np.zeros(0)
        value = self._standing_values(view, nominal)
        order = np.lexsort((view.rows, value, -view.priority))
        largest = int(self.number("group")) if stages is not None else 1
        places, pools = admit(view, order, largest)
        rows = view.rows[order][places]
        gpus = view.gpus[order][places]
        kinds = stages.of[rows] if stages is not None else np.full(len(rows), -1)
        split = view.parts[order][places] > 0
        kinds = np.where(split, -1, kinds)  # whoever asks for equal parts on several nodes stays alone
        grouping = self._prepare(view, stages)
        capacity = view.pool_gpus.tolist()
        groups: list[tuple[int, Group]] = []
        several = len(set(pools)) > 1
        for pool in sorted(set(pools)):
            here = [k for k, given in enumerate(pools) if given == pool] if several else slice(None)
            jobs, counts = rows[here].tolist(), gpus[here].tolist()
            where = [places[k] for k in here] if isinstance(here, list) else places
            if grouping is None:
                found = [Group(count, (-1,), [job], [at]) for job, count, at in zip(jobs, counts, where, strict=True)]
            else:
                found = grouping.group(jobs, counts, kinds[here].tolist(), capacity[pool], where)
                found = self._settle(found, grouping, stages, view)
            groups += [(pool, group) for group in found]
        fit = self._that_fit(view, groups)
        why = self._answers(view.rows[order], groups, largest)
        return Plan(pools=self._say(view, fit), why=why, lines=self._lines(fit, grouping, stages))

    def _lines(
        self, groups: list[tuple[int, Group]], grouping: Grouping | None, stages: Stages | None
    ) -> tuple[tuple[int, ...], ...]:
        """Members of each group in the order of their turns."""
        if grouping is None or stages is None or not self.params["turns"]:
            return ()
        shared = [group.jobs for _, group in groups if len(group.jobs) > 1]
        kind, turns = self._kind_of(stages), grouping.cycles.turns
        return tuple(tuple([jobs[at] for at in turns([kind[job] for job in jobs])]) for jobs in shared)

    def _kind_of(self, stages: Stages) -> list[int]:
        """The kind of every row, as a list: single ones are read off it in a tenth of the time."""
        if self._listed is None or self._listed[0] is not stages:
            self._listed = stages, stages.of.tolist()
        return self._listed[1]

    def _prepare(self, view: View, stages: Stages | None) -> Grouping | None:
        """What was found out holds for these kinds and the memory of the smallest GPU: with others it begins anew."""
        if stages is None:
            return None
        cap = float(view.site.gpu_gib.min(initial=np.inf))
        if not self._same_kinds(stages, cap):
            self._of_kinds = stages, cap
            self._grouping = Grouping(
                Cycles(stages, max if self._worst else min),
                largest=int(self.number("group")),
                least_efficiency=self.number("least_efficiency"),
                matching=bool(self.params["matching"]),
                released_order=self._merge == "released",
                fits=partial(stages.may_share, room_gib=cap),
            )
        return self._grouping

    def _same_kinds(self, stages: Stages, cap_gib: float) -> bool:
        """Whether the grouping is about kinds like these."""
        if self._of_kinds is None or self._of_kinds[1] != cap_gib:
            return False
        known = self._of_kinds[0]
        return known is stages or (
            known.apart == stages.apart
            and known.contention == stages.contention
            and np.array_equal(known.gpus, stages.gpus)
            and np.array_equal(known.times, stages.times)
            and np.array_equal(known.alone_s, stages.alone_s)
            and np.array_equal(known.gpu_gib, stages.gpu_gib)
        )

    def _settle(self, groups: list[Group], grouping: Grouping, stages: Stages | None, view: View) -> list[Group]:
        """Dissolve what does not pay; freed jobs stand where they stood in the order."""
        if not self.params["autopack"] or stages is None:
            return groups
        kept: list[Group] = []
        for group in groups:
            if grouping.worth_it(group):
                kept.append(group)
                continue
            kind = self._kind_of(stages)
            kept += [
                Group(group.gpus, (kind[job],), [job], [place])
                for job, place in zip(group.jobs, group.places, strict=True)
            ]
        return kept

    def _that_fit(self, view: View, groups: list[tuple[int, Group]]) -> list[tuple[int, Group]]:
        """Groups and single jobs, best first, until the cluster is full."""
        left = view.pool_gpus.tolist()
        kept = []
        for pool, group in sorted(groups, key=lambda entry: entry[1].first):
            if left[pool] >= group.gpus:
                left[pool] -= group.gpus
                kept.append((pool, group))
        return kept

    def _answers(self, line: Ints, groups: list[tuple[int, Group]], largest: int) -> Why:
        """Its group, or why it has none; `line` are all rows in order."""
        words = self.order_words

        def why(row: int) -> str:
            place = f"it is number {np.flatnonzero(line == row)[0] + 1} of {len(line)} by {words}"
            group = next((group for _, group in groups if row in group.jobs), None)
            if group is None:
                return f"{place}, and those before it fill the cluster with up to {largest} jobs on a GPU"
            if len(group.jobs) == 1:
                return f"{place}; no group that pays was found for it, and alone it finds the GPUs taken by others"
            return f"{place}; its group of {len(group.jobs)} jobs on {group.gpus} GPUs comes after others that take all"

        return why

    def _say(self, view: View, groups: list[tuple[int, Group]]) -> Pools:
        """In rows: the member that sits on its own GPUs already is the host, the others are its guests."""
        rows: list[int] = []
        pools: list[int] = []
        hosts: list[int] = []
        seated = set(view.rows[view.running & (view.host_row < 0)].tolist())
        for pool, group in groups:
            jobs = group.jobs
            rows += jobs
            pools += [pool] * len(jobs)
            if len(jobs) == 1:
                hosts.append(-1)
                continue
            host = next((job for job in jobs if job in seated), jobs[0])
            hosts += [-1 if job == host else host for job in jobs]
        return Pools(np.array(rows, np.int64), np.array(pools, np.int64), np.array(hosts, np.int64))


class MuriL(MuriS):
    """Least attained GPU time first; otherwise as muri-s. Needs no durations."""

    name = "muri-l"
    source = "Muri-L, SIGCOMM'22"
    order_words = "attained GPU time"

    def order_value(self, view: View, nominal_s: Floats) -> Floats:
        """Smaller comes first: seconds of running, at whatever speed, times GPUs."""
        return view.attained_gpu_s
