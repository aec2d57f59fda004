"""`cotenant doctor`: what is wrong with this set-up."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

import typer

from cotenant.cli import options as opt
from cotenant.cli import remote

LOW_DISK_GIB = 1.0


@dataclass(frozen=True, slots=True)
class Check:
    """One finding: ok, a warning that something works less well, or a failure, with the fix in the text."""

    name: str
    result: Literal["ok", "warn", "fail"]
    text: str


def doctor(json_: opt.Plain = False) -> None:
    """Check this machine and the service. Exit code 1 if something fails; warnings are only told."""
    checks = [_guarded(check) for check in (_python, _home, _token, _disk, _service, _gpus, _cgroups, _isolation)]
    if json_:
        remote.print_json([asdict(check) for check in checks])
    else:
        for check in checks:
            typer.echo(f"{check.result:<4}  {check.name:<9}  {remote.clean(check.text)}")
    if any(check.result == "fail" for check in checks):
        raise typer.Exit(1)


def _guarded(check: Callable[[], Check]) -> Check:
    try:
        return check()
    except Exception as error:
        return Check(check.__name__.strip("_"), "fail", f"could not be checked: {type(error).__name__}: {error}")


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    good = sys.version_info >= (3, 11)
    return Check("python", "ok" if good else "fail", f"{version} at {sys.executable}" + ("" if good else ": take 3.11"))


def _home() -> Check:
    from cotenant.client.home import home

    folder = home()
    if not folder.exists():
        parent = next((item for item in folder.absolute().parents if item.exists()), None)
        if parent is not None and os.access(parent, os.W_OK):
            return Check("home", "ok", f"{folder} will be made by `cotenant serve`")
        return Check("home", "fail", f"{folder} cannot be made: set COTENANT_HOME")
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        return Check("home", "fail", f"{folder} is not a folder that you can write: set COTENANT_HOME")
    if stat.S_IMODE(folder.stat().st_mode) & 0o022:
        return Check("home", "warn", f"others can write {folder}: chmod go-w {folder}")
    return Check("home", "ok", str(folder))


def _token() -> Check:
    from cotenant.client.home import home

    path = home() / "token"
    if os.environ.get("COTENANT_TOKEN"):
        return Check("token", "ok", "from COTENANT_TOKEN")
    if not path.exists():
        return Check("token", "warn", f"no {path}: `cotenant serve` makes it at its first start")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        return Check("token", "fail", f"{path} has mode {mode:04o}: others may read it; chmod 600 {path}")
    return Check("token", "ok", f"{path}, mode {mode:04o}")


def _disk() -> Check:
    from cotenant.client.home import home

    folder = next(item for item in (home().absolute(), *home().absolute().parents) if item.exists())
    free_gib = shutil.disk_usage(folder).free / 2**30
    text = f"{free_gib:.1f} GiB free at {folder}"
    return Check("disk", "ok" if free_gib >= LOW_DISK_GIB else "warn", text)


def _service() -> Check:
    from cotenant.client import Client, Denied, Unreachable
    from cotenant.core.errors import CotenantError

    with Client(timeout_s=5.0) as client:
        try:
            policy = client.policy()
        except Unreachable as error:
            return Check("service", "warn", str(error))
        except (Denied, CotenantError) as error:
            return Check("service", "fail", str(error))
        if not client.ready():
            return Check("service", "warn", f"{client.url} answers but is not ready yet")
        return Check("service", "ok", f"{client.url}, policy {policy}")


def _gpus() -> Check:
    from cotenant.backends.local import gpus

    found = gpus.find()
    if not found:
        return Check("gpus", "warn", "NVML shows none: `cotenant serve --gpus 4` gives virtual ones to try with")
    kinds = [gpu.gpu_type for gpu in found]
    return Check("gpus", "ok", ", ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds)))


def _cgroups() -> Check:
    from cotenant.backends.local import cgroups

    found = cgroups.find()
    if "track" in found.parents and "memory" in found.parents:
        return Check("cgroups", "ok", f"limits below {found.parents['memory']}")
    lacking = "; ".join(found.notes) or "none are mounted"
    return Check("cgroups", "warn", f"memory is limited per process only: {lacking}")


def _isolation() -> Check:
    """Which levels of `serve --isolation` are possible here, and why others are not."""
    from cotenant.backends.local.containers import find_tool
    from cotenant.backends.local.isolation.levels import why_not

    refused = {level: why for level in ("user", "sandbox") if (why := why_not(level))}
    images = find_tool() or "neither apptainer nor podman"
    if not refused:
        return Check("isolation", "ok", f"none, user and sandbox are possible; for images: {images}")
    why = "; ".join(f"not {level}: {text}" for level, text in refused.items())
    could = "none and user" if "user" not in refused else "none"
    return Check("isolation", "warn", f"possible: {could}; {why}; for images: {images}")
