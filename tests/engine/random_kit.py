"""Random clusters and experiments for the properties of the engine."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
from hypothesis import strategies as st

from cotenant.core.cluster import Cluster, NodeGroup
from cotenant.engine.tables import infeasible
from cotenant.sim.driver import Experiment
from cotenant.sim.setup import lay_out

TENANTS = ("ada", "bob", "eve")


def clusters(
    *, most_groups: int, gpus_per_node: list[int], gpu_types: list[str], cpus: list[float], mem_gib: list[float],
    quotas: tuple[int, int],
) -> st.SearchStrategy[Cluster]:  # fmt: skip
    """Up to `most_groups` groups of 1 to 3 nodes, some kept for a tenant, and quotas for up to two tenants."""
    groups = st.builds(
        NodeGroup,
        count=st.integers(1, 3),
        gpus_per_node=st.sampled_from(gpus_per_node),
        gpu_type=st.sampled_from(gpu_types),
        cpus=st.sampled_from([inf, inf, *cpus]),
        mem_gib=st.sampled_from([inf, inf, *mem_gib]),
        partition=st.sampled_from(["", "", "", "ada"]),
    )
    return st.builds(
        Cluster,
        groups=st.lists(groups, min_size=1, max_size=most_groups).map(tuple),
        quotas=st.dictionaries(st.sampled_from(TENANTS), st.integers(*quotas), max_size=2),
        spec=st.just("random"),
    )


def with_feasible_jobs(experiment: Experiment) -> Experiment:
    """The same with only the jobs that the cluster can hold at all."""
    keep = np.ones(len(experiment.workload), bool)
    state, _, rows = lay_out(experiment, experiment.workload)
    keep[infeasible(state, rows)] = False
    experiment.notes.clear()
    return replace(experiment, workload=experiment.workload.take(keep))
