"""`cotenant service`: have systemd run the service."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from cotenant.cli import options as opt
from cotenant.cli import remote

app = typer.Typer(
    help="Have systemd start the service, and keep it running.", no_args_is_help=True, rich_markup_mode=None
)

System = Annotated[bool, typer.Option("--system", help="For the machine (root), not for your user alone.")]
Name = Annotated[str, typer.Option(help="Name of the unit.")]

# Jobs outlive the service: `process` has systemd end the service alone, and `Delegate` leaves the groups to us.
_UNIT = """\
[Unit]
Description=Cotenant, a scheduler for shared GPU clusters
After=network.target

[Service]
Type=exec
ExecStart={command}
Environment=COTENANT_HOME={home}
KillMode=process
Delegate=yes
Restart=on-failure
RestartPreventExitStatus=2
RestartSec=2
TimeoutStopSec=60

[Install]
WantedBy={target}
"""


@app.callback()
def _service() -> None:
    """Have systemd start the service, and keep it running."""


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def install(
    context: typer.Context,
    system: System = False,
    name: Name = "cotenant",
    home: Annotated[str, typer.Option(help="Home of the service; else COTENANT_HOME or ~/.cotenant.")] = "",
) -> None:
    """Write a unit that runs `cotenant serve` with the options after `--`, and start it.

    Where there is no systemd, print the unit and the commands instead, and change nothing.
    """
    from cotenant.client.home import home as default_home

    folder = Path(home).expanduser().absolute() if home else default_home()
    command = [sys.executable, "-m", "cotenant.cli.main", "serve", "--home", str(folder), *context.args]
    escaped = shlex.join(command).replace("%", "%%")
    unit = _UNIT.format(
        command=escaped, home=str(folder).replace("%", "%%"), target="multi-user.target" if system else "default.target"
    )
    path, control = _place(system, name), _control(system)
    steps = [[*control, "daemon-reload"], [*control, "enable", "--now", f"{name}.service"]]
    if not _has_systemd():
        typer.echo(f"# no systemd here: write this to {path}\n{unit}\n# and run")
        typer.echo("\n".join(map(shlex.join, steps)))
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(unit, encoding="utf-8")
    _run(steps)
    typer.echo(f"{path}: started; see `cotenant service status`" + ("" if system else _linger()))


@app.command()
def uninstall(system: System = False, name: Name = "cotenant") -> None:
    """Stop the service and remove its unit. Jobs run on, and all that is at home stays."""
    from cotenant.core.errors import InputError

    path, control = _place(system, name), _control(system)
    if not path.exists():
        raise InputError(f"there is no unit {path}: nothing to remove")
    if _has_systemd():
        _run([[*control, "disable", "--now", f"{name}.service"]])
    path.unlink()
    if _has_systemd():
        _run([[*control, "daemon-reload"]])
    typer.echo(f"{path}: removed")


@app.command()
def status(system: System = False, name: Name = "cotenant", json_: opt.Plain = False) -> None:
    """Whether the unit is there and runs. Exit code 1 if it does not."""
    path = _place(system, name)
    state = "no systemd"
    if _has_systemd():
        asked = [*_control(system), "is-active", f"{name}.service"]
        state = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    found = {"unit": str(path), "installed": path.exists(), "state": state}
    there = "" if path.exists() else " (not installed)"
    remote.print_json(found) if json_ else typer.echo(f"{path}{there}: {state}")
    if state != "active":
        raise typer.Exit(1)


def _place(system: bool, name: str) -> Path:
    user = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"
    return (Path("/etc/systemd/system") if system else user) / f"{name}.service"


def _control(system: bool) -> list[str]:
    return ["systemctl"] if system else ["systemctl", "--user"]


def _has_systemd() -> bool:
    return shutil.which("systemctl") is not None and os.path.isdir(os.environ.get("SYSTEMD_RUN", "/run/systemd/system"))


def _run(steps: list[list[str]]) -> None:
    from cotenant.core.errors import InputError

    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode:
            said = " ".join((done.stderr or done.stdout).split())
            raise InputError(f"`{shlex.join(step)}` failed: {said}")


def _linger() -> str:
    return "; to have it run while you are logged out: loginctl enable-linger"
