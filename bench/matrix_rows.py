"""The rows of `python -m bench.matrix`, and the small logs that it writes for them.

A row says what `cotenant simulate` would be told: a log or generator, a cluster, a policy and options. A log is a
generator (`philly-like:jobs=150`), a file below COTENANT_DATA (`data/gavel/x.trace.gz`) or one that is written here in
Cotenant's own CSV (`log/tiers`). Clusters are specs, or names of the YAML files below. `@` in an option stands for
COTENANT_DATA. Nothing here knows how the simulator is built.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "policies"
QUAD, OCT, HUNGRY = "4x4", "8x8", "4x4/cpu=48,mem=400"
MIXED = "2x4:v100+2x4:p100+2x4:k80"
H200, LOADER = "4x8:h200", "4x4:h200/cpu=24,mem=400"
CLUSTERS = {
    "quotas.yaml": "groups:\n- {nodes: 4, gpus: 4}\nquotas: {ada: 8, bob: 8, eve: 8}\n",
    "partitions.yaml": (
        "groups:\n- {nodes: 2, gpus: 8, type: v100, partition: ada, cpu: 64, mem: 512}\n"
        "- {nodes: 2, gpus: 8, type: p100, cpu: 32, mem: 256}\n- {nodes: 2, gpus: 4, type: v100}\n"
        "quotas: {bob: 10}\n"
    ),
    "antman.yaml": "groups:\n- {nodes: 2, gpus: 8, type: h200}\nquotas: {ada: 10, bob: 4, eve: 0}\n",
    "shares.yaml": "groups:\n- {nodes: 2, gpus: 8, type: h200}\nquotas: {ada: 8, bob: 8, eve: 8}\n",
}
GAVEL_SPEEDS = "@/gavel/simulation_throughputs.json.gz"
SYNERGY_SPEEDS = "@/synergy/synergy_profiles.json"


@dataclass(frozen=True, slots=True)
class Row:
    """One simulation; `options` are fields of `Experiment`, and `models` as in `--models`."""

    name: str
    log: str
    cluster: str
    policy: str
    options: dict[str, object] = field(default_factory=dict)
    head: int = 0  # only the first so many jobs; 0: all
    compiled: bool = False

    @property
    def needs_data(self) -> bool:
        """Whether files outside the repository are read."""
        texts = (self.log, self.policy, *map(str, self.options.values()))
        return self.log.startswith("data/") or any("@" in text for text in texts)


def rows() -> list[Row]:
    """All rows, with names that are all different."""
    found = [
        *_orders(), *_placements(), *_asked(), *_beliefs(), *_failures(), *_power(), *_gavel(), *_deadlines(),
        *_elastic(), *_stages(), *_sharing(), *_allocators(), *_compiled(),
    ]  # fmt: skip
    found = [replace(row, policy=_unweighed(row.policy)) for row in found]
    found += _weighed()
    assert len({row.name for row in found}) == len(found)
    return found


def _short(policy: str) -> str:
    """A policy or option as a part of a row's name, and so of a file's."""
    return "".join("" if char in "[]" else char if char.isalnum() or char in "-+.=" else "_" for char in policy)


def _unweighed(policy: str) -> str:
    """Orders as in the books, whatever their preemptions cost; `_weighed` has them as they are by default."""
    if policy.split(":")[0] not in WEIGHING:
        return policy
    return f"{policy}{',' if ':' in policy else ':'}weigh=false"


def _each(
    family: str, log: str, cluster: str, policies: Iterable[str], head: int = 0, **options: object
) -> Iterator[Row]:
    for policy in policies:
        yield Row(f"{family}.{_short(policy)}", log, cluster, policy, options, head)


ORDERS = (
    "fifo", "fifo:strict=false", "backfill", "easy", "sjf", "sjf:strict=true", "qssf", "qssf:strict=false", "random",
    "srtf", "srsf", "las", "las:round=600", "tiresias-l", "tiresias-l:threshold=600,knob=20",
    "tiresias-l:thresholds=[300,3000],knob=8", "tiresias-l:queues=4", "tiresias-g", "tiresias-g:quantum=sup",
    "tiresias-g:thresholds=[600],quantum=fixed", "tiresias-g:samples=finished", "tiresias-g:knob=2",
)  # fmt: skip
WEIGHING = ("srtf", "srsf", "las", "tiresias-l", "tiresias-g")
FEW = ("fifo", "easy", "qssf", "srtf", "las:round=300", "tiresias-l", "tiresias-g")
WHOLE = (
    "fifo", "easy", "srtf", "tiresias-l", "gavel", "allox", "edf", "chronus", "muri-s", "sjf-bsbf", "antman",
    "gandiva", "horus", "ones", "optimus",
)  # fmt: skip
"""One of each kind of policy: for what every one of them must bear."""


def _orders() -> Iterator[Row]:
    yield from _each("orders.4x4", "philly-like:jobs=200,load=1.2,max_gpus=16", QUAD, ORDERS)
    yield from _each("orders.8x8", "helios-like:jobs=250,load=1.3,seed=2", OCT, FEW, skip_infeasible=True)
    yield from _each("orders.hosts", "log/hosts", HUNGRY, FEW)
    yield from _each("orders.tiresias60", "data/traces/tiresias_60_job.csv", "2x4", (*FEW, "srsf"))
    yield from _each(
        "compat.tiresias", "data/traces/tiresias_60_job.csv", "2x4", ("srsf", "tiresias-l", "tiresias-g"),
        compat=("tiresias",), placement="count", costs="none",
    )  # fmt: skip
    for own in ("aging.py:Aging", "numpy_srsf.py:NumpySrsf", "pack_in_order.py:PackInOrder"):
        yield Row(f"own.{own.split(':')[1]}", "log/plain", H200, f"{EXAMPLES / own}", {"profile": "h200"})
    yield from _each("orders.pai", "pai-like:jobs=120,load=1.1,max_gpus=32", OCT, ("backfill", "srsf"))


def _placements() -> Iterator[Row]:
    for place in ("count", "relaxed:after=300", "spread", "skew", "skew:limit=0.2"):
        yield from _each(
            f"place.{_short(place)}", "philly-like:jobs=150,load=1.3,max_gpus=16,seed=3", QUAD,
            ("fifo", "srtf", "tiresias-l"), placement=place, profile="tiresias",
        )  # fmt: skip
    for place in ("relaxed:after=120", "spread"):
        yield from _each(f"place.plans.{_short(place)}", "log/plain", H200, PLANS, placement=place, profile="h200")
    for costs in ("none", "flat", "startup", "7.5"):
        yield from _each(f"costs.{costs}", "log/plain", QUAD, ("srtf", "tiresias-l"), costs=costs)
    yield Row("measure.srsf", "log/plain", QUAD, "srsf", {"measure": (30, 80)})
    yield Row("until.tiresias-l", "log/plain", QUAD, "tiresias-l", {"until_s": 2500.0})


PLANS = ("gavel", "chronus", "sjf-bsbf", "gandiva")


def _asked() -> Iterator[Row]:
    """Tiers, numbers of nodes, GPU types, tenants with quotas and partitions."""
    yield from _each("tiers", "log/tiers", QUAD, (*WHOLE, "las:round=300", "tiresias-g"), head=70)
    yield from _each("asked.nodes", "log/asked", "4x8", WHOLE, head=70)
    yield from _each("asked.types", "log/typed", MIXED, WHOLE, head=70)
    yield from _each("quotas", "log/plain", "quotas.yaml", WHOLE, head=70)
    yield from _each("partitions", "log/plain", "partitions.yaml", (*FEW, "gavel", "chronus", "gandiva", "muri-l"))


def _beliefs() -> Iterator[Row]:
    for belief in ("noisy:error=1", "mean", "user-median", "rolling", "gbdt:every=50"):
        log = "philly-like:jobs=160,load=1.3,max_gpus=16,seed=4"
        yield from _each(f"belief.{_short(belief)}", log, QUAD, ("sjf", "srtf", "easy"), estimator=belief, seed=3)
    late = ("qssf", "gavel:objective=sjf", "chronus", "muri-s", "sjf-bsbf", "horus")
    yield from _each("belief.noisy.plans", "log/deadlines", H200, late, estimator="noisy", profile="h200", head=80)


NARROW = ("fifo", "easy", "srtf", "gavel")


def _failures() -> Iterator[Row]:
    fail = "mtbf=4000,mttr=300,checkpoint=120"
    yield from _each("failing", "log/plain", QUAD, (*WHOLE, "tiresias-g"), head=70, fail_nodes=fail, seed=5)
    yield from _each("failing.shared", "log/plain", H200, SHARED, 80, fail_nodes=fail, profile="h200", seed=6)
    yield from _each("failing.narrow", "log/plain", "2x4", NARROW, 40, fail_nodes=fail, seed=7)
    yield from _each("attempts", "log/attempts", QUAD, (*FEW, "gavel", "chronus", "gandiva", "sjf-bsbf"), head=90)


def _power() -> Iterator[Row]:
    yield from _each("power", "log/days", "12x4", ("fifo", "srtf", "las", "chronus"), power="ces:buffer=1,keep=2")
    yield Row("power.philly", "log/days", "12x4", "fifo", {"power": "ces:preset=philly,boot=600"})


OBJECTIVES = ("las", "fifo", "sjf", "ftf", "makespan", "throughput", "cost", "cost-slo", "hierarchical")
BLIND = ("las", "fifo", "sjf", "ftf", "makespan", "hierarchical")
GAVELS = (
    *(f"gavel:objective={name}" for name in OBJECTIVES),
    *(f"gavel:objective={name},aware=false" for name in BLIND),
    "gavel:objective=hierarchical,inner=fifo,weights=[1,2,3]",
    "gavel:walk=global",
    "allox",
    "gandiva-packing",
)
PAIRED = (
    *(f"gavel:objective={name},sharing=true" for name in ("las", "ftf", "makespan", "fifo")),
    "gavel:sharing=true,pairs=online",
)


def _gavel() -> Iterator[Row]:
    log = "gavel-like:jobs=60,load=1.2,weights=true,slos=true,multi=true,max_gpus=4,seed=1"
    yield from _each("gavel", log, MIXED, GAVELS, profile=GAVEL_SPEEDS, round_s=1800.0)
    single = "gavel-like:jobs=60,load=1.4,multi=false,seed=2"
    yield from _each("gavel.shared", single, MIXED, (*PAIRED, "gandiva-packing:keep=0.5"),
                     profile=GAVEL_SPEEDS, round_s=3600.0)  # fmt: skip
    compat: dict[str, object] = {"compat": ("gavel",), "profile": GAVEL_SPEEDS, "costs": "none"}
    wide, many = "6x1:v100+6x1:p100+6x1:k80", "36x1:v100+36x1:p100+36x1:k80"
    again = (
        "gavel", "gavel:aware=false", "gavel:objective=ftf", "gavel:objective=fifo,aware=false", "gandiva-packing",
        "allox", "gavel:sharing=true",
    )  # fmt: skip
    trace = "data/gavel/cont_single_lam900_s0_n2000.trace.gz"
    yield from _each("compat.gavel", trace, wide, again, 30, round_s=3600.0, **compat)
    stale = {**compat, "compat": ("gavel", "gavel:fifo.type_choice=stale")}
    yield Row("compat.gavel.stale", trace, wide, "gavel:objective=fifo,aware=false", stale, 30)
    static = "data/gavel/static_multi_s0_n100.trace.gz"
    yield Row("compat.gavel.makespan", static, many, "gavel:objective=makespan", {**compat, "round_s": 3600.0}, 60)
    yield Row("compat.gavel.las.multi", static, many, "gavel", {**compat, "round_s": 3600.0}, 60)


def _deadlines() -> Iterator[Row]:
    """Budgets of solvers have no end: an answer must not depend on the machine."""
    plans = (
        "edf", "edf:strict=false", "edf-backfill", "chronus", "chronus:spare=best-effort", "chronus:lease=600",
        "chronus:objective=minimise", "chronus:objective=maximise", "chronus:search=20",
        "chronus:solver=milp,budget=1e9",
    )  # fmt: skip
    yield from _each("deadlines", "log/deadlines", QUAD, plans)
    sample = "data/chronus/mix1_sample_10pc.csv.gz"
    yield from _each("deadlines.mix1", sample, "4x8", ("edf", "edf-backfill", "chronus", "sjf"), 250,
                     skip_infeasible=True)  # fmt: skip
    yield from _each(
        "compat.chronus", sample, "4x8", ("chronus", "chronus:solver=milp,budget=1e9"), 250, compat=("chronus",),
        skip_infeasible=True,
    )  # fmt: skip


def _elastic() -> Iterator[Row]:
    sizes = (
        "ones", "ones:progress=mean", "ones:gate=0", "ones-goodput", "ones-goodput:progress=sample",
        "ones-goodput:population=8,generations=2",
        "optimus", "optimus:interval=60", "tiresias-l", "srtf", "gandiva", "gandiva:grow_shrink=false",
        "gandiva:idle_s=0",
    )  # fmt: skip
    yield from _each("elastic.ones-like", "ones-like:jobs=30", "8x4", sizes)
    small = "ones-like:jobs=30,gap=60,median=600,mix=[1:0.5/2:0.5]"
    yield from _each("elastic.small", small, OCT, ("ones", "ones-goodput", "optimus", "gandiva", "gandiva:idle_s=120"))
    yield from _each(
        "elastic.log", "log/elastic", QUAD, ("ones", "ones-goodput", "optimus", "gandiva", "fifo", "gavel"), head=50
    )
    yield from _each("elastic.failing", "log/elastic", QUAD, ("ones", "ones-goodput", "optimus", "gandiva"), 50,
                     fail_nodes="mtbf=4000,mttr=300", seed=4)  # fmt: skip


MURI = (
    "muri-s", "muri-s:autopack=false", "muri-s:order=worst", "muri-s:matching=false", "muri-s:group=2",
    "muri-s:least_efficiency=0.6", "muri-s:merge_order=released", "muri-l", "muri-l:group=3",
)  # fmt: skip


def _stages() -> Iterator[Row]:
    trace = "data/muri/cluster_trace.csv"
    yield from _each("muri", trace, "4x8", MURI, 120, costs="startup")
    yield from _each("compat.muri", trace, OCT, ("fifo", "srtf", "srsf", "tiresias-l", "muri-s", "muri-l"), 150,
                     compat=("muri",))  # fmt: skip
    yield from _each("muri.h200", "log/plain", H200, ("muri-s", "muri-l"), profile="h200")


SHARED = ("muri-s", "sjf-bsbf", "sjf-ffs", "antman", "gandiva", "horus", "horus+")
SHARING = (
    "sjf-bsbf", "sjf-bsbf:queue_aware=false", "sjf-bsbf:noise=0.5", "sjf-bsbf:consolidate=true",
    "sjf-bsbf:preemptive=true", "sjf-bsbf:scale_sub_batch=false", "sjf-bsbf:pairs=learned", "sjf-bsbf:pairs=formula",
    "sjf-ffs", "sjf-ffs:consolidate=true", "gandiva", "gandiva:packing=false", "gandiva:migration=false",
    "gandiva:defragmentation=false", "gandiva:time_slicing=false", "gandiva:pairs=oracle", "gandiva:pairs=learned",
    "horus", "horus:belief=profile", "horus:belief=profile,noise=0.5", "horus:gpu_choice=first_fit",
    "horus:pairs=learned", "horus:pairs=oracle", "horus+", "horus+:belief=profile", "horus+:scaled=false",
)  # fmt: skip
ANTMEN = (
    "antman", "antman:believe=false,budget=1", "antman:budget=0", "antman:tolerance=0.05", "antman:pairs=learned",
    "antman:pairs=oracle",
)  # fmt: skip


def _sharing() -> Iterator[Row]:
    log = "philly-like:jobs=100,load=1.5,models=h200,max_gpus=16"
    yield from _each("shared", log, H200, SHARING, profile="h200")
    yield from _each("shared.sliced", log, H200, SHARED, profile="h200:sharing=time-sliced")
    yield from _each("shared.tiers", "log/tiers", H200, SHARED, 80, profile="h200")
    yield from _each("antman.quotas", "log/plain", "antman.yaml", ANTMEN, 90, profile="h200", costs="none")
    waiting = ("antman", "antman:ot_after_s=600", "antman:ot_max_gpus=2", "fifo", "horus")
    yield from _each("antman.shares", "log/plain", "shares.yaml", waiting, 90, profile="h200")
    yield from _each("antman.marked", "log/marked", "shares.yaml", ("antman", "fifo"), 90, profile="h200")
    yield Row("shared.types", "log/plain", "2x8:h200+2x8:a100", "sjf-bsbf", {"profile": "h200"})
    yield Row("shared.types.gandiva", "log/plain", "2x8:h200+2x8:a100", "gandiva", {"profile": "h200"})
    yield Row("shared.types.gavel", "log/plain", "2x8:h200+2x8:a100", "gavel:sharing=true", {"profile": "h200"})


RULES = (
    "fixed", "proportional", "synergy-greedy", "synergy-tune", "synergy-tune:round=300",
    "synergy-tune:round=300,keep=false", "synergy-tune:profiling=optimistic,noise=0.1",
    "synergy-tune:order=policy,fit=first", "synergy-knapsack", "synergy-opt:budget=1e9", "drf", "tetris",
)  # fmt: skip


def _allocators() -> Iterator[Row]:
    log = "synergy-like:jobs=70,load=1.3,seed=1"
    for rule in RULES:
        options: dict[str, object] = {"allocator": rule, "profile": "h200-loader", "models": "h200"}
        jobs = 40 if rule.startswith("synergy-opt") else 0
        yield Row(f"alloc.{_short(rule)}.srtf", "log/plain", LOADER, "srtf", options, jobs)
    tune: dict[str, object] = {"allocator": "synergy-tune", "profile": "h200-loader"}
    for policy in ("fifo", "tiresias-l", "las:round=300", "gavel", "gavel:objective=throughput", "backfill"):
        yield Row(f"alloc.tune.{_short(policy)}", "log/plain", "2x4:h200/cpu=24,mem=400+2x4:a100/cpu=64,mem=800",
                  policy, tune, 80)  # fmt: skip
    yield Row("alloc.tune.failing", "log/plain", LOADER, "srtf", {**tune, "fail_nodes": "mtbf=4000,mttr=300"}, 80)
    synergy: dict[str, object] = {"profile": SYNERGY_SPEEDS, "skip_infeasible": True}
    for rule in ("proportional", "synergy-greedy", "synergy-tune"):
        for policy in ("fifo", "srtf", "las"):
            yield Row(f"compat.synergy.{rule}.{policy}", "data/synergy/repo_dynamic_srtf.csv", "2x8/cpu=24,mem=500",
                      policy, {**synergy, "allocator": rule, "compat": ("synergy",)}, 60)  # fmt: skip
    yield Row("synergy.multi.tune", "data/synergy/t6_multi_120_l8_333333.csv", "4x8/cpu=24,mem=500", "srtf",
              {**synergy, "allocator": "synergy-tune"})  # fmt: skip
    yield Row("synergy.like.knapsack", log, "2x8/cpu=24,mem=500", "las",
              {**synergy, "allocator": "synergy-knapsack"})  # fmt: skip


def _compiled() -> Iterator[Row]:
    """The same kernels, compiled: rows of the same name without the prefix have the same bytes."""
    twins = {
        "orders.4x4": ("fifo", "easy", "srtf", "tiresias-l", "tiresias-g", "las:round=600"),
        "place.relaxed_after=300": ("srtf",),
        "failing": ("tiresias-l", "gavel"),
        "failing.narrow": ("fifo", "gavel"),
        "tiers": ("srtf", "sjf-bsbf"),
        "gavel": ("gavel:objective=las",),
    }
    every = {row.name: row for part in (_orders, _placements, _failures, _asked, _gavel) for row in part()}
    for family, policies in twins.items():
        for policy in policies:
            plain = every[f"{family}.{_short(policy)}"]
            yield Row(f"compiled.{plain.name}", plain.log, plain.cluster, plain.policy, plain.options, plain.head, True)


def _weighed() -> Iterator[Row]:
    """Orders that stop nobody for less than that costs; without costs they are those of the books, with their bytes."""
    orders = (*WEIGHING, "las:round=300", "tiresias-l:thresholds=[300,3000],knob=8", "srtf:min_run=0")
    yield from _each("weighed", "log/plain", QUAD, orders)
    yield from _each("weighed.tiers", "log/tiers", QUAD, WEIGHING)
    yield from _each("weighed.failing", "log/plain", QUAD, WEIGHING, 70, fail_nodes="mtbf=4000,mttr=300", seed=5)
    yield from _each("weighed.costs.none", "log/plain", QUAD, ("srtf", "tiresias-l"), costs="none")
    for policy in WEIGHING:
        yield Row(f"compiled.weighed.{policy}", "log/plain", QUAD, policy, {}, compiled=True)


H200_NAMES = ("resnet50", "resnet18_cifar", "vit_b_16", "gpt2", "bert", "lstm", "recsys", "mlp_rl")
ELASTIC_NAMES = ("alexnet/imagenet", "resnet50/imagenet", "googlenet/cifar", "resnet18/cifar", "bert/cola", "bert/sst2")


def log_text(name: str) -> str:
    """A log in Cotenant's own CSV: whole seconds, ties among arrivals, more work than a small cluster can do."""
    if name == "days":
        return _days()
    draw = random.Random(f"matrix {name}")  # only `random()` is used: the same in every Python
    rows, clock_s = [], 0
    for job in range(120):
        clock_s += 0 if draw.random() < 0.2 else int(120 * draw.random())
        gpus = (1, 1, 1, 2, 2, 4, 4, 8)[int(8 * draw.random())]
        duration_s = int(30 * 60 ** draw.random())
        cells = {
            "job_id": f"j{job}",
            "submit_s": clock_s,
            "num_gpus": gpus,
            "duration_s": duration_s,
            "tenant": ("ada", "bob", "eve")[int(3 * draw.random())],
            "user": f"u{int(6 * draw.random())}",
            "model": H200_NAMES[int(8 * draw.random())],
        }
        rows.append({**cells, **_more(name, draw, clock_s, gpus, duration_s)})
    lines = [",".join(rows[0]), *(",".join(str(cell) for cell in row.values()) for row in rows)]
    return "\n".join(lines) + "\n"


def _more(name: str, draw: random.Random, clock_s: int, gpus: int, duration_s: int) -> dict[str, object]:
    """The columns that a log has beside those of every log."""
    a, b = draw.random(), draw.random()
    if name == "tiers":
        return {"priority": int(3 * a)}
    if name == "marked":
        return {"priority": -1 if a < 0.4 else 0}
    if name == "asked":
        return {"nodes": 2 if gpus in (2, 4, 8) and a < 0.4 else 4 if gpus == 8 and a < 0.7 else 0}
    if name == "typed":
        return {"gpu_type": ("v100", "p100", "k80", "", "", "")[int(6 * a)]}
    if name == "hosts":
        return {
            "cpus": int(1 + 14 * a) * gpus if b < 0.7 else "",
            "mem_gib": int(10 + 90 * b) * gpus if a < 0.7 else "",
        }
    if name == "attempts":
        parts = [str(max(int(duration_s * a / 3), 1)), str(max(int(duration_s * b / 3), 1))]
        return {"attempts": ";".join(parts[: int(5 * a)]) if a < 0.6 else ""}
    if name == "deadlines":
        soon, late = int(duration_s * (1.3 + 3 * b)), int(duration_s * (3 + 6 * b))
        strict, soft = a < 0.4, 0.4 <= a < 0.7
        return {"deadline_s": clock_s + soon if strict else "", "deadlines": f"{soon}:1.0;{late}:0.5" if soft else ""}
    if name == "elastic":
        small, large = ("", "") if a < 0.25 else (1, "") if a < 0.5 else (max(gpus // 2, 1), 2 * gpus)
        return {"model": ELASTIC_NAMES[int(6 * b)], "min_gpus": small, "max_gpus": large}
    return {}


def _days() -> str:
    """Busy days, quiet nights: six gangs an hour from 8 to 18 h, one every two hours otherwise."""
    lines = ["job_id,submit_s,num_gpus,duration_s"]
    for hour in range(72):
        for k in range(6 if 8 <= hour % 24 < 18 else hour % 2):
            lines.append(f"d{len(lines)},{3600 * hour + 60 * k},4,3300")
    return "\n".join(lines) + "\n"
