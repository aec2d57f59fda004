"""Policies by name: ours, those of entry points, and a user's own file `./mine.py:MyPolicy`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from functools import cache
from pathlib import Path

from cotenant.core.errors import InputError, unknown
from cotenant.core.spec import Spec, typed_params
from cotenant.policies.base import OrderPolicy, PlanPolicy, Policy, PriorityPolicy

BUILT_IN = {
    "fifo": "fifo:Fifo",
    "backfill": "backfill:Backfill",
    "easy": "easy:Easy",
    "sjf": "sjf:Sjf",
    "qssf": "qssf:Qssf",
    "random": "random_order:RandomOrder",
    "srtf": "srtf:Srtf",
    "srsf": "srsf:Srsf",
    "las": "las:Las",
    "tiresias-l": "tiresias:TiresiasL",
    "tiresias-g": "tiresias:TiresiasG",
    "gavel": "gavel:Gavel",
    "allox": "gavel:Allox",
    "gandiva-packing": "gavel:GandivaPacking",
    "themis": "themis:Themis",
    "ftf": "ftf:Ftf",
    "edf": "edf:Edf",
    "edf-backfill": "edf:EdfBackfill",
    "chronus": "chronus:Chronus",
    "ones": "ones:Ones",
    "ones-goodput": "ones:OnesGoodput",
    "optimus": "optimus:Optimus",
    "muri-s": "muri:MuriS",
    "muri-l": "muri:MuriL",
    "sjf-bsbf": "bsbf:SjfBsbf",
    "sjf-bsbf-paper": "bsbf:SjfBsbfPaper",
    "sjf-ffs": "bsbf:SjfFfs",
    "antman": "antman:AntMan",
    "gandiva": "gandiva:Gandiva",
    "horus": "horus:Horus",
    "horus+": "horus:HorusPlus",
    "philly": "philly:Philly",
    "slurm": "slurm:SlurmPriority",
    "slices": "slices:SlicedGpus",
}
"""Names of ours, with module and class: only what is asked for is loaded."""

_DECIDES_NOTHING = {"as-is": "as_is:AsIs"}  # nobody but a log can be played by it


@cache
def known_policies() -> dict[str, type[Policy]]:
    """All policies by name; entry points of group `cotenant.policies` come after ours. Looked up once."""
    from importlib.metadata import entry_points

    found = {name: _load(where) for name, where in BUILT_IN.items()}
    for point in entry_points(group="cotenant.policies"):
        if point.name not in found:
            found[point.name] = point.load()
    return found


def _load(where: str) -> type[Policy]:
    module, _, name = where.partition(":")
    found: type[Policy] = getattr(importlib.import_module(f"cotenant.policies.{module}"), name)
    return found


def _named(name: str) -> type[Policy]:
    ours = BUILT_IN | _DECIDES_NOTHING
    if name in ours:
        return _load(ours[name])
    if name not in known_policies():
        raise unknown("policy", name, [*known_policies(), *_DECIDES_NOTHING])
    return known_policies()[name]


def make_policy(text: str) -> Policy:
    """A policy from `srsf`, `tiresias-l:threshold=3200,queues=2` or `./mine.py:MyPolicy:key=value`."""
    if ".py" in text.split(":", 1)[0]:
        path, _, rest = text.partition(":")
        if not rest:
            raise InputError(f"policy '{text}': write FILE.py:ClassName")
        spec = Spec.parse(rest)
        policy = _from_file(Path(path), spec.name)
    else:
        spec = Spec.parse(text)
        policy = _named(spec.name)
    params = typed_params(spec, policy.defaults, "policy")
    for key in spec.params:
        value = params[key]
        if isinstance(value, int | float) and value < 0:
            raise InputError(f"policy '{spec.name}': {key}={value:g} must not be negative")
    return policy(**params)


def _from_file(path: Path, name: str) -> type[Policy]:
    if not path.is_file():
        raise InputError(f"policy file '{path}' does not exist")
    spec = importlib.util.spec_from_file_location(f"cotenant_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"policy file '{path}' is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"policy file '{path}' does not load: {type(error).__name__}: {error}") from error
    classes = {
        key: value
        for key, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, Policy) and not inspect.isabstract(value)
        and value not in (OrderPolicy, PriorityPolicy, PlanPolicy)
    }  # fmt: skip
    given = getattr(module, name, None)
    if inspect.isclass(given) and inspect.isabstract(given) and issubclass(given, Policy):
        missing = " and ".join(f"{method}()" for method in sorted(given.__abstractmethods__))
        raise InputError(f"policy class '{name}' in {path} lacks {missing}; see docs/policies.md")
    if name not in classes:
        raise unknown(f"policy class in {path}", name, classes or ["(none: subclass PriorityPolicy)"])
    return classes[name]
