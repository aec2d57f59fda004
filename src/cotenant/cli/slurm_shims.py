"""`cotenant slurm-shims`: drop-in `sbatch`, `squeue`, `scancel`, `sinfo` and `sacct` that speak to our service."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

SHIMS = ("sbatch", "squeue", "scancel", "sinfo", "sacct")
_MARK = "cotenant.cli.slurm_verbs"


def slurm_shims(
    folder: Annotated[str, typer.Argument(help="Where to put them; then: export PATH=DIR:$PATH.", metavar="DIR")],
    force: Annotated[bool, typer.Option("--force", help="Replace files of these names that are not ours.")] = False,
) -> None:
    """Write small scripts named as Slurm's commands, for the verbs and flags that are used most (docs/slurm.md)."""
    from cotenant.core.errors import InputError

    target = Path(folder).expanduser()
    paths = [target / name for name in SHIMS]
    for path in paths:
        if path.exists() and not force and _MARK not in path.read_text(encoding="utf-8", errors="replace"):
            raise InputError(f"'{path}' is there and is not ours: choose another folder, or --force")
    try:
        target.mkdir(parents=True, exist_ok=True)
        for path in paths:
            path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m {_MARK} {path.name} "$@"\n')
            os.chmod(path, 0o755)
    except OSError as error:
        raise InputError(f"cannot write to '{target}': {error.strerror}") from None
    typer.echo(f"wrote {', '.join(SHIMS)}; now: export PATH={shlex.quote(str(target.absolute()))}:$PATH")
