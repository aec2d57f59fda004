"""What a sweep goes through: seeds, loads, and with `--vary KEY=A,B` clusters, placements, beliefs and the like."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.cli import options as opt
from cotenant.cli import quotas
from cotenant.cli.setup import Setup

if TYPE_CHECKING:
    from cotenant.core.cluster import Cluster
    from cotenant.sim.driver import Experiment
    from cotenant.sim.sweep import Run

    Make = Callable[[Run], Experiment]

Vary = Annotated[
    list[str] | None,
    typer.Option(
        help="KEY=A,B,...: play all of them; KEY is cluster, nodes, quota.TENANT, guaranteed.TENANT, or an option"
        " such as placement. Repeat."
    ),
]
MOST_VALUES = 10_000  # of one key of a grid
_TIMES = {"round": "round_s", "until": "until"}
_NOT_VARIED = ("seed", "measure", "format_", "skip_infeasible", "defrag", "from_", "to", "where")


def keys() -> dict[str, str]:
    """What may be varied: as it is written -> the field of the setup ('' for the cluster)."""
    own = {one.name.removesuffix("_s"): one.name for one in fields(Setup) if one.name not in _NOT_VARIED}
    return {"cluster": "", "nodes": "", **{name.replace("_", "-"): field for name, field in own.items()}}


def parse(texts: list[str], machines: Cluster) -> dict[str, list[str]]:
    """The grid: what is varied, and over which values."""
    from cotenant.core.errors import InputError, unknown
    from cotenant.core.spec import split_specs

    cells: dict[str, list[str]] = {}
    for text in texts:
        key, equals, rest = text.partition("=")
        tenant = quotas.tenant_of(key)
        if key not in keys() and not tenant:
            raise unknown("--vary key", key, [*keys(), *quotas.KEYS])
        counted = key == "nodes" or bool(tenant)
        values = [str(n) for n in _numbers(key, rest)] if counted else split_specs(rest)
        if not equals or not values or key in cells or len(set(values)) < len(values):
            raise InputError(f"--vary '{text}': write {key}=A,B,... once, with different values")
        if key == "nodes" and len(machines.groups) > 1:
            raise InputError(f"--vary '{text}': cluster '{machines.spec}' has several kinds of nodes; vary cluster=...")
        cells[key] = values
    return cells


def _numbers(key: str, text: str) -> list[int]:
    """`10-60`, `8,16,32` or `10-60:10`, in steps of ten."""
    from cotenant.core.errors import InputError

    found: list[int] = []
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
        if match is None or (key == "nodes" and int(match[1]) < 1) or (match[3] and int(match[3]) < 1):
            raise InputError(f"{key}={text}: write 10-60, 10-60:5 or 8,16,32")
        found += _some(f"{key}={text}", range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1)))
    return found


def _some(what: str, numbers: range) -> range:
    """As many as somebody could want to play."""
    from cotenant.core.errors import InputError

    if len(numbers) > MOST_VALUES:
        raise InputError(f"{what}: {len(numbers):,} values are more than can be played; at most {MOST_VALUES:,}")
    return numbers


def changed(run: Run, setup: Setup, machines: Cluster) -> tuple[Cluster, Setup]:
    """Cluster and options of one cell."""
    changes: dict[str, Any] = {}
    for key, value in run.varied:
        if key == "cluster":
            machines = opt.load_cluster(value)
        elif key == "nodes":
            machines = of_size(machines, int(value))
        elif quotas.tenant_of(key):
            machines = quotas.with_quota(machines, key, int(value))
        else:
            name = keys()[key]
            changes[name] = opt.seconds(value) if key in _TIMES else value
    return machines, replace(setup, **changes)


def of_size(machines: Cluster, nodes: int) -> Cluster:
    """The same kind of nodes, so many of them."""
    group = replace(machines.groups[0], count=nodes)
    spec = re.sub(r"^\d+x", f"{nodes}x", machines.spec) if re.match(r"^\d+x", machines.spec) else f"{nodes} nodes"
    return replace(machines, groups=(group,), spec=spec)


def with_params(text: str, **changes: float | int | None) -> str:
    """A generator with some of its parameters changed."""
    from cotenant.core.spec import Spec

    spec = Spec.parse(text)
    params = {**spec.params, **{key: str(value) for key, value in changes.items() if value is not None}}
    return str(Spec(spec.name, params))


def seeds(text: str) -> list[int]:
    """`0-4` or `1,5,7`."""
    from cotenant.core.errors import InputError

    numbers: list[int] = []
    wrong = InputError(f"--seeds '{text}': write 0-4 or 1,5,7, each once")
    for part in filter(None, text.split(",")):
        if re.fullmatch(r"\d+-\d+", part):
            first, last = (int(end) for end in part.split("-"))
            if first > last:
                raise wrong
            numbers += _some(f"--seeds '{text}'", range(first, last + 1))
        elif part.isdigit():
            numbers.append(int(part))
        else:
            raise wrong
    if len(set(numbers)) < len(numbers):
        raise wrong
    return numbers


def loads(text: str) -> list[float | None]:
    """`0.7,1.0,1.3`."""
    from cotenant.core.errors import InputError

    try:
        numbers: list[float | None] = [float(part) for part in filter(None, text.split(","))]
        if any(number is None or not 0 < number < opt.INFINITY for number in numbers) or len(set(numbers)) < len(
            numbers
        ):
            raise ValueError
    except ValueError:
        raise InputError(f"--loads '{text}': write positive numbers such as 0.7,1.0,1.3, each once") from None
    return numbers
