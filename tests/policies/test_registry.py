"""Policies go by the names that they have, and only those that are asked for are loaded."""

from __future__ import annotations

import subprocess
import sys

from cotenant.policies.registry import BUILT_IN, known_policies


def test_names_are_those_of_the_classes() -> None:
    known = known_policies()
    assert [known[name].name for name in BUILT_IN] == list(BUILT_IN)


def test_a_run_loads_the_policy_that_it_plays() -> None:
    """What others need (solvers, allocators, the systems of `compat`) costs every command its start."""
    code = (
        "import sys, cotenant.sim.driver; from cotenant.policies import make_policy; make_policy('srsf')\n"
        "print(*sorted(name for name in sys.modules if name.startswith('cotenant.')))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "cotenant.policies.srsf" in loaded
    rooms = {"solvers", "allocation", "power", "learning"}
    heavy = [name for name in loaded if name.split(".")[1] in rooms or name.startswith("cotenant.policies.gavel")]
    assert not heavy
    assert not [name for name in loaded if name.startswith("cotenant.compat.")]
