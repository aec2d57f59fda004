"""Options that several verbs share, and how their texts become objects."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from cotenant.core.cluster import Cluster
    from cotenant.core.serving import InferenceService
    from cotenant.core.workload import Workload

Trace = Annotated[str, typer.Argument(help="Job log (csv, json, gz, parquet) or a generator: philly-like:jobs=2000.")]
ClusterSpec = Annotated[
    str, typer.Option("--cluster", help="15x4, 32x8:h200, 9x4:v100+9x4:p100, 4x8/cpu=96,mem=768, or YAML.")
]
PolicySpec = Annotated[str, typer.Option("--policy", help="A policy (see `cotenant policies`) or ./mine.py:MyPolicy.")]
Placement = Annotated[str, typer.Option(help="count, consolidated, relaxed:after=S, spread or skew:limit=X.")]
Allocator = Annotated[
    str, typer.Option(help="Cores and memory: fixed (as asked), proportional, synergy-tune, ... (see `policies`).")
]
Profile = Annotated[str, typer.Option(help="Truth about speeds: none, tiresias, h200, h200-loader, or a file.")]
Models = Annotated[str, typer.Option(help="Give jobs without a model one of: gavel, h200, tiresias, profile[:seed=S].")]
Estimator = Annotated[str, typer.Option(help="Belief: oracle (usual default), noisy:error=0.5, mean, rolling, gbdt.")]
Costs = Annotated[
    str,
    typer.Option(
        help="Of preemptions: default (measured, by model, or 60 s), profile, none, flat, startup, or seconds."
    ),
]


def seconds(text: str) -> float:
    """A length of time as it is typed: 90, 30m, 1h, inf."""
    from cotenant.core.errors import InputError
    from cotenant.core.jobspec import seconds_of

    try:
        return float(text)
    except ValueError:
        pass
    try:
        return seconds_of(text, "a time:")
    except InputError:
        raise typer.BadParameter(f"'{text}' is not a time: write seconds, or e.g. 90s, 30m, 2h, 1d") from None


Round = Annotated[
    float,
    typer.Option("--round", parser=seconds, metavar="TIME", help="Of a round: 360, 6m; where policies have them."),
]
Compat = Annotated[
    str,
    typer.Option(help="Follow a released simulator: tiresias, gavel, synergy, muri, chronus, or SYSTEM:QUIRK=VALUE."),
]
Measure = Annotated[str, typer.Option(help="FROM-TO: metrics over these jobs (rank by submit time), stop when done.")]
Until = Annotated[float, typer.Option(parser=seconds, metavar="TIME", help="Stop at this second, or e.g. 2h, 30d.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]
FailJobs = Annotated[
    str, typer.Option("--fail-jobs", help="attempts=N: jobs without attempts of their own fail at random.")
]
FailNodes = Annotated[str, typer.Option("--fail-nodes", help="mtbf=S,mttr=S[,checkpoint=S]: nodes fail at random.")]
Defrag = Annotated[
    bool, typer.Option("--defrag", help="Move running jobs together where that lets a waiting gang start sooner.")
]
Network = Annotated[
    str,
    typer.Option(
        "--network", help="On a cluster with a network: avoid (shared links), wait (for them), or avoid,wait."
    ),
]
Services = Annotated[str, typer.Option(help="YAML file of inference services that share the cluster with the jobs.")]
Crash = Annotated[
    str, typer.Option("--crash", help="ffdl[:learner=S,helper=S,monitor=S,service=S,node=S]: parts crash at random.")
]
Oversubscribe = Annotated[
    str,
    typer.Option(
        "--oversubscribe",
        help="Let jobs that give memory squeeze together: peaks up to so many times a GPU's memory, e.g. 1.5 or 1.5@12"
        " (GiB/s of its bus). Default: peaks must fit.",
    ),
]
Power = Annotated[str, typer.Option("--power", help="Let idle nodes sleep: ces, ces:preset=philly, ces:boot=120.")]
SkipInfeasible = Annotated[bool, typer.Option("--skip-infeasible", help="Leave out jobs larger than the cluster.")]
Format = Annotated[str, typer.Option("--format", help="Format of the log, instead of detecting it.")]
From = Annotated[
    str, typer.Option("--from", help="Jobs submitted from then on: second, 2d (after the first), or date.")
]
To = Annotated[str, typer.Option("--to", help="Jobs submitted before then, as for --from.")]
Where = Annotated[str, typer.Option("--where", help="Jobs of which this holds: \"gpus >= 8 and tenant == 'nlp'\".")]
Json = Annotated[str, typer.Option("--json", help="Write JSON to FILE, or to standard output with '-'.")]

Plain = Annotated[bool, typer.Option("--json", help="Print JSON.")]

INFINITY = float("inf")


def console(stderr: bool = False) -> Console:
    """A Rich console that stays plain in a pipe."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=True)


def load_workload(
    trace: str,
    cluster_gpus: int | None,
    *,
    format_: str = "",
    profile: str = "",
    models: str = "",
    quiet: bool = False,
) -> Workload:
    """A log or a generated workload; its notes go to standard error."""
    from cotenant.core.errors import InputError, nearest, unknown
    from cotenant.core.spec import Spec
    from cotenant.workload.generators import GENERATORS
    from cotenant.workload.generators import generate as generate_workload
    from cotenant.workload.readers import read

    name = trace.split(":", 1)[0]
    if name in GENERATORS and format_:
        raise InputError(f"--format {format_}: '{name}' is a generator, not a log")
    if name in GENERATORS:
        work = generate_workload(Spec.parse(trace), cluster_gpus, profile or None)
    elif trace != "-" and not Path(trace).exists() and nearest(name, GENERATORS):
        raise unknown("generator", name, GENERATORS)
    else:
        work = read(trace, format=format_ or None, profile=profile or None)
    if models:
        from cotenant.workload.model_sets import assign_models

        work = assign_models(work, models, profile)
    if not quiet:
        tell(work.notes)
    return work


def load_cluster(spec: str) -> Cluster:
    """A cluster from a spec or a YAML file."""
    from cotenant.workload.cluster_file import load_cluster as load

    return load(spec)


def load_services(path: str) -> tuple[InferenceService, ...]:
    """Inference services from a YAML file."""
    from cotenant.workload.services import load_services as load

    return load(path)


def tell(notes: Sequence[str]) -> None:
    """Notes for people, on standard error, each once."""
    for note in dict.fromkeys(notes):
        typer.echo(f"note: {note}", err=True)


def parse_range(text: str, option: str) -> tuple[int, int] | None:
    """`4000-4999`."""
    if not text:
        return None
    from cotenant.core.errors import InputError

    first, dash, last = text.partition("-")
    if not dash or not first.isdigit() or not last.isdigit() or int(first) > int(last):
        raise InputError(f"{option} '{text}': write FROM-TO, two whole numbers")
    return int(first), int(last)


def write_json(data: Any, target: str) -> None:
    """JSON to a file or, with `-`, to standard output. Numbers that are not finite become null."""
    text = json.dumps(_finite(data), indent=2, allow_nan=False)
    if target == "-":
        sys.stdout.write(text + "\n")
    else:
        write_text(target, text + "\n")


def check_targets(*targets: str) -> None:
    """Refuse files that cannot be written before hours of work, not after; '' and '-' are no files."""
    from cotenant.core.errors import InputError

    for target in targets:
        if target in ("", "-"):
            continue
        if Path(target).is_dir():
            raise InputError(f"cannot write '{target}': it is a directory")
        if not Path(target).absolute().parent.is_dir():
            raise InputError(f"cannot write '{target}': its folder does not exist")


def write_text(target: str, text: str) -> None:
    """Write a file, or say in one line why not."""
    guarded_write(target, lambda: _write(target, text))


def _write(target: str, text: str) -> None:
    Path(target).write_text(text, encoding="utf-8")


def guarded_write(target: str, write: Callable[..., None], *given: Any) -> None:
    """Call `write`; a path that cannot be written is one clear line."""
    from cotenant.core.errors import InputError

    try:
        write(*given)
    except OSError as error:
        raise InputError(f"cannot write '{target}': {error.strerror or error}") from None


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {str(key): _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    if isinstance(data, float) and data - data != 0:
        return None
    if hasattr(data, "item"):
        return _finite(data.item())
    return data
