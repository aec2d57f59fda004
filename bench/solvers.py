"""How fast the solvers are beside the ones off the shelf: `python -m bench.solvers`.

Max-min over three GPU types on the instances of the specification (lognormal speeds, type factors U(1.2, 4) and
U(1.1, 3), gangs of 1, 2, 4 and 8, demand five times the capacity): prices at two certified gaps, HiGHS directly, and
Clarabel and ECOS through cvxpy (`pip install cotenant[bench]`), model building included. Space sharing on instances
drawn like the authors' (26 kinds of jobs, a quarter as many GPUs of each type as jobs) against the plain program over
all pairs. CPU seconds of one thread, best of the repeats, after one warm-up; compilation and imports apart.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from cotenant import solvers
from cotenant.solvers import Need, lp_reference, price_kernels
from cotenant.solvers.lp_reference import PairRates

TARGETS = {1_000: 0.020, 10_000: 0.080, 100_000: 0.7}
SHARING_TARGETS = {256: 0.2, 2_048: 1.0}
FTF_TARGET = 0.3
IN_ORDER_TARGETS = {1_024: 1.0}
LARGEST = {"HiGHS": 10_000, "Clarabel": 100_000, "ECOS": 100_000}


def main() -> None:
    options = _options()
    price_kernels.responder(True)
    print("Max-min, 3 GPU types")
    print(_line("jobs", "method", "CPU s", "gap", "optimum", "against it", "target"))
    for jobs in (int(n) for n in options.sizes.split(",")):
        _max_min(jobs, options)
    print("\nFinish-time fairness and makespan, 3 GPU types, by prices")
    print(_line("jobs", "policy", "CPU s", "gap", "optimum", "", "target"))
    _ratio_policies(2_048)
    print("\nWater-filling over 6 entities, 26 kinds of jobs, in order inside")
    print(_line("jobs", "GPU types", "CPU s", "levels", "have some", "", "target"))
    for jobs in (int(n) for n in options.in_order.split(",")):
        _in_order(jobs)
    print("\nSpace sharing, 26 kinds of jobs")
    print(_line("jobs", "method", "CPU s", "gap", "optimum", "against it", "target"))
    for jobs in (int(n) for n in options.sharing.split(",")):
        _sharing(jobs, options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.solvers", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sizes", default="1000,10000,100000", help="numbers of jobs for max-min")
    parser.add_argument("--sharing", default="64,128,256,512,1024,2048", help="numbers of jobs for space sharing")
    parser.add_argument("--in-order", default="256,1024,4096", help="numbers of jobs for water-filling in order")
    parser.add_argument("--plain-up-to", type=int, default=256, help="largest plain program over pairs")
    parser.add_argument("--highs-up-to", type=int, default=LARGEST["HiGHS"])
    parser.add_argument("--cvxpy-up-to", type=int, default=LARGEST["ECOS"])
    return parser.parse_args()


def _line(*cells: object) -> str:
    widths = (8, 26, 10, 10, 12, 12, 18)
    return "  ".join(str(cell).rjust(width) for cell, width in zip(cells, widths, strict=True))


def _timed(call: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """CPU seconds of the fastest repeat, and the result; one repeat is enough for slow calls."""
    best, result = np.inf, None
    for _ in range(repeats):
        began = time.process_time()
        result = call()
        took = time.process_time() - began
        best = min(best, took)
        if took > 2.0:
            break
    return best, result


def instance(jobs: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Normalised rates, gangs and capacity as the specification draws them."""
    rng = np.random.default_rng(seed)
    base = rng.lognormal(0, 1, jobs)
    second = rng.uniform(1.2, 4, jobs)
    third = second * rng.uniform(1.1, 3, jobs)
    rates = base[:, None] * np.column_stack([np.ones(jobs), second, third])
    gangs = rng.choice([1, 2, 4, 8], jobs, p=[0.7, 0.1, 0.15, 0.05]).astype(float)
    capacity = np.full(3, np.ceil(gangs.sum() / 5 / 3))
    even = rates @ (capacity / capacity.sum())
    return rates * (gangs / even)[:, None], gangs, capacity


def _max_min(jobs: int, options: argparse.Namespace) -> None:
    rates, gangs, capacity = instance(jobs)
    took: dict[str, float] = {}
    for tol in (1e-6, 1e-9):
        name = f"prices, certified {tol:.0e}"
        took[name], found = _timed(lambda tol=tol: solvers.max_min(rates, gangs, capacity, tol=tol), 5)
        target = _verdict(took[name], TARGETS.get(jobs)) if tol == 1e-6 else ""
        print(_line(jobs, name, f"{took[name]:.4f}", f"{found.gap:.0e}", f"{found.value:.7f}", "1", target), flush=True)
    ours = found.value
    warm = solvers.max_min(rates * np.random.default_rng(1).uniform(0.99, 1.01, (jobs, 1)), gangs, capacity)
    seconds, again = _timed(lambda: solvers.max_min(rates, gangs, capacity, warm=warm), 5)
    print(_line(jobs, "prices, warm, 1e-06", f"{seconds:.4f}", f"{again.gap:.0e}", f"{again.value:.7f}", "", ""))
    exact = took["prices, certified 1e-09"]
    for name, limit, solve in _others(rates, gangs, capacity, options):
        if jobs > limit:
            print(_line(jobs, name, "left out", "", "", "", f"(over {limit})"))
            continue
        if isinstance(solve, str):
            print(_line(jobs, name, "left out", "", "", "", solve))
            continue
        seconds, value = _timed(solve, 3)
        gap = f"{abs(value - ours) / ours:.0e}"
        print(_line(jobs, name, f"{seconds:.4f}", gap, f"{value:.7f}", f"{seconds / exact:.1f}x", ""), flush=True)


def _others(rates: Any, gangs: Any, capacity: Any, options: argparse.Namespace) -> list[tuple[str, int, Any]]:
    inst = solvers.instance(rates, gangs, capacity)
    need = Need(np.ones(len(gangs)))

    def highs(method: str) -> float:
        built = lp_reference.model(inst)
        level = lp_reference._add_level(built, need.slope(0.0), 0.0)
        return float(built.program.solve(method=method).x[level])

    rows: list[tuple[str, int, Any]] = [
        ("HiGHS, interior point", options.highs_up_to, lambda: highs("ipm")),
        ("HiGHS, simplex", min(options.highs_up_to, 1_000), lambda: highs("simplex")),
    ]
    try:
        import cvxpy as cp
    except ImportError:
        return [*rows, ("cvxpy", 10**9, "not installed: cotenant[bench]")]

    def by_cvxpy(solver: str) -> float:
        x = cp.Variable(rates.shape, nonneg=True)
        rows_of = [cp.sum(x, axis=1) <= 1, gangs @ x <= capacity]
        problem = cp.Problem(cp.Maximize(cp.min(cp.sum(cp.multiply(rates, x), axis=1))), rows_of)
        problem.solve(solver=solver)
        return float(problem.value)

    for name in ("CLARABEL", "ECOS"):
        installed = name in cp.installed_solvers()
        call: Any = (lambda name=name: by_cvxpy(name)) if installed else "not installed: cotenant[bench]"
        rows.append((f"cvxpy + {name.capitalize() if name != 'ECOS' else name}", options.cvxpy_up_to, call))
    return rows


def _verdict(seconds: float, target: float | None) -> str:
    if target is None:
        return ""
    return f"{'met' if seconds <= target else 'MISSED'} ({target:g} s)"


def _ratio_policies(jobs: int) -> None:
    rates, gangs, capacity = instance(jobs)
    rng = np.random.default_rng(1)
    work = rng.lognormal(8, 0.2, jobs)
    elapsed = rng.uniform(0, 1_000, jobs)
    share = np.minimum(1.0, capacity[None, :] / (jobs * gangs[:, None]))
    fair = elapsed * rng.uniform(0.5, 1.0, jobs) + work / (rates * share).sum(axis=1)
    calls: dict[str, tuple[Callable[[], Any], float | None]] = {
        "finish-time fairness": (lambda: solvers.finish_time(rates, gangs, capacity, work, elapsed, fair), FTF_TARGET),
        "makespan": (lambda: solvers.makespan(rates, gangs, capacity, work), None),
    }
    for name, (call, target) in calls.items():
        seconds, found = _timed(call, 5)
        cells = (jobs, name, f"{seconds:.4f}", f"{found.gap:.0e}", f"{found.value:.6g}", "", _verdict(seconds, target))
        print(_line(*cells), flush=True)


def _in_order(jobs: int) -> None:
    """The first unfinished job of each entity takes all; types told apart, and all the same to everybody."""
    rates, gangs, capacity, *_ = shared_instance(jobs)
    order = np.random.default_rng(1).permutation(jobs)
    for name, seen in (("known", rates[order]), ("ignored", np.ones_like(rates))):
        seconds, found = _timed(
            lambda seen=seen: solvers.hierarchical(
                seen, gangs, capacity, None, np.arange(jobs) % 6, np.arange(1, 7), inner="fifo"
            ), 3,
        )  # fmt: skip
        levels, some = found.method.split()[-2], int((found.x.sum(axis=1) > 1e-6).sum())
        verdict = _verdict(seconds, IN_ORDER_TARGETS.get(jobs))
        print(_line(jobs, name, f"{seconds:.4f}", levels, some, "", verdict), flush=True)


def shared_instance(jobs: int, seed: int = 0) -> tuple[Any, Any, Any, Any, Any, Any]:
    """Jobs of 26 kinds with a pair table: each slows the other by what it takes of the GPU."""
    rng = np.random.default_rng(seed)
    base = rng.lognormal(2, 1, 26)
    factors = np.column_stack([np.ones(26), rng.uniform(2, 8, 26), rng.uniform(3, 12, 26)])
    table = base[:, None] * factors
    load = rng.uniform(0.3, 1.0, (26, 3))
    crowd = np.maximum(1.0, load[:, None, :] + load[None, :, :])
    pair = table[:, None, :] / crowd
    kind = np.sort(rng.integers(0, 26, jobs))
    capacity = np.full(3, jobs / 4.0)
    scale = 1.0 / table.mean(axis=1)
    return table[kind], np.ones(jobs), capacity, kind, pair, scale[kind]


def _sharing(jobs: int, options: argparse.Namespace) -> None:
    rates, gangs, capacity, kind, pair, scale = shared_instance(jobs)
    seconds, found = _timed(lambda: solvers.packed_max_min(rates, gangs, capacity, kind, pair, scale=scale), 5)
    verdict = _verdict(seconds, SHARING_TARGETS.get(jobs))
    print(
        _line(jobs, "over kinds", f"{seconds:.4f}", f"{found.gap:.0e}", f"{found.value:.7f}", "1", verdict), flush=True
    )
    inst = solvers.instance(rates, gangs, capacity)
    if jobs <= options.plain_up_to:
        i, j = np.triu_indices(jobs, 1)
        both = np.stack([pair[kind[i], kind[j]], pair[kind[j], kind[i]]], axis=1)
        pairs = PairRates(np.column_stack([i, j]), both)
        plain_s, plain = _timed(lambda: lp_reference.solve_need(inst, Need(1 / scale), pairs=pairs), 1)
        gap = f"{abs(plain.value - found.value) / plain.value:.0e}"
        ratio = f"{plain_s / seconds:.0f}x"
        print(_line(jobs, "plain program, HiGHS", f"{plain_s:.4f}", gap, f"{plain.value:.7f}", ratio, ""), flush=True)
    if jobs >= 1_024:
        parts_s, parts = _timed(lambda: solvers.solve_packed(inst, Need(1 / scale), kind, pair, parts=8), 1)
        loss = f"{(found.value - parts.value) / found.value:.2%} lost"
        print(
            _line(jobs, "POP, 8 parts", f"{parts_s:.4f}", "", f"{parts.value:.7f}", f"{parts_s / seconds:.1f}x", loss)
        )


if __name__ == "__main__":
    main()
