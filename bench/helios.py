"""QSSF on Venus, September 2020: `python -m bench.helios`.

COTENANT_DATA (default ../shared/data) names the folder above helios/ with venus_september.csv.gz. Fifteen virtual
clusters with nodes of their own, consolidated placement, no costs, as in the paper. Predictions are
learned online from the file's own past: the first jobs of the month are judged by nothing. The paper had five
earlier months, and job names, which the public data lack. JCT under strict order hangs on a few
large jobs at the head of a full virtual cluster: `--seeds 5` shows how much it hangs on the learner's seed. "own ends":
durations are known when jobs ended in the qssf run before, queueing included, not submission plus duration.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

VENUS = {
    "vcJsw": 32, "vcvGl": 20, "vcKeu": 12, "vcYVn": 11, "vcefl": 10, "vcEwI": 9, "vcHvQ": 8, "vcLTP": 8, "vc8Gr": 6,
    "vcWoR": 5, "vcKrE": 4, "vchbv": 4, "vchA3": 3, "vcvlY": 2, "vcgkz": 1,
}  # fmt: skip
LIMIT_S = 60.0
QSSF = "qssf on gbdt:loss=mean"
# (name, policy, estimator, seed, published or known JCT s, queue s)
RUNS = (
    ("fifo", "fifo", "oracle", 0, 64_702, 52_933),
    ("sjf, oracle", "sjf:strict=true", "oracle", 0, 21_095, 9_325),
    ("qssf, oracle", "qssf", "oracle", 0, 15_859, 4_090),
    (QSSF, "qssf", "", 0, 18_349, 6_580),
    ("qssf on gbdt (median)", "qssf", "gbdt", 0, 18_349, 6_580),
    ("qssf on rolling", "qssf", "rolling", 0, None, None),
    ("sjf on gbdt", "sjf:strict=true", "gbdt", 0, None, None),
    ("srtf, oracle", "srtf", "oracle", 0, None, None),
    ("srtf on gbdt", "srtf", "gbdt", 0, None, None),
    ("las, needs none", "las", "oracle", 0, None, None),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.helios", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=1, help="seeds of the learner behind qssf")
    options = parser.parse_args()
    path = log()
    began = time.perf_counter()
    from cotenant.beliefs.prediction.evaluate import errors_of, evaluate
    from cotenant.core.outcome import Outcome
    from cotenant.core.workload import Workload
    from cotenant.sim.driver import Experiment, simulate
    from cotenant.sim.warm import warm
    from cotenant.workload.cluster_file import load_cluster
    from cotenant.workload.readers import read

    warm()
    print(f"start-up, kernels included: {time.perf_counter() - began:.1f} s")
    began = time.perf_counter()
    work = read(path)
    with tempfile.TemporaryDirectory() as folder:
        cluster = load_cluster(str(write_cluster(Path(folder))))
    print(f"{len(work):,} jobs, {cluster.nodes} nodes in {len(VENUS)} virtual clusters, consolidated, no costs")
    heads = ("JCT s", "queue s", "queued jobs", "published JCT", "its queue", "JCT ratio", "over fifo", "wall s")
    print(f"{'policy':<34}" + "".join(f"{head:>14}" for head in heads), flush=True)
    fifo_s = np.nan
    finish_s = work.duration_s

    def show(
        name: str, jobs: Workload, policy: str, estimator: str, seed: int, jct: int | None, queue: int | None
    ) -> Outcome:
        nonlocal fifo_s
        start = time.perf_counter()
        outcome = simulate(
            Experiment(jobs, cluster, policy, estimator=estimator, costs="none", seed=seed, compiled=True)
        )
        found_s, queue_s = float(np.mean(outcome.jct_s)), float(np.mean(outcome.queue_s))
        fifo_s = found_s if policy == "fifo" else fifo_s
        cells = (
            f"{found_s:,.1f}", f"{queue_s:,.1f}", f"{int((outcome.queue_s > 0).sum()):,}",
            "-" if jct is None else f"{jct:,}", "-" if queue is None else f"{queue:,}",
            "-" if jct is None else f"{found_s / jct:.4f}", f"{fifo_s / found_s:.2f}x",
            f"{time.perf_counter() - start:.2f}",
        )  # fmt: skip
        print(f"{name:<34}" + "".join(f"{cell:>14}" for cell in cells), flush=True)
        return outcome

    for name, policy, estimator, seed, jct, queue in RUNS:
        outcome = show(name, work, policy, estimator, seed, jct, queue)
        if name == QSSF:
            finish_s = outcome.finish_s
    for seed in range(1, options.seeds):
        show(f"{QSSF}, seed {seed}", work, "qssf", "", seed, 18_349, 6_580)
    late = replace(work, extra={**work.extra, "ended_s": finish_s})
    show(f"{QSSF}, own ends", late, "qssf", "", 0, 18_349, 6_580)

    print("\nerrors of the beliefs")
    print(
        f"{'estimator':<20}{'median error':>14}{'log error':>12}{'rank corr.':>12}{'of GPU time':>13}{'within 2x':>11}"
    )
    from cotenant.beliefs.estimators import estimate

    rows = [errors_of("gbdt:loss=mean", work, estimate("gbdt:loss=mean", work, 0))]
    rows.append(errors_of("gbdt", work, estimate("gbdt", work, 0)))
    for row in rows + evaluate("mean", work)[:-1]:
        print(
            f"{row.estimator:<20}{row.median_relative:>14.2f}{row.log_error:>12.3f}{row.rank_correlation:>12.3f}"
            f"{row.gpu_time_rank_correlation:>13.3f}{row.within_2x:>11.3f}"
        )
    total_s = time.perf_counter() - began
    print(f"the whole comparison, training included: {total_s:.1f} s (limit {LIMIT_S:.0f} s)")
    sys.exit(0 if total_s <= LIMIT_S else 1)


def log() -> Path:
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    path = Path(os.environ.get("COTENANT_DATA") or default) / "helios" / "venus_september.csv.gz"
    if not path.is_file():
        sys.exit(f"bench.helios: {path} is missing; COTENANT_DATA must name the folder above helios/")
    return path


def write_cluster(folder: Path) -> Path:
    """The published cluster as a file for `--cluster`: nodes of 8 GPUs, a partition per virtual cluster."""
    groups = (f"  - {{nodes: {nodes}, gpus: 8, partition: {vc}}}\n" for vc, nodes in VENUS.items())
    path = folder / "venus.yaml"
    path.write_text("groups:\n" + "".join(groups), encoding="utf-8")
    return path


if __name__ == "__main__":
    main()
