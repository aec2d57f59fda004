from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from cotenant.core.errors import InputError
from cotenant.core.tenants import Tenant, Tree, UserLimits
from cotenant.workload.cluster_file import load_cluster

TEXT = """
groups: [{nodes: 4, gpus: 8, dedicated: [vision], labels: {rack: a3}}, {nodes: 12, gpus: 8}]
fair_share: {half_life: 7d, min_run: 30, reserve_after: 5m}
tenants:
  research:
    guaranteed: 64
    weight: 2
    children:
      vision: {guaranteed: 32, borrow: 16, lend: 8, admins: [ada], limits: {gpus: 16, pending_jobs: 100}}
      nlp: {guaranteed: 32, only_dedicated: true}
  product: {guaranteed: 64, guaranteed_by_type: {h200: 8}, ceiling: 96, cpu: 100, highest_priority: 5}
  default:
"""


def read(tmp_path: Path, text: str) -> Tree:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    tree = load_cluster(str(path)).tenants
    assert tree is not None
    return tree


def test_a_file_with_tenants(tmp_path: Path) -> None:
    tree = read(tmp_path, TEXT)
    assert [tenant.name for tenant in tree.tenants] == ["research", "vision", "nlp", "product", "default"]
    assert tree.of("vision") == Tenant(
        "vision", "research", 32, borrow=16, lend=8, admins=("ada",), limits=UserLimits(gpus=16, pending_jobs=100)
    )
    assert tree.of("nlp").only_dedicated
    assert (tree.half_life_s, tree.min_run_s, tree.reserve_after_s) == (7 * 86400.0, 30.0, 300.0)
    assert tree.path("vision") == ("vision", "research")
    assert tree.guaranteed("") == 128
    groups = load_cluster(str(tmp_path / "c.yaml")).groups
    assert groups[0].dedicated == ("vision",)
    assert groups[0].labels == (("rack", "a3"),)


def test_one_form_for_files_records_and_requests(tmp_path: Path) -> None:
    tree = read(tmp_path, TEXT)
    said = json.loads(json.dumps(tree.as_dict()))
    assert Tree.from_dict(said, "record") == tree
    assert Tree.from_dict(Tree().as_dict(), "record") == Tree()


def test_order_of_declaration_does_not_matter_for_parents() -> None:
    tree = Tree((Tenant("b", "a"), Tenant("c"), Tenant("a")))
    assert [tenant.name for tenant in tree.tenants] == ["c", "a", "b"]


def test_who_is_not_declared_stands_under_default() -> None:
    tree = Tree((Tenant("default", guaranteed=8, ceiling=16, limits=UserLimits(gpus=4), default_priority=2),))
    found = tree.of("stranger")
    assert found == Tenant("stranger", "default", limits=UserLimits(gpus=4), default_priority=2)
    assert tree.path("stranger") == ("stranger", "default")
    assert Tree().of("stranger") == Tenant("stranger")


def test_guarantees_add_up() -> None:
    tree = Tree((Tenant("a"), Tenant("b", "a", 8), Tenant("c", "a", guaranteed_by_type=(("h200", 4),))))
    assert (tree.guaranteed("a"), tree.guaranteed("c"), tree.guaranteed("nobody")) == (12, 4, 0)


def test_changes_give_new_trees() -> None:
    tree = Tree((Tenant("a", guaranteed=8), Tenant("b", "a", 4)))
    assert tree.with_(Tenant("b", "a", 6)).of("b").guaranteed == 6
    assert [tenant.name for tenant in tree.with_(Tenant("c", "a")).children("a")] == ["b", "c"]
    assert "b" not in tree.without("b")
    with pytest.raises(InputError, match="'a' has children"):
        tree.without("a")
    with pytest.raises(InputError, match="unknown tenant 'x'"):
        tree.without("x")
    with pytest.raises(InputError, match="guaranteed is 8, but its children are guaranteed 9"):
        tree.with_(Tenant("c", "a", 5))


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ("{a: {guarantee: 1}}", r"tenants\.a: unknown field 'guarantee': did you mean 'guaranteed'"),
        ("{a: {guaranteed: -1}}", r"tenants\.a\.guaranteed is -1; it must be a whole number of at least 0"),
        ("{a: {weight: 0}}", r"tenants\.a\.weight is 0; it must be a positive number"),
        ("{a: {children: {b: {ceiling: x}}}}", r"tenants\.a\.children\.b\.ceiling is 'x'"),
        ("{a: {children: [b]}}", r"tenants\.a\.children: must be a mapping such as"),
        ("{a: 5}", r"tenants\.a: must be a mapping such as"),
        ("{a: {}, b: {children: {a: {}}}}", r"tenant 'a' is there twice"),
        ("{a: {guaranteed: 8, ceiling: 4}}", r"tenant 'a': ceiling is 4, below the 8"),
        ("{a: {guaranteed: 1, guaranteed_by_type: {h200: 2}}}", r"its GPU types are guaranteed 2"),
        ("{a: {limits: {gpu: 1}}}", r"tenants\.a\.limits: unknown field 'gpu'"),
        ("{a: {reclaims: maybe}}", r"reclaims is 'maybe'; write true or false"),
        ("{a: {default_priority: 3, highest_priority: 1}}", r"default_priority is 3, above highest_priority 1"),
        ("{a: {guaranteed: 33}}", r"33 GPUs are guaranteed, but the cluster has 32"),
        ("{}\nquotas: {a: 3}", r"write quotas\.NAME as tenants\.NAME\.ceiling"),
        ("{}\nfair_share: {half_life: soon}", r"'fair_share.half_life' is soon: write seconds"),
        ("{}\nfair_share: {half_life: 0}", r"fair_share.half_life is 0.0; it must be a positive time"),
    ],
)
def test_complaints_name_file_and_field(tmp_path: Path, said: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint) as caught:
        read(tmp_path, f"groups: [{{nodes: 4, gpus: 8}}]\ntenants: {said}\n")
    assert str(caught.value).startswith(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_dedication_names_tenants(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"groups\[0\]\.dedicated: unknown tenant 'visin': did you mean 'vision'"):
        read(tmp_path, "groups: [{nodes: 4, gpus: 8, dedicated: [visin]}]\ntenants: {vision: {}}\n")


def test_a_parent_below_its_child() -> None:
    with pytest.raises(InputError, match="'parent' is 'b', which is below it"):
        Tree((Tenant("a", "b"), Tenant("b", "a")))
    with pytest.raises(InputError, match="unknown tenant 'x'"):
        Tree((Tenant("a", "x"),))


def test_plain_trees_know_only_now() -> None:
    assert Tree().half_life_s == math.inf
