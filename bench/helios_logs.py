"""The logs of `bench.helios`, each with the cluster that it runs on.

Venus in September has users and virtual clusters. Its other months have neither, nor names: one queue on as many nodes
as give a load of about 0.9. Philly has virtual clusters, on a part of their nodes, for on all of them hardly anybody
queues. PAI has the names of roles. Generated logs have users; where these repeat, half of the variance of log durations
is the user's own (per size, by reordering the durations of that size), as if he submitted the same again and again.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cotenant.core.cluster import Cluster
from cotenant.core.spec import Spec
from cotenant.core.workload import Workload
from cotenant.workload.cluster_file import load_cluster
from cotenant.workload.generators import generate
from cotenant.workload.readers import read

VENUS = {
    "vcJsw": 32, "vcvGl": 20, "vcKeu": 12, "vcYVn": 11, "vcefl": 10, "vcEwI": 9, "vcHvQ": 8, "vcLTP": 8, "vc8Gr": 6,
    "vcWoR": 5, "vcKrE": 4, "vchbv": 4, "vchA3": 3, "vcvlY": 2, "vcgkz": 1,
}  # fmt: skip
PHILLY = {
    "6214e9": 64, "b436b2": 64, "ee9e8c": 64, "7f04ca": 32, "6c71a0": 32, "0e4a51": 32, "11cb48": 16, "e13805": 16,
    "2869ce": 16, "ed69ec": 8, "103959": 8,
}  # fmt: skip
_DAY_S = 86400.0
_PHILLY_BEGIN, _VENUS_BEGIN = np.datetime64("2017-08-14T23:27:00"), np.datetime64("2020-03-18T04:01:39")


@dataclass(frozen=True, slots=True)
class Log:
    """Jobs and where they run."""

    name: str
    work: Workload
    cluster: Cluster


def data() -> Path:
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    path = Path(os.environ.get("COTENANT_DATA") or default)
    if not (path / "helios" / "venus_september.csv.gz").is_file():
        sys.exit(f"bench.helios: {path}/helios is missing; COTENANT_DATA must name the folder above helios/")
    return path


def venus() -> Log:
    return Log("Venus, September", read(data() / "helios" / "venus_september.csv.gz"), _parted(VENUS))


def chosen_on() -> Iterator[Log]:
    """On these the rule was chosen."""
    yield _venus_month("2020-04", "2020-05", 70)
    yield _venus_month("2020-05", "2020-06", 70)
    yield _venus_month("2020-06", "2020-07", 65)
    yield _philly("2017-10", "2017-11", 0.7)
    yield _pai("first", 60)
    yield from (_generated(kind, seed, _repeat) for kind in ("helios", "philly", "pai") for seed in (1, 2))


def others() -> Iterator[tuple[str, list[Log]]]:
    """Four with users or virtual clusters, on which nothing was chosen; then some in which there is little to learn."""
    yield (log := _philly("2017-11", "2017-12", 0.5)).name, [log]
    for kind in ("helios", "philly", "pai"):
        yield f"{kind}-like, users repeat", [_generated(kind, seed, _repeat) for seed in (11, 12, 13)]
    yield "helios-like, they do not", [_generated("helios", seed) for seed in (11, 12, 13)]
    for log in (_venus_month("2020-08", "2020-09", 80), _pai("second", 64)):
        yield f"{log.name}, no users", [log]


def _venus_month(begin: str, end: str, nodes: int) -> Log:
    work = _between(read(data() / "traces" / "helios_venus_125k.csv.gz"), _VENUS_BEGIN, begin, end)
    return Log(f"Venus, {begin}", work, Cluster.parse(f"{nodes}x8"))


def _philly(begin: str, end: str, share: float) -> Log:
    work = _between(read(data() / "traces" / "philly_109k.csv.gz"), _PHILLY_BEGIN, begin, end)
    work = work.take(np.isin(np.array(work.tenant.names)[work.tenant.code], list(PHILLY)))
    largest = {vc: int(work.gpus[work.tenant.code == work.tenant.names.index(vc)].max(initial=8)) for vc in PHILLY}
    sizes = {vc: max(int(nodes * share), -(-largest[vc] // 8)) for vc, nodes in PHILLY.items()}
    return Log(f"Philly, {begin}, {share:.0%} of its nodes", work, _parted(sizes))


def _pai(half: str, nodes: int) -> Log:
    work = read(data() / "traces" / "pai_60k.csv.gz")
    rows = np.arange(len(work)) < len(work) // 2
    return Log(f"PAI, {half} half", work.take(rows if half == "first" else ~rows), Cluster.parse(f"{nodes}x8"))


def _generated(kind: str, seed: int, change: Callable[[Workload, int], Workload] = lambda work, seed: work) -> Log:
    work = generate(Spec.parse(f"{kind}-like:jobs=10000,load=0.9,seed={seed}"), 640)
    return Log(f"{kind}-like, seed {seed}", change(work, seed), Cluster.parse("80x8"))


def _repeat(work: Workload, seed: int) -> Workload:
    draw = np.random.default_rng(seed)
    codes = np.unique(work.user.code * 100_000 + work.gpus, return_inverse=True)[1]
    score = draw.standard_normal(int(codes.max()) + 1)[codes] + draw.standard_normal(len(work))
    duration_s = work.duration_s.copy()
    for size in np.unique(work.gpus).tolist():
        rows = np.flatnonzero(work.gpus == size)
        duration_s[rows[np.argsort(score[rows], kind="stable")]] = np.sort(work.duration_s[rows])
    return replace(work, duration_s=duration_s)


def _between(work: Workload, began: np.datetime64, begin: str, end: str) -> Workload:
    first, last = ((np.datetime64(f"{month}-01T00:00:00") - began) / np.timedelta64(1, "s") for month in (begin, end))
    return work.take((work.submit_s >= first) & (work.submit_s < last))


def _parted(sizes: Mapping[str, int]) -> Cluster:
    with tempfile.TemporaryDirectory() as folder:
        return load_cluster(str(write_cluster(Path(folder), sizes)))


def write_cluster(folder: Path, sizes: Mapping[str, int] = VENUS) -> Path:
    """A cluster as a file for `--cluster`: nodes of 8 GPUs, a partition per virtual cluster."""
    groups = (f'  - {{nodes: {nodes}, gpus: 8, partition: "{vc}"}}\n' for vc, nodes in sizes.items())
    path = folder / "cluster.yaml"
    path.write_text("groups:\n" + "".join(groups), encoding="utf-8")
    return path
