"""Horus' search for places against the same rule written out plainly."""

from __future__ import annotations

import numpy as np
import pytest

import effort
from cotenant.core.columns import POOL_HI, POOL_LO
from cotenant.policies.horus.search import PricedGpus, choose

NODES, SIZE = 6, 4


def _gpus(rng: np.random.Generator) -> PricedGpus:
    """Nodes of four GPUs, some of which can take the job, at random costs with ties; cheapest first on each."""
    gpus = NODES * SIZE
    cost = rng.integers(0, 4, gpus).astype(np.float64)
    fit = rng.integers(0, SIZE + 1, NODES)
    line = np.concatenate([n * SIZE + np.argsort(cost[n * SIZE : (n + 1) * SIZE], kind="stable") for n in range(NODES)])
    pool = np.zeros((1, 8), np.int64)
    pool[0, POOL_LO], pool[0, POOL_HI] = 0, NODES
    ints, floats = np.zeros(gpus, np.int64), np.zeros(gpus)
    return PricedGpus(
        users=np.full((gpus, 4), -1), up=np.ones(gpus, np.int64), capacity_mib=floats,
        first=np.arange(0, gpus + 1, SIZE), node=np.zeros((NODES, 8), np.int64), pool=pool, hosts=np.zeros((NODES, 2)),
        binds=0, util=floats, mib=floats, kind=ints, joins=np.zeros((1, 1), np.int64), barred=ints, slow=floats,
        cost=cost, line=line, fit=fit, tried=np.zeros(NODES, np.int64), chosen=ints.copy(), best=ints.copy(),
    )  # fmt: skip


def _plainly(table: PricedGpus, gang: int) -> list[int]:
    here = {n: table.line[n * SIZE : n * SIZE + table.fit[n]].tolist() for n in range(NODES) if table.fit[n]}
    value = {n: min(table.cost[gpus]) for n, gpus in here.items()}
    best: list[int] = []
    fewest = len(here) + 1
    for seed in sorted(value, key=lambda n: (value[n], n))[:gang]:
        gpus: list[int] = []
        nodes = 0
        for n in (seed, *sorted((n for n in here if n != seed), key=lambda n: (abs(n - seed), n))):
            if len(gpus) < gang:
                gpus += here[n][: gang - len(gpus)]
                nodes += 1
        if len(gpus) == gang and nodes < fewest:
            best, fewest = gpus, nodes
    return best


@pytest.mark.parametrize("seed", effort.first(20, range(200)))
def test_the_fewest_nodes_from_the_best_seeds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table, gang = _gpus(rng), int(rng.integers(1, 10))
    assert table.best[: choose(table, 0, gang)].tolist() == _plainly(table, gang)
