"""What the service says about the deadline of a job: what its policy has told it, word for word, and nothing else.

A policy that promises (`Traits.promises`) answers a job at its first decision with it. The answer is in the journal,
and with it the leases that are reserved, before anybody hears of it. Under other policies nobody is promised anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from cotenant.backends.base import NodeInfo
from cotenant.policies import make_policy
from cotenant.policies.chronus.leases import in_words
from cotenant.service.desk import views as shown
from cotenant.service.store.job import LiveJob
from cotenant.service.store.view import BookView

NONE, UNANSWERED, AT_RISK, IMPOSSIBLE = "no deadline", "unanswered", "at risk", "impossible"


def deadline_of(view: BookView, nodes: Sequence[NodeInfo], job: LiveJob, now_s: float) -> dict[str, Any]:
    """The answer as plain data."""
    spec, told = job.spec, job.deadline_answer
    due_s = job.submitted_s + spec.deadline_s if spec.deadline_s else None
    said = {"job": job.id, "at_s": now_s, "deadline_s": due_s, "earliest_s": None}
    if due_s is None:
        return {**said, "verdict": NONE, "text": "it has no deadline"}
    if told is not None and told["policy"] == view.policy:
        steps = spec.deadline_steps or ((spec.deadline_s, 0.0),)
        due_s = job.submitted_s + steps[min(max(told["step"], 0), len(steps) - 1)][0]
        more = {"at_s": told["at_s"], "deadline_s": due_s, "earliest_s": told["by_s"] or None, "step": told["step"]}
        return {**said, **more, "verdict": told["verdict"], "text": told["text"], "policy": told["policy"]}
    if promises(view.policy):
        soon = not shown.cause(job, view)
        why = "the next decision comes at once" if soon else shown.reason(job, view, "")
        return {**said, "verdict": UNANSWERED, "text": f"it is answered when it may start: {why}", "soon": soon}
    return {**said, **_unpromised(view, nodes, job, now_s, due_s)}


def with_deadline(text: str, view: BookView, nodes: Sequence[NodeInfo], job: LiveJob, now_s: float) -> str:
    """A reason with what the policy has told of the job's deadline, unless it says that by itself."""
    if job.deadline_answer is None or job.deadline_answer["text"] in text:
        return text
    found = deadline_of(view, nodes, job, now_s)
    return f"{text}; deadline {found['verdict']}: {found['text']}"


@lru_cache(maxsize=8)
def promises(policy: str) -> bool:
    """Whether a policy promises anything."""
    return make_policy(policy).traits.promises


def _unpromised(view: BookView, nodes: Sequence[NodeInfo], job: LiveJob, now_s: float, due_s: float) -> dict[str, Any]:
    """Where nobody promises anything: what is impossible all the same."""
    spec, up = job.spec, sum(node.gpus for node in nodes if node.name not in view.drained)
    left_s = max(spec.expected_s - job.attained_s(now_s), 0.0)
    if spec.gpus > up:
        return {"verdict": IMPOSSIBLE, "text": f"it asks for {spec.gpus} GPUs, and there are {up}"}
    if now_s + left_s > due_s:
        text = f"it takes {in_words(left_s)} and its deadline is in {in_words(due_s - now_s)}"
        more = "give it longer, or more or faster GPUs"
        return {"verdict": IMPOSSIBLE, "text": f"{text}: {more}", "earliest_s": now_s + left_s}
    told = job.deadline_answer
    before = f"; what '{told['policy']}' had {told['verdict']} holds no more" if told is not None else ""
    name = view.policy.partition(":")[0]
    return {"verdict": AT_RISK, "text": f"policy '{name}' reserves nothing; 'chronus' would{before}"}
