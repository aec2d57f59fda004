"""What to tell somebody who submits a job with a deadline: promised, at risk or impossible, and what would help.

A pure function: the admission test of `chronus` over everybody who has a deadline, whatever policy is in force. Only
`chronus` reserves leases, so under another policy the best answer is "at risk".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.policies.chronus.admission import Ask, admit, promised_by_s
from cotenant.policies.chronus.leases import estimate_s, leases_needed, next_lease, slots_before, whole_share

PROMISED, AT_RISK, IMPOSSIBLE, NONE = "promised", "at risk", "impossible", "no deadline"


@dataclass(frozen=True, slots=True)
class Demand:
    """GPUs, seconds of work left as believed (NaN: nobody knows), deadline in seconds (NaN: none)."""

    gpus: int
    left_s: float
    deadline_s: float


@dataclass(frozen=True, slots=True)
class DeadlineAnswer:
    """The verdict, the earliest end that can be promised (infinite: none), and one line for people."""

    verdict: str
    earliest_s: float
    text: str


def answer_deadline(
    now_s: float, job: Demand, others: list[Demand], capacity: int, node_gpus: int, *, policy: str, lease_s: float,
    restore_s: float,
) -> DeadlineAnswer:  # fmt: skip
    """Answer one job, given the others that have deadlines and the GPUs of the cluster."""
    if np.isnan(job.deadline_s):
        return DeadlineAnswer(NONE, float("inf"), "it has no deadline")
    if job.gpus > capacity:
        return DeadlineAnswer(IMPOSSIBLE, float("inf"), f"it asks for {job.gpus} GPUs, and there are {capacity}")
    if np.isnan(job.left_s):
        return DeadlineAnswer(
            AT_RISK, float("inf"), "nobody knows how long it takes: submit it with 'expected', e.g. 2h"
        )
    if now_s + job.left_s > job.deadline_s:
        text = f"it takes {_hours(job.left_s)} and its deadline is in {_hours(job.deadline_s - now_s)}"
        return DeadlineAnswer(IMPOSSIBLE, now_s + job.left_s, f"{text}: give it longer, or more or faster GPUs")
    first = next_lease(now_s, lease_s)
    asks = [_ask(other, now_s, first, node_gpus, lease_s, restore_s) for other in others]
    new = _ask(job, now_s, first, node_gpus, lease_s, restore_s)
    length = max([*(ask.slots[-1] for ask in asks), new.slots[-1], 1]) + 1
    found = admit(np.full(length, capacity, np.int64), [ask for ask in asks if ask.slots[-1] >= ask.need], new)
    earliest_s = promised_by_s(found, first, lease_s)
    if found.promised:
        if policy.partition(":")[0] == "chronus":
            return DeadlineAnswer(PROMISED, earliest_s, f"{new.need} leases of {_hours(lease_s)} are reserved for it")
        text = f"there is room for it, but policy '{policy.partition(':')[0]}' reserves nothing; 'chronus' would"
        return DeadlineAnswer(AT_RISK, earliest_s, text)
    later = f"a deadline in {_hours(earliest_s - now_s)} could be promised" if np.isfinite(earliest_s) else "never"
    tight = new.slots[-1] < new.need
    why = "too little time for a lease and its reserve" if tight else "others were promised the GPUs before that"
    return DeadlineAnswer(AT_RISK, earliest_s, f"{why}: {later}")


def _ask(job: Demand, now_s: float, first: int, node_gpus: int, lease_s: float, restore_s: float) -> Ask:
    left = lease_s if np.isnan(job.left_s) else float(estimate_s(np.array(job.left_s), np.array(restore_s), lease_s))
    gpus = int(whole_share(np.array([job.gpus]), node_gpus)[0])
    slots = int(slots_before(np.array([job.deadline_s]), first, lease_s)[0])
    return Ask(gpus, int(leases_needed(np.array([left]), lease_s)[0]), (slots,))


def _hours(seconds: float) -> str:
    """A time for people."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
