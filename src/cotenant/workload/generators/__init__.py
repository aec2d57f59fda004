"""Workloads made on the spot: `philly-like:jobs=2000,seed=1,load=0.9,gpus=128`.

Parameters of all: `jobs`; `load` = GPU-seconds over GPUs times span, met exactly (0 = the original log's
arrival rate, inf = everything at once); `seed`; `gpus` of the cluster that load refers to (0 = of the
cluster given); `max_gpus` of a job (0 = the cluster's); `mix` = share of jobs per GPU count, as
`[1:0.7/2:0.1/4:0.15/8:0.05]`; `models` = the set they are drawn from (`tiresias`, `gavel`, `h200`, or
`profile`: those of the throughput file given as profile). Those after a log have `tenants` and `users`, how many there
are (0 = as in the log). `gavel-like` and `synergy-like` have more, see there.
"""

from __future__ import annotations

from pathlib import Path

from cotenant.core.errors import unknown
from cotenant.core.spec import Spec
from cotenant.core.workload import Workload
from cotenant.workload.generators.base import Generator
from cotenant.workload.generators.gavel_like import GAVEL_LIKE
from cotenant.workload.generators.helios_like import HELIOS_LIKE
from cotenant.workload.generators.ones_like import ONES_LIKE, ONES_RECORDED
from cotenant.workload.generators.pai_like import PAI_LIKE
from cotenant.workload.generators.philly_like import PHILLY_LIKE
from cotenant.workload.generators.synergy_like import SYNERGY_LIKE

_ALL = (PHILLY_LIKE, HELIOS_LIKE, PAI_LIKE, GAVEL_LIKE, SYNERGY_LIKE, ONES_LIKE, ONES_RECORDED)
GENERATORS: dict[str, Generator] = {generator.name: generator for generator in _ALL}
"""Every generator: name, about, source, defaults."""


def generate(spec: Spec, cluster_gpus: int | None = None, profile: str | Path | None = None) -> Workload:
    """Make the workload that `spec` describes; the same spec, cluster and profile give the same jobs.

    `profile`, where it is a Gavel throughput file, lets `gavel-like` count whole steps as its authors do.
    """
    if spec.name not in GENERATORS:
        raise unknown("generator", spec.name, GENERATORS)
    return GENERATORS[spec.name].make(spec, cluster_gpus, profile)
