"""`cotenant profile` on real processes: slow, needs cores."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cotenant.backends.local import LocalBackend
from cotenant.core.errors import CotenantError, InputError
from cotenant.profiler import profile_cores

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_hungry_script_has_a_growing_curve(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path, gpus=0)
    if not backend.capabilities().cpu_quota:
        pytest.skip("no CPU quota here")
    command = [sys.executable, str(ROOT / "examples" / "cpu_steps.py"), "--steps", "1000000", "--cpu", "0.002"]
    found = profile_cores(backend, command, most=0.2, least=0.05, seconds=1.5, env={"PYTHONPATH": str(ROOT / "src")})
    backend.close()
    assert found.curve.cores[0] == pytest.approx(0.05)
    assert found.curve.steps_per_s[-1] > 2 * found.curve.steps_per_s[0]


def test_nonsense_is_refused(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path, gpus=0)
    with pytest.raises(InputError, match="cores"):
        profile_cores(backend, ["true"], most=1, least=2)
    with pytest.raises(CotenantError, match="runtime"):
        profile_cores(backend, ["true"], most=1, least=1, seconds=0.2)
    backend.close()
