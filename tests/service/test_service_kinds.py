"""Kinds of jobs that the service has not seen before, under policies that keep tables by kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from service_kit import Rig

from cotenant.backends.base import NodeInfo

MODELS = ("resnet18_cifar", "recsys", "bert_base")


@pytest.mark.parametrize(
    "policy",
    [
        "sjf-bsbf", "sjf-bsbf:pairs=learned", "sjf-bsbf:noise=0.2", "gandiva", "antman", "horus", "horus+",
        "horus:noise=0.2",
    ],
)  # fmt: skip
def test_policies_get_to_know_kinds_that_come_later(policy: str, tmp_path: Path) -> None:
    """Each model is submitted when jobs of the others have run for a while; two on a GPU at most run on."""
    rig = Rig(tmp_path, policy, (NodeInfo("n0", "h200", 1, 8, 64.0, gpu_mem_gib=140.0),), profile="h200")
    rig.shares = rig.in_parts = True
    jobs = []
    for model in MODELS:
        jobs.append(rig.submit("sleep 100", model=model, expected="100s"))
        rig.ticks(40)
    rig.finish()
    assert [rig.state(job) for job in jobs] == ["succeeded"] * len(MODELS)
