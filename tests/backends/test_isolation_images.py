"""Images: run by whatever tool is installed (stand-ins here), and refused at submission where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from local_world import LocalWorld

from cotenant.backends.local import containers
from cotenant.core.errors import InputError
from cotenant.core.jobspec import JobSpec, parse_job
from cotenant.service.facade import Caller, Role
from cotenant.service.options import Options
from cotenant.service.run import Site, open_service

IMAGE = "docker://python:3.11"
STAND_IN = f'#!/bin/bash\nwhile [[ $1 != {IMAGE} ]]; do echo "$1"; shift; done\nshift\nexec "$@"\n'


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of tools before those of the machine, of which there are none to be found."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(containers, "TOOLS", ("podman-of-test", "apptainer-of-test"))
    return folder


@pytest.mark.parametrize(("tool", "word"), [("apptainer", "--contain"), ("podman", "--cgroups=disabled")])
def test_a_job_runs_in_its_image(
    tools: Path, tmp_path: Path, tool: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tools / tool).write_text(STAND_IN)
    (tools / tool).chmod(0o755)
    monkeypatch.setattr(containers, "TOOLS", (tool,))
    world = LocalWorld(tmp_path, cgroups=False)
    try:
        assert world.backend.capabilities().containers == tool
        checkpoints = str(world.work / "kept")
        env = {"COTENANT_CHECKPOINT_DIR": checkpoints, "MORE": "here"}
        world.launch("1-1", "echo inside $MORE; exit 3", image=IMAGE, env=env)
        assert world.until("1-1", "exited").exit_code == 3
        words = world.log("1-1").splitlines()
        assert words[-1] == "inside here"
        assert word in words
        assert {str(world.work), checkpoints} <= {text.split(":")[0] for text in words}
    finally:
        world.end_all()
        world.backend.close()


def test_gpus_reach_the_container() -> None:
    env = {"A": "1"}
    podman = containers.wrapped("podman", IMAGE, ["run"], env, "/work", "0,2")
    assert [word for word in podman if word.startswith("nvidia.com")] == ["nvidia.com/gpu=0", "nvidia.com/gpu=2"]
    assert "--nv" in containers.wrapped("apptainer", IMAGE, ["run"], env, "/work", "0")
    assert "--nv" not in containers.wrapped("apptainer", IMAGE, ["run"], env, "/work", "")


@pytest.mark.usefixtures("tools")
def test_without_a_tool_an_image_is_refused_at_submission(tmp_path: Path) -> None:
    service = open_service(Options(tmp_path / "home"), Site(gpus=1))
    try:
        with pytest.raises(InputError, match=r"field 'image' is 'docker://python:3.11', but there is neither"):
            service.desk.submit(Caller("me", Role.ADMIN), [JobSpec(run="true", image=IMAGE)])
        assert not service.store.book.jobs
    finally:
        service.close()


@pytest.mark.parametrize("image", ["--privileged", "a b", "x\n", "-v/:/"])
def test_an_image_is_no_option(image: str) -> None:
    with pytest.raises(InputError, match="field 'image'"):
        parse_job({"run": "true", "image": image})
