"""Backends by name: `serve --backend local:gpus=4`. Others add theirs as entry points of group `cotenant.backends`.

What an entry point names has `defaults`, its options with their types, and `open(home, **options)`, which gives the
backend; `home` is the service's own folder. It is imported only when it is chosen.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Protocol

from cotenant.backends.base import Backend
from cotenant.core.errors import InputError, unknown
from cotenant.core.spec import Spec, Value, typed_params

GROUP = "cotenant.backends"
BUILT_IN = (
    EntryPoint("local", "cotenant.backends.local:LocalBackend", GROUP),
    EntryPoint("ray", "cotenant.backends.ray:RayBackend", GROUP),
    EntryPoint("slurm", "cotenant.backends.slurm:SlurmBackend", GROUP),
)


class BackendKind(Protocol):
    """What the registry needs of a backend; its class will do."""

    defaults: dict[str, Value]

    def open(self, home: Path, /, **options: Any) -> Backend:
        """The backend with these options."""
        ...


def known_backends() -> dict[str, EntryPoint]:
    """All that can be chosen, by name; ours win."""
    return {point.name: point for point in (*entry_points(group=GROUP), *BUILT_IN)}


def check_backend(text: str) -> tuple[BackendKind, dict[str, Value]]:
    """The kind and the options that a text such as `local:share=mps` names, or one line that says what is wrong."""
    spec = Spec.parse(text)
    known = known_backends()
    if spec.name not in known:
        raise unknown("backend", spec.name, known)
    try:
        kind: BackendKind = known[spec.name].load()
    except (ImportError, AttributeError) as error:
        raise InputError(f"backend '{spec.name}' does not load: {error}") from error
    checked = typed_params(spec, kind.defaults, "backend")
    return kind, {name: checked[name] for name in spec.params}


def open_backend(text: str, home: Path, **more: Any) -> Backend:
    """The backend of a text, with options that were given elsewhere: `--gpus 4` is `local:gpus=4`."""
    kind, options = check_backend(text)
    for name in more:
        if name not in kind.defaults:
            raise InputError(f"--{name}: backend '{text}' has no such option")
        if name in options:
            raise InputError(f"{name} is given twice: by --{name} and in --backend {text}")
    return kind.open(home, **options, **more)
