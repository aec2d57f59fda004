"""What the service says about the deadline of a job, at once after its submission."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cotenant.backends.base import NodeInfo
from cotenant.policies.deadline_answer import PROMISED, Demand, answer_deadline
from cotenant.service.store.job import LiveJob
from cotenant.service.store.view import BookView

LEASE_S, FEW = 1200.0, 10


def deadline_of(view: BookView, nodes: Sequence[NodeInfo], job: LiveJob, now_s: float) -> dict[str, Any]:
    """The answer as plain data. Leases are 20 minutes, or a tenth of what the job takes where that is less."""
    steps = job.spec.deadline_steps
    answer = _answer(view, nodes, job, now_s, job.spec.deadline_s)
    for after_s, worth in steps[1:]:
        if answer["verdict"] == PROMISED:
            break
        later = _answer(view, nodes, job, now_s, after_s)
        if later["verdict"] == PROMISED:
            first = f"its first deadline is {answer['verdict']} ({answer['text']})"
            later["text"] = f"{later['text']} for the step that is worth {worth:g} of {steps[0][1]:g}; {first}"
            answer = later
    return answer


def _answer(view: BookView, nodes: Sequence[NodeInfo], job: LiveJob, now_s: float, after_s: float) -> dict[str, Any]:
    """The answer for one moment, in seconds after submission."""
    up = [node.gpus for node in nodes if node.name not in view.drained]
    mine = _demand(job, now_s, after_s)
    others = [
        _demand(other, now_s, other.spec.deadline_s)
        for other in view.active
        if other.id != job.id and other.spec.deadline_s and other.submitted_s + other.spec.deadline_s > now_s
    ]
    lease_s = LEASE_S if np.isnan(mine.left_s) else min(LEASE_S, max(mine.left_s / FEW, 1.0))
    found = answer_deadline(
        now_s, mine, others, sum(up), max(up, default=1), policy=view.policy, lease_s=lease_s,
        restore_s=min(view.preemption_cost_s, lease_s),
    )  # fmt: skip
    return {
        "job": job.id,
        "at_s": now_s,
        "verdict": found.verdict,
        "text": found.text,
        "deadline_s": None if np.isnan(mine.deadline_s) else mine.deadline_s,
        "earliest_s": found.earliest_s if np.isfinite(found.earliest_s) else None,
    }


def _demand(job: LiveJob, now_s: float, after_s: float) -> Demand:
    spec = job.spec
    left_s = max(spec.expected_s - job.attained_s(now_s), 0.0) if spec.expected_s else float("nan")
    return Demand(spec.gpus, left_s, job.submitted_s + after_s if after_s else float("nan"))
