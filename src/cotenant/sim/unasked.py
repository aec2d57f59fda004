"""Runs in which a policy need not be asked for what it would surely answer (`engine.giving`)."""

from __future__ import annotations

import numpy as np

from cotenant.compat import Compat
from cotenant.core import columns as col
from cotenant.core.state import State, has_tiers
from cotenant.core.traits import Traits
from cotenant.sim.experiment import Experiment

ROWS = 4096  # things that may be given between two plans, beside all GPUs once


def with_giving(state: State, e: Experiment, traits: Traits) -> State:
    """The tables, with room to write down what is given where that is so.

    Only where nothing else follows from a decision: on nodes that stay up, where GPUs are had alone and at once, nobody
    has a priority or shares by a tree, and cores and memory do not bind.
    """
    world = e.power or e.crash or e.services or e.defrag or e.network or e.fail_nodes is not None or e.cluster.network
    tables = state.x[[col.LAGS, col.SHARING, col.TENANTS, col.ROTATES, col.USE_HOST, col.PINS]].any()
    told = e.transitions or has_tiers(state) or Compat(e.compat).quirks.keys() - {"gavel"}
    if not traits.names_pools or traits.shares or traits.resizes or world or told or tables:
        return state
    gpus = int(state.node[:, col.NODE_CAP].sum())
    return state._replace(given=np.zeros((gpus + ROWS, 3)), around=np.zeros(len(state.f), np.int64))
