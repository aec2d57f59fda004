"""`--backend slurm:mode=pilot|native,partition=...`: which of the two ways, and with what."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import ClassVar

from cotenant.backends.base import Backend
from cotenant.core.errors import InputError, unknown
from cotenant.core.spec import Value

_PILOT, _NATIVE = ("least", "most", "linger", "time", "margin", "account", "qos"), ("most_jobs",)


class SlurmBackend:
    """What the registry knows: options and their meaning are in docs/slurm.md."""

    defaults: ClassVar[dict[str, Value]] = {
        "mode": "pilot", "partition": "", "listen": "", "poll": 2.0,
        "least": 0, "most": 0, "linger": 300.0, "time": 0.0, "margin": 120.0, "account": "", "qos": "",
        "most_jobs": 0,
    }  # fmt: skip

    @classmethod
    def open(cls, home: Path, *, mode: str = "pilot", **given: Value) -> Backend:
        """The backend of this mode; options of the other one are refused."""
        if mode not in ("pilot", "native"):
            raise unknown("mode of backend 'slurm'", mode, ("pilot", "native"))
        for name in given:
            if name in (_NATIVE if mode == "pilot" else _PILOT):
                raise InputError(f"backend 'slurm': {name}={given[name]} is not for mode={mode}")
        asked = {**cls.defaults, **given}
        partition, listen, poll_s = str(asked["partition"]), str(asked["listen"]), float(str(asked["poll"]))
        if listen and not listen.startswith("tcp:"):
            raise InputError(f"backend 'slurm': listen={listen}: write tcp:host:port, which all nodes can reach")
        if mode == "native":
            from cotenant.backends.slurm.native import NativeBackend

            most = int(str(asked["most_jobs"]))
            return NativeBackend(home, partition, listen=listen, poll_s=poll_s, most=most)
        return _pilot(home.absolute(), partition, listen, poll_s, asked)


def _pilot(home: Path, partition: str, listen: str, poll_s: float, asked: dict[str, Value]) -> Backend:
    from cotenant.backends.slurm.commands import Slurm
    from cotenant.backends.slurm.nodes import NodeList
    from cotenant.backends.slurm.pilot import PilotBackend
    from cotenant.backends.slurm.pilots import Pilots, PilotSettings

    slurm = Slurm(label_of(home))
    times = (float(str(asked[name])) for name in ("time", "margin"))
    settings = PilotSettings(*times, account=str(asked["account"]), qos=str(asked["qos"]))
    nodes = NodeList(slurm, partition, 5.0)
    nodes.all()
    rules = f"queue:linger={asked['linger']},least={asked['least']},most={asked['most']}"
    return PilotBackend(Pilots(home, slurm, nodes, settings, poll_s), home, listen, rules)


def label_of(home: Path) -> str:
    """A short name for a home, by which its jobs are known in Slurm."""
    return hashlib.sha256(os.fsencode((home / "slurm").resolve())).hexdigest()[:12]
