"""`--backend slurm:mode=pilot|native,partition=...`: which of the two ways, and with what."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from cotenant.backends.base import Backend
from cotenant.backends.slurm.native import NativeBackend
from cotenant.core.errors import InputError, unknown
from cotenant.core.spec import Value


class SlurmBackend:
    """What the registry knows: options and their meaning are in docs/slurm.md."""

    defaults: ClassVar[dict[str, Value]] = {
        "mode": "pilot", "partition": "", "listen": "", "poll": 2.0, "most_jobs": 0,
        "least": 0, "most": 0, "linger": 300.0, "time": 0.0, "margin": 120.0, "account": "", "qos": "",
    }  # fmt: skip

    @classmethod
    def open(cls, home: Path, *, mode: str = "pilot", **more: Value) -> Backend:
        """The backend of this mode; options of the other one are refused."""
        if mode not in ("pilot", "native"):
            raise unknown("mode of backend 'slurm'", mode, ("pilot", "native"))
        raise InputError("later")


__all__ = ["NativeBackend", "SlurmBackend"]
