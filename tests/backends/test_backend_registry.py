"""Backends by name, with options typed as those of policies are."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from cotenant.backends import NodeInfo, open_backend, ranks, registry
from cotenant.backends.base import LaunchSpec
from cotenant.backends.fake import FakeBackend
from cotenant.core.errors import InputError


class Elsewhere(FakeBackend):
    """As a third party would write it."""

    defaults: ClassVar[dict[str, Any]] = {"nodes": 1, "slow": False}

    @classmethod
    def open(cls, home: Path, nodes: int = 1, slow: bool = False) -> Elsewhere:
        return cls([NodeInfo(f"n{n}", "gpu", 8, 64, 512.0) for n in range(nodes)], launch_s=60.0 if slow else 0.0)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("elsewhere")
    module.Elsewhere = Elsewhere  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "elsewhere", module)
    points = [
        EntryPoint("elsewhere", "elsewhere:Elsewhere", registry.GROUP),
        EntryPoint("broken", "no_such_module:Backend", registry.GROUP),
        EntryPoint("local", "elsewhere:Elsewhere", registry.GROUP),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points if group == registry.GROUP else [])


def test_local_with_options(tmp_path: Path) -> None:
    for text, more, gpus in (
        ("local:gpus=3", {}, {"local": 3}),
        ("local", {"gpus": 2}, {"local": 2}),
        ("local:gpus=[v100:2,k80:1]", {}, {"local-v100": 2, "local-k80": 1}),
        ("local", {"gpus": ["a", "b", "a"]}, {"local-a": 2, "local-b": 1}),
    ):
        backend = open_backend(text, tmp_path, **more)
        assert {node.name: node.gpus for node in backend.nodes()} == gpus
        assert backend.capabilities().share == "time"
        backend.close()
    backend = open_backend("local:gpus=0,listen=tcp", tmp_path)
    assert backend.listen_at() == ("tcp:127.0.0.1:0", f"unix:{tmp_path / 'runtime.sock'}")
    backend.close()


def test_nodes_of_one_machine_are_one_rank(tmp_path: Path) -> None:
    backend = open_backend("local:gpus=[v100:2,k80:1]", tmp_path)
    nodes = {node.name: node for node in backend.nodes()}
    backend.close()
    (only,) = ranks(LaunchSpec("a-1", "a", gpus=(("local-v100", (0, 1)), ("local-k80", (0,)))), nodes)
    assert (only.ranks, only.environment()) == (1, {})


@pytest.mark.usefixtures("installed")
def test_others_are_found_by_their_entry_point(tmp_path: Path) -> None:
    backend = open_backend("elsewhere:nodes=3,slow=yes", tmp_path)
    assert isinstance(backend, Elsewhere)
    assert (len(backend.nodes()), backend.launch_s) == (3, 60.0)
    ours = open_backend("local:gpus=0", tmp_path)
    ours.close()
    assert not isinstance(ours, Elsewhere), "a name of ours cannot be taken"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("text", "more", "says"),
    [
        ("lokal", {}, "unknown backend 'lokal': did you mean 'local'"),
        ("nomad", {}, "unknown backend 'nomad': known: broken, elsewhere, local, ray, slurm"),
        ("broken", {}, "backend 'broken' does not load"),
        ("local:gpu=3", {}, "unknown parameter of backend 'local' 'gpu': did you mean 'gpus'"),
        ("local:gpus=x", {}, "--gpus x: write a number"),
        ("local:share=half", {}, "unknown --share 'half'"),
        ("local:listen=udp", {}, "write unix, tcp or tcp:host:port"),
        ("local:gpus=1", {"gpus": 2}, "gpus is given twice"),
        ("elsewhere:nodes=x", {}, "nodes=x is not a whole number"),
        ("elsewhere", {"gpus": 2}, "--gpus: backend 'elsewhere' has no such option"),
    ],
)
def test_mistakes_are_one_clear_line(tmp_path: Path, text: str, more: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        open_backend(text, tmp_path, **more)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
