from __future__ import annotations

import math
from pathlib import Path

import pytest

from cotenant.core.errors import InputError
from cotenant.workload.cluster_file import load_cluster


def test_spec_text_passes_through() -> None:
    assert load_cluster("15x4").gpus == 60
    with pytest.raises(InputError, match="cluster spec"):
        load_cluster("15y4")


def test_yaml_groups_and_quotas(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "groups:\n  - {nodes: 4, gpus: 8, type: h200, cpu: 96, mem: 768, partition: vcA}\n"
        "  - {nodes: 2, gpus: 4}\nquotas: {vcA: 16}\n"
    )
    cluster = load_cluster(str(path))
    assert cluster.gpus == 40
    assert cluster.groups[0].gpu_type == "h200"
    assert (cluster.groups[0].cpus, cluster.groups[0].mem_gib) == (96, 768)
    assert cluster.groups[1].cpus == math.inf
    assert cluster.partitions == ("vcA", "")
    assert cluster.quotas == {"vcA": 16}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("groups: [{nodes: 4, gpu: 8}]", r"groups\[0\]: unknown field 'gpu': did you mean 'gpus'"),
        ("group: []", r"unknown field 'group': did you mean 'groups'"),
        ("groups: [{nodes: 4}]", r"groups\[0\].gpus is missing"),
        ("groups: [{nodes: 0, gpus: 8}]", r"groups\[0\].nodes is 0; it must be a whole number of at least 1"),
        ("groups: [{nodes: 1, gpus: 8, cpu: lots}]", r"groups\[0\].cpu is 'lots'"),
        ("groups: [{nodes: 1, gpus: 8}]\nquotas: {a: -1}", r"quotas.a is -1"),
        ("groups: []", r"groups: must be a list"),
        ("just text", r"must hold 'groups:'"),
        ("groups: [", r"line \d: broken YAML"),
    ],
)
def test_bad_yaml_names_file_and_field(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "c.yml"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        load_cluster(str(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_yaml(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_cluster(str(tmp_path / "c.yaml"))
