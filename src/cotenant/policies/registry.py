"""Policies by name: ours, those of entry points, and a user's own file `./mine.py:MyPolicy`."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from cotenant.core.errors import InputError, unknown
from cotenant.core.spec import Spec, typed_params
from cotenant.policies.antman import AntMan
from cotenant.policies.as_is import AsIs
from cotenant.policies.backfill import Backfill
from cotenant.policies.base import OrderPolicy, PlanPolicy, Policy, PriorityPolicy
from cotenant.policies.bsbf import SjfBsbf, SjfBsbfPaper, SjfFfs
from cotenant.policies.chronus import Chronus
from cotenant.policies.easy import Easy
from cotenant.policies.edf import Edf, EdfBackfill
from cotenant.policies.fifo import Fifo
from cotenant.policies.ftf import Ftf
from cotenant.policies.gandiva import Gandiva
from cotenant.policies.gavel import Allox, GandivaPacking, Gavel
from cotenant.policies.horus import Horus, HorusPlus
from cotenant.policies.las import Las
from cotenant.policies.muri import MuriL, MuriS
from cotenant.policies.ones import Ones, OnesGoodput
from cotenant.policies.optimus import Optimus
from cotenant.policies.philly import Philly
from cotenant.policies.qssf import Qssf
from cotenant.policies.random_order import RandomOrder
from cotenant.policies.sjf import Sjf
from cotenant.policies.slurm import SlurmPriority
from cotenant.policies.srsf import Srsf
from cotenant.policies.srtf import Srtf
from cotenant.policies.themis import Themis
from cotenant.policies.tiresias import TiresiasG, TiresiasL

BUILT_IN: tuple[type[Policy], ...] = (
    Fifo, Backfill, Easy, Sjf, Qssf, RandomOrder, Srtf, Srsf, Las, TiresiasL, TiresiasG, Gavel, Allox, GandivaPacking,
    Themis, Ftf, Edf, EdfBackfill, Chronus, Ones, OnesGoodput, Optimus, MuriS, MuriL, SjfBsbf, SjfBsbfPaper, SjfFfs,
    AntMan, Gandiva, Horus, HorusPlus, Philly, SlurmPriority,
)  # fmt: skip


@cache
def known_policies() -> dict[str, type[Policy]]:
    """All policies by name; entry points of group `cotenant.policies` come after ours. Looked up once."""
    found = {policy.name: policy for policy in BUILT_IN}
    for point in entry_points(group="cotenant.policies"):
        if point.name not in found:
            found[point.name] = point.load()
    return found


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
        known: dict[str, type[Policy]] = {
            **known_policies(),
            AsIs.name: AsIs,
        }  # which decides nothing: nobody but a log can be played by it
        if spec.name not in known:
            raise unknown("policy", spec.name, known)
        policy = known[spec.name]
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
