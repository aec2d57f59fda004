"""Are results still the same? `python -m bench.matrix --check bench/matrix_digests.txt`.

Every shipped policy on its usual clusters, with compat modes, placements, allocators, beliefs, failures, power, tiers
and quotas, over small logs (`bench.matrix_rows`); the bytes are those of `cotenant simulate --jobs-csv`. To record:
`python -m bench.matrix --out FOLDER`, which writes one csv per row and `digests.txt` (row, sha256, jobs, mean JCT in
seconds). `--check FILE` plays all rows again and lists those that differ, with the first line that does when
`--against FOLDER` names the recorded csvs; it exits with 1 when there are any. Rows that read COTENANT_DATA (default
../shared/data) are skipped where that folder is absent. `_play` holds all that is known of the package.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.matrix_rows import CLUSTERS, Row, log_text, rows

HEAD = "row\tsha256\tjobs\tmean_jct_s"


@dataclass(frozen=True, slots=True)
class Result:
    """What one row gave; `digest` is the sha256 of its csv, or says why there is none."""

    name: str
    digest: str
    jobs: int = 0
    mean_jct_s: float = math.nan
    wall_s: float = 0.0

    @property
    def line(self) -> str:
        """As it stands in a file of digests."""
        return f"{self.name}\t{self.digest}\t{self.jobs}\t{self.mean_jct_s:.3f}"


def main() -> None:
    options = _options()
    data = Path(os.environ.get("COTENANT_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
    wanted = [row for row in rows() if options.only in row.name and not (options.skip and options.skip in row.name)]
    if options.list:
        for row in wanted:
            print(row.name, row.log, row.cluster, row.policy, row.options, f"first {row.head}" if row.head else "")
        return
    if not data.is_dir():
        missing = [row for row in wanted if row.needs_data]
        wanted = [row for row in wanted if not row.needs_data]
        print(f"skipped {len(missing)} rows: {data} is not a folder; COTENANT_DATA must name it", file=sys.stderr)
    if not wanted:
        sys.exit("bench.matrix: no row to play")
    began = time.perf_counter()
    with TemporaryDirectory(prefix="cotenant-matrix-") as scratch:
        folder = Path(options.out or Path(scratch) / "csv")
        folder.mkdir(parents=True, exist_ok=True)
        _write_inputs(Path(scratch))
        found = list(_play_all(wanted, folder, Path(scratch), data, options.workers, options.slow))
        print(f"{len(found)} rows in {time.perf_counter() - began:.0f} s", file=sys.stderr)
        failed = [result for result in found if result.digest.startswith("error")]
        for result in failed:
            print(f"{result.name}: {result.digest}")
        if options.out:
            _record(found, folder)
        if options.check:
            sys.exit(_compare(found, options, folder))
    sys.exit(1 if failed else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.matrix", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", help="folder for one csv per row and digests.txt")
    parser.add_argument("--check", help="file of digests to compare with")
    parser.add_argument("--against", help="folder of the csvs behind that file: shows the first line that differs")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--skip", default="", help="not those whose name contains this, e.g. compiled")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--slow", type=float, default=math.inf, help="name rows that take more seconds than this")
    parser.add_argument("--list", action="store_true", help="print the rows and stop")
    options = parser.parse_args()
    if not (options.out or options.check or options.list):
        parser.error("say --out FOLDER, --check FILE or --list")
    return options


def _write_inputs(scratch: Path) -> None:
    """Logs and clusters that rows name."""
    for name, text in CLUSTERS.items():
        (scratch / name).write_text(text, encoding="utf-8")
    for name in {row.log.partition("/")[2] for row in rows() if row.log.startswith("log/")}:
        (scratch / f"{name}.csv").write_text(log_text(name), encoding="utf-8")


def _play_all(
    wanted: Sequence[Row], folder: Path, scratch: Path, data: Path, workers: int, slow_s: float
) -> Iterator[Result]:
    """Compiling kernels lasts as long as a process, so rows that want it go last, in one of their own."""
    groups = [[row for row in wanted if row.compiled == compiled] for compiled in (False, True)]
    for group, processes in zip(groups, (workers, 1), strict=True):
        if not group:
            continue
        jobs = [(row, folder / f"{row.name}.csv", scratch, data) for row in group]
        with multiprocessing.get_context("spawn").Pool(min(processes, len(group))) as pool:
            for result in pool.imap(_guarded, jobs, chunksize=1):
                if result.wall_s > slow_s:
                    print(f"{result.wall_s:6.1f} s {result.name}", file=sys.stderr, flush=True)
                yield result


def _guarded(job: tuple[Row, Path, Path, Path]) -> Result:
    """A row that cannot be played is a row that differs, not the end of the others."""
    row, target, scratch, data = job
    began = time.perf_counter()
    target.unlink(missing_ok=True)
    try:
        jobs, mean_jct_s = _play(row, target, scratch, data)
    except Exception as error:
        said = " ".join(str(error).split())
        return Result(row.name, f"error: {type(error).__name__}: {said}", wall_s=time.perf_counter() - began)
    digest = hashlib.sha256(target.read_bytes()).hexdigest()
    return Result(row.name, digest, jobs, mean_jct_s, time.perf_counter() - began)


def _play(row: Row, target: Path, scratch: Path, data: Path) -> tuple[int, float]:
    """What `cotenant simulate --jobs-csv` does, with kernels compiled or not; jobs, and their mean JCT."""
    import numpy as np

    from cotenant.core.spec import Spec
    from cotenant.report.jobs_csv import write_jobs_csv
    from cotenant.sim.driver import Experiment, simulate
    from cotenant.workload.cluster_file import load_cluster
    from cotenant.workload.generators import generate
    from cotenant.workload.model_sets import assign_models
    from cotenant.workload.readers import read

    options = {key: value.replace("@", str(data)) if isinstance(value, str) else value
               for key, value in row.options.items()}  # fmt: skip
    models, profile = str(options.pop("models", "")), str(options.get("profile", "none"))
    cluster = load_cluster(str(scratch / row.cluster) if row.cluster in CLUSTERS else row.cluster)
    kind, _, name = row.log.partition("/")
    if kind == "log":
        work = read(scratch / f"{name}.csv", profile=profile)
    elif kind == "data":
        work = read(data / name, profile=profile)
    else:
        work = generate(Spec.parse(row.log), cluster.gpus, profile)
    if row.head:
        work = work.take(np.arange(min(row.head, len(work))))
    if models:
        work = assign_models(work, models, profile)
    policy = row.policy.replace("@", str(data))
    outcome = simulate(Experiment(work, cluster, policy, compiled=row.compiled, **options))  # type: ignore[arg-type]
    write_jobs_csv(outcome, target)
    return len(outcome.jct_s), float(np.nanmean(outcome.jct_s))


def _record(found: Sequence[Result], folder: Path) -> None:
    import numpy
    import scipy

    versions = f"python {platform.python_version()}, numpy {numpy.__version__}, scipy {scipy.__version__}"
    text = "\n".join([f"# {versions}, {platform.machine()}", HEAD, *(result.line for result in found)])
    (folder / "digests.txt").write_text(text + "\n", encoding="utf-8")


def _compare(found: Sequence[Result], options: argparse.Namespace, folder: Path) -> int:
    """A table of the rows that differ, are new or are gone; 1 when there are any."""
    lines = Path(options.check).read_text(encoding="utf-8").splitlines()
    known = {line.split("\t")[0]: line.split("\t") for line in lines if line and not line.startswith("#")}
    known.pop("row", None)
    differ = [result for result in found if known.get(result.name, ["", ""])[1] != result.digest]
    ours = {row.name for row in rows()}
    gone = [name for name in known if name not in ours and options.only in name]
    if differ or gone:
        print(f"{'row':<56}{'mean JCT s':>14}{'recorded':>14}{'change %':>10}")
    for result in differ:
        was = float(known[result.name][3]) if result.name in known else math.nan
        change = 100 * (result.mean_jct_s / was - 1) if was else math.nan
        said = "" if result.name in known else "  (not recorded)"
        print(f"{result.name:<56}{result.mean_jct_s:>14,.3f}{was:>14,.3f}{change:>10.4f}{said}")
        if options.against:
            _first_difference(Path(options.against) / f"{result.name}.csv", folder / f"{result.name}.csv")
    for name in gone:
        print(f"{name:<56}  recorded, but no longer a row")
    print(f"{len(found) - len(differ)} of {len(found)} rows are the same, {len(differ)} differ, {len(gone)} are gone")
    return 1 if differ or gone else 0


def _first_difference(recorded: Path, now: Path) -> None:
    if not (recorded.is_file() and now.is_file()):
        print(f"    no csv to compare: {recorded if not recorded.is_file() else now}")
        return
    pairs = zip_longest(recorded.read_text().splitlines(), now.read_text().splitlines(), fillvalue="(no line)")
    for number, (was, is_) in enumerate(pairs, 1):
        if was != is_:
            print(f"    line {number}: was {was}\n    {'':{len(str(number)) + 5}}  is  {is_}")
            return


if __name__ == "__main__":
    main()
