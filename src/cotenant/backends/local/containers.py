"""Jobs in images, by whatever of apptainer and podman is installed: no daemon, all processes below the keeper."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence

TOOLS = ("apptainer", "podman")


def find_tool() -> str:
    """The one that is used here, '' where there is none."""
    return next((tool for tool in TOOLS if shutil.which(tool)), "")


def wrapped(
    tool: str, image: str, argv: Sequence[str], env: Mapping[str, str], workdir: str, gpus: str
) -> tuple[str, ...]:  # fmt: skip
    """The command that runs another one in an image, with this environment.

    Of the machine's files it sees its working directory, its checkpoints and the service's socket, each at its own
    place; `gpus` are the numbers of real ones, '' where it has none.
    """
    places = (workdir, env.get("COTENANT_CHECKPOINT_DIR", ""), os.path.dirname(env.get("COTENANT_SOCKET", "")))
    shown = [path for path in dict.fromkeys(places) if path not in ("", "/")]
    if tool == "apptainer":
        binds = [word for path in shown for word in ("--bind", path)]
        options = ["exec", "--contain", "--no-home", *(["--nv"] if gpus else []), *binds, "--pwd", workdir]
        return (tool, *options, image, *argv)
    volumes = [word for path in shown for word in ("--volume", f"{path}:{path}")]
    names = [word for name in env for word in ("--env", name)]
    devices = [word for index in gpus.split(",") if index for word in ("--device", f"nvidia.com/gpu={index}")]
    fixed = ["run", "--rm", "--cgroups=disabled", "--network=host", "--security-opt=no-new-privileges"]
    return (tool, *fixed, *devices, *volumes, *names, "--workdir", workdir, image, *argv)
