"""Jobs that share a GPU: its memory, and how they share."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.backends.base import LaunchSpec
from cotenant.backends.local import LocalBackend, mps
from cotenant.backends.local.machine import Machine
from cotenant.core.errors import InputError


def test_virtual_gpus_have_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Machine.find("m", None, ["v100", "k80"]).nodes["m-v100"].gpu_mem_gib == 80.0
    monkeypatch.setenv("COTENANT_VIRTUAL_GPU_MEM", "12.5")
    assert Machine.find("m", None, ["v100"]).nodes["m"].gpu_mem_gib == 12.5
    for wrong in ("x", "0", "-3", "nan", "inf"):
        monkeypatch.setenv("COTENANT_VIRTUAL_GPU_MEM", wrong)
        with pytest.raises(InputError, match=f"COTENANT_VIRTUAL_GPU_MEM is '{wrong}'"):
            Machine.find("m", None, ["v100"])


def test_two_jobs_may_have_one_gpu_and_know_their_limits(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path / "state", gpu_types=["v100"])
    try:
        out = {}
        for name, limit in (("a-1", 10.0), ("b-1", None)):
            out[name] = tmp_path / name
            words = f"echo $CUDA_VISIBLE_DEVICES ${{COTENANT_GPU_MEM_GIB-none}} > {out[name]}"
            gpus = (("local", (0,)),)
            backend.launch(LaunchSpec(name, name[0], str(tmp_path), script=words, gpus=gpus, gpu_mem_gib=limit))
        while any(item.state != "exited" for item in backend.observe()):
            assert backend.wait_change(60.0)
        assert [path.read_text() for path in out.values()] == ["0 10\n", "0 none\n"]
    finally:
        for item in backend.observe():
            backend.kill(item.key)
        backend.close()


def test_mps_is_refused_where_it_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="--share mps needs real GPUs"):
        LocalBackend(tmp_path / "state", gpu_types=["v100"], share="mps")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="nvidia-cuda-mps-control, which is not on the PATH"):
        mps.start(tmp_path / "mps", "nvml")


CONTROL = """#!/bin/sh
if [ "$1" = -d ]; then echo started >> "$CUDA_MPS_LOG_DIRECTORY/calls"; exit ${FAILS:-0}; fi
test -e "$CUDA_MPS_LOG_DIRECTORY/calls"
"""


def test_mps_is_started_once_with_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a script that behaves like the daemon's control program."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / mps.CONTROL).write_text(CONTROL)
    (tools / mps.CONTROL).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    env = mps.start(tmp_path / "mps", "nvml")
    assert mps.start(tmp_path / "mps", "nvml") == env == {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "mps" / "pipe")}
    assert (tmp_path / "mps" / "log" / "calls").read_text() == "started\n"
    monkeypatch.setenv("FAILS", "3")
    with pytest.raises(InputError, match="did not start: it does not say why"):
        mps.start(tmp_path / "other", "nvml")
    assert mps.memory_limit(2, 1.5) == "0=1536M,1=1536M"
