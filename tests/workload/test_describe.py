from __future__ import annotations

import json

import numpy as np
import pytest

from cotenant.core.spec import Spec
from cotenant.core.workload import Codes, make_workload
from cotenant.workload.describe import describe
from cotenant.workload.generators import GENERATORS, generate


def test_facts_of_a_small_log() -> None:
    work = make_workload(
        "x",
        np.array([0.0, 0.0, 50.0, 100.0]),
        np.array([1, 3, 8, 16]),
        np.array([3600.0, 3600.0, 30.0, 3600.0]),
        status=np.array([1, 1, 2, 3]),
        tenant=Codes(np.array([0, 1, 1, 2]), ("", "a", "b")),
        notes=("x: 2 rows left out (0 GPUs asked)",),
    )
    facts = describe(work, 8)
    assert facts["jobs"] == 4
    assert facts["span_s"] == 100
    assert facts["gpu_hours"] == pytest.approx(1 + 3 + 8 / 120 + 16)
    assert [row["jobs"] for row in facts["sizes"]] == [1, 1, 1, 1]
    assert facts["duration_s"]["p50"] == 3600
    assert facts["status"]["passed"]["jobs"] == 0.5
    assert facts["tenants"] == 2
    assert facts["users"] == 0
    assert facts["infeasible"] == 1
    assert facts["offered_load"] == pytest.approx(work.load(8))
    text = " | ".join(facts["flaws"])
    for flaw in ("2 rows left out", "last under 60 s", "not a power of two", "ties matter", "no attempts"):
        assert flaw in text


@pytest.mark.parametrize("name", GENERATORS)
def test_plain_data_for_every_generator(name: str) -> None:
    facts = describe(generate(Spec.parse(f"{name}:jobs=2000,load=0.9"), 128), 128)
    json.dumps(facts)
    assert facts["offered_load"] == pytest.approx(0.9)
    assert "look cut off" not in " ".join(facts["flaws"])
