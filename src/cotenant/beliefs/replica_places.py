"""Where one more replica of an inference service goes: one rule for simulated and live services.

An empty GPU on the fullest node, else one whose training it can bear within its target, else the one whose training is
the smallest to stop. Never a GPU of another replica, of somebody who may not be stopped or has a higher priority, or on
a node that is shut.
"""

from __future__ import annotations

from cotenant.beliefs.serving import MOST_GUESTS, Replica, Replicas
from cotenant.core import columns as col
from cotenant.core.serving import InferenceService
from cotenant.core.state import State


def choose_gpu(
    replicas: Replicas, service: InferenceService, row: int, state: State, rate: float, have: int
) -> tuple[int, int, list[int]] | None:
    """Node, its GPU, and who has to leave it; None where there is no such GPU.

    `rate` is what is foreseen for the whole service, `have` how many replicas it has; -1 where the policy shares with
    nobody.
    """
    taken = {one.cell(state) for one in replicas.all.values()}
    pools = int(state.cls[state.i[row, col.CLASS], col.C_POOLS])
    best: tuple[tuple[float, ...], int, int, list[int]] | None = None
    for node in range(len(state.node)):
        first, end = state.gpu_first[node : node + 2].tolist()
        usable = pools >> int(state.node[node, col.NODE_POOL]) & 1 and not state.node[node, col.NODE_SHUT]
        for cell in range(first, end) if usable else ():
            users = [user for user in state.gpu[cell].tolist() if user >= 0]
            fixed = (state.i[users, col.STATE] == col.PINNED) | (state.f[users, col.TIER] < state.f[row, col.TIER])
            if cell in taken or fixed.any():
                continue
            price = _price(replicas, service, Replica(row, service, node, cell - first), users, state, rate, have)
            if best is None or price < best[0]:
                best = price, node, cell - first, users if price[0] == 2 else []
    return None if best is None else best[1:]


def _price(
    replicas: Replicas, service: InferenceService, place: Replica, users: list[int], state: State, rate: float,
    have: int,
) -> tuple[float, ...]:  # fmt: skip
    """Smaller is better: an empty GPU on the fullest node, training that it can bear, training that is small."""
    if not users:
        return 0, int(state.node[place.node, col.NODE_FREE]), place.node, place.gpu
    room = float(state.gpu_gib[state.pool[state.node[place.node, col.NODE_POOL], col.POOL_TYPE]]) - service.gib
    slow = replicas.slowdown(state, place, users)
    bears = have >= 0 and len(users) <= MOST_GUESTS and float(state.f[users, col.GPU_GIB].sum()) <= room
    if bears and not service.alone and service.p99_s(rate, have + 1, slow) <= service.target_s:
        return 1, slow, place.node, place.gpu
    return 2, int(state.i[users, col.GPUS].sum()), -float(state.f[users, col.SINCE].max()), place.node, place.gpu
