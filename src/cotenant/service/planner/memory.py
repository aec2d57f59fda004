"""What users were told and must survive a crash, as plain data by names of jobs: rows are others after a restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from cotenant.core import columns as col
from cotenant.core.state import State
from cotenant.policies.base import Policy

POLICY, PROMOTED, PAIRS = "policy", "promoted", "pairs"


def written(policy: Policy, name: str, job_at: Mapping[int, str]) -> dict[str, Any]:
    """What a policy remembers; empty if that is nothing."""
    kept = policy.remember()
    by_name = {" ".join(job_at[row] for row in rows): to for rows, to in kept.items() if all(r in job_at for r in rows)}
    return {"name": name, "kept": by_name} if by_name else {}


def recall(policy: Policy, name: str, memory: Mapping[str, Any] | None, row_of: Mapping[str, int]) -> None:
    """Tell a policy what it remembered in an earlier life under the same name; of jobs that have ended, nothing."""
    if not memory or memory["name"] != name:
        return
    by_name = {tuple(jobs.split()): to for jobs, to in memory["kept"].items()}
    policy.recall({tuple(row_of[job] for job in jobs): to for jobs, to in by_name.items() if row_of.keys() >= {*jobs}})


def told(policy: Policy, name: str, job_at: Mapping[int, str]) -> dict[str, dict[str, Any]]:
    """What a policy has told jobs with deadlines."""
    answers = policy.deadline_answers()
    return {job_at[row]: {**asdict(answer), "policy": name} for row, answer in answers.items() if row in job_at}


def promotions(state: State, row_of: Mapping[str, int]) -> dict[str, float]:
    """Seconds of each job that no longer count against it, for it was promoted when it had starved."""
    forgiven = {name: float(state.f[row, col.OCCUPIED] - state.f[row, col.ATTAINED]) for name, row in row_of.items()}
    return {name: round(seconds, 6) for name, seconds in forgiven.items() if seconds > 1e-6}
