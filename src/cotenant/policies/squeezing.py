"""Whether jobs may squeeze together on a GPU whose memory gives: what every policy that shares GPUs asks."""

from __future__ import annotations

from cotenant.placement.room import SharedRoom


def bears(board: SharedRoom, row: int, gpu: int) -> bool:
    """Whether a GPU may take one more, by the oversubscription cap and the bus; always where memory does not give."""
    together = board.view.facts.together
    if together is None or together.soft is None:
        return True
    jobs = [*(job for job in board.users[gpu] if job != row), row]
    at = [board.view.at(job) for job in jobs]
    levels = board.view.level[at].tolist()
    return not together.refusal(board.view.kind[at].tolist(), levels, int(board.type_of[gpu]))
