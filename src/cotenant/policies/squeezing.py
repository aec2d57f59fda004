"""Whether jobs may squeeze together on a GPU whose memory gives: what every policy that shares GPUs asks."""

from __future__ import annotations

from collections.abc import Sequence

from cotenant.core.view import View


def bears(view: View, row: int, beside: Sequence[int], gpu_type: int) -> bool:
    """Whether a job may join these on a GPU, by the oversubscription cap and the bus.

    Always where memory does not give. Whether there is what all need at least is what policies look at themselves.
    """
    together = view.facts.together
    if together is None or together.soft is None:
        return True
    at = [view.at(job) for job in (*(one for one in beside if one != row), row)]
    kinds, levels = view.kind[at].tolist(), view.level[at].tolist()
    return together.claimed_gib()[kinds, levels].sum() > together.gpu_gib[gpu_type] or not together.refusal(
        kinds, levels, gpu_type
    )
