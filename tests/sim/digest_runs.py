"""Run as a program: digests of many runs, as JSON on standard output.

Its arguments are `compiled` or `plain`, a number of jobs, and policies.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from cotenant.core import jit
from cotenant.core.cluster import Cluster
from cotenant.core.outcome import Outcome
from cotenant.policies import known_policies
from cotenant.sim.driver import Experiment, simulate
from cotenant.testing.policy import random_workload

TWIN = Path(__file__).parents[1] / "policies" / "numpy_twins.py"
TEXTBOOK = "srsf:weigh=false"
MORE = ("tiresias-l:thresholds=[400,1600],knob=4", "tiresias-g:quantum=sup", f"{TWIN}:Srsf")
POLICIES = (*known_policies(), TEXTBOOK, *MORE)
SETTINGS = {
    "count": {"placement": "count", "costs": "none"},
    "consolidated": {"placement": "consolidated", "costs": "6"},
    "relaxed": {"placement": "relaxed:after=40", "costs": "6", "estimator": "noisy:error=1", "profile": "tiresias"},
    "asked": {"placement": "consolidated", "costs": "6"},  # with priorities and numbers of nodes
    "failing": {"placement": "skew", "costs": "6", "fail_nodes": "mtbf=2000,mttr=60,checkpoint=15"},
}
CLUSTER = "1x8+2x4/cpu=64,mem=512"


def digest(outcome: Outcome) -> str:
    """One number for everything that a run says about its jobs, byte by byte."""
    columns = ("first_start_s", "finish_s", "queue_s", "preemptions", "restarts", "lost_gpu_s")
    text = b"".join(getattr(outcome, name).tobytes() for name in columns)
    for column in (outcome.segments.node, outcome.segments.start_s, outcome.series.time_s):
        text += np.ascontiguousarray(column).tobytes()
    return hashlib.sha256(text).hexdigest()[:16]


def digests(compiled: bool, jobs: int, policies: tuple[str, ...] = POLICIES) -> dict[str, str]:
    """Digest of every policy in every setting."""
    plain, found = random_workload(11, jobs, 16), {}
    parts = np.where((plain.gpus % 2 == 0) & (plain.gpus <= 8), 2, 0)
    asked = replace(plain, priority=np.arange(jobs) % 7 // 3, nodes=parts)
    for policy in policies:
        for name, options in SETTINGS.items():
            experiment = Experiment(
                asked if name == "asked" else plain,
                Cluster.parse(CLUSTER),
                policy,
                round_s=30.0,
                seed=5,
                compiled=compiled,
                **options,
            )
            found[f"{policy.rsplit('/', 1)[-1]} {name}"] = digest(simulate(experiment))
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"digests": digests(sys.argv[1] == "compiled", int(sys.argv[2]), tuple(sys.argv[3:]))}))
    assert jit.enabled() == (sys.argv[1] == "compiled")
