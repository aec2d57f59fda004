"""How a tenant stands, in the words of `why`."""

from __future__ import annotations

from collections.abc import Mapping

from cotenant.core.reasons import TenantFacts


def over_quota(facts: TenantFacts, lenders: Mapping[str, int]) -> str:
    """Why a tenant may not start a job beyond what it is guaranteed: `vision holds 12 of 8 GPUs, 4 borrowed from nlp
    until it asks`. `lenders`: from whom it has borrowed how many, as far as that is known."""
    holds = f"{facts.tenant} holds {facts.used} of {_gpus(facts.guaranteed)}"
    if facts.borrowed:
        holds += f", {facts.borrowed} borrowed{_from(facts.borrowed, lenders)}"
    return f"{holds}; it may hold {facts.limit} now, and the job needs {facts.need}"


def _from(borrowed: int, lenders: Mapping[str, int]) -> str:
    """From whom, until when; what nobody is guaranteed is nobody's to ask for."""
    named = {name: gpus for name, gpus in lenders.items() if name and gpus}
    if not named:
        return " of what nobody is guaranteed"
    several = len(named) > 1 or sum(named.values()) < borrowed
    parts = [f"{gpus} from {name}" if several else f" from {name}" for name, gpus in named.items()]
    return f"{': ' if several else ''}{', '.join(parts)} until {'they ask' if len(named) > 1 else 'it asks'}"


def within_guarantee(facts: TenantFacts) -> str:
    """Why a job within the guarantee waits all the same."""
    holds = f"{facts.tenant} holds {facts.used} of {_gpus(facts.guaranteed)} that it is guaranteed"
    return f"{holds}, so the job's {facts.need} are its due: they are not free yet"


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' * (count != 1)}"
