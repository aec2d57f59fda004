"""Whether jobs may squeeze together on a GPU whose memory gives: what every policy that shares GPUs asks."""

from __future__ import annotations

from collections.abc import Sequence

from cotenant.placement.room import SharedRoom


def bears(board: SharedRoom, row: int, beside: Sequence[int], gpu: int) -> bool:
    """Whether a job may join these on a GPU, by the oversubscription cap and the bus.

    Always where memory does not give. Whether there is what all need at least is what policies look at themselves.
    """
    together = board.view.facts.together
    if together is None or together.soft is None:
        return True
    at = [board.view.at(job) for job in (*(one for one in beside if one != row), row)]
    kinds, levels, where = board.view.kind[at].tolist(), board.view.level[at].tolist(), int(board.type_of[gpu])
    return together.claimed_gib()[kinds, levels].sum() > together.gpu_gib[where] or not together.refusal(
        kinds, levels, where
    )
