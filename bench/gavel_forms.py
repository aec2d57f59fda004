"""Which form of finish-time fairness the published hours come from: `python -m bench.gavel_forms`.

Forms of the policy that earlier public versions had, or that would explain a difference, each in the place of the
released one and with all else as `--compat gavel` without the wait between solves (`bench.gavel --way no-wait`). By the
authors' solver, a minute or two of CPU per run. For comparison only: nothing of it is in the product.

* released: rates of the first type everywhere (agnostic); a job's even share is cut to its own time.
* largest-share: even shares of all jobs are divided by the largest of them, so that some job has all its time.
* per-gpu: rates are those of one GPU of the gang, work left is that of the whole.
* p100, k80: agnostic rates are those of another type; k80 with half the P100's where a job cannot run on K80.
* k80-or-even: K80, and even shares for all while such a job is there, for which there is no optimum.
* mean: agnostic rates are the mean over the types on which a job can run, as by default.
* age-both-sides: age instead of isolated time so far, even share by max-min fairness, agnostic rates one step a second.

`hours` is mean JCT of jobs 4000-4999, `ratio` the mean over these jobs of JCT over JCT under agnostic LAS. The authors'
notebook prints the same over JCT on even shares (seed 0, 2.6 jobs/h, multi-GPU): FTF 1.40, aware 0.79, LAS 1.00, aware
0.81.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from bench import gavel_ecos
from bench.gavel import BLIND, FTF, LAS, WAYS
from bench.gavel_runs import CLUSTER, profile, warm_up, workload
from cotenant.core.cluster import Cluster
from cotenant.core.state import Matrix
from cotenant.core.workload import Floats
from cotenant.policies.gavel import cone, policy, released, targets
from cotenant.policies.gavel.targets import TargetOptions
from cotenant.policies.rounds.problem import Problem, Targets
from cotenant.sim.driver import Experiment, simulate

Believe = Callable[[Problem, TargetOptions], Problem]
Objective = Callable[[Problem, TargetOptions], Targets]
V100, P100, K80 = range(3)
_believed, _finish_time, _isolated = targets.as_believed, targets.finish_time, Problem.isolated


def _of_type(pool: int, instead: bool = True) -> Believe:
    """Agnostic rates are those of one type."""

    def believe(problem: Problem, options: TargetOptions) -> Problem:
        if options.aware:
            return problem
        rate = problem.rates[:, pool : pool + 1]
        if instead:
            rate = np.where(rate > 0, rate, problem.rates[:, P100 : P100 + 1] / 2)
        return replace(problem, rates=np.repeat(rate, problem.rates.shape[1], axis=1))

    return believe


def _per_gpu(problem: Problem, options: TargetOptions) -> Problem:
    seen = _believed(problem, options)
    return replace(seen, rates=seen.rates / seen.gangs[:, None])


def _mean(problem: Problem, options: TargetOptions) -> Problem:
    return _believed(problem, replace(options, copy_first_rate=False))


def _largest_share(problem: Problem) -> Matrix:
    share = problem.capacity[None, :] / (len(problem) * problem.gangs[:, None])
    return np.asarray(share / share.sum(axis=1).max())


def _or_even(problem: Problem, options: TargetOptions) -> Targets:
    """Even shares where somebody's rate is 0."""
    if (targets.as_believed(problem, options).isolated_rate > 0).all():
        return _finish_time(problem, options)
    return Targets(problem.isolated * (problem.rates > 0))


def _age_both_sides(problem: Problem, options: TargetOptions) -> Targets:
    """The ratio of (age + left / rate) shared to the same under max-min fairness that ignores types."""
    ones = np.ones_like(problem.rates)
    seen = problem if options.aware else replace(problem, rates=ones / problem.steps_per_s[:, None])
    alike = replace(problem, rates=ones, kind=np.zeros_like(problem.kind))
    share = released.max_min(alike, problem.gangs / problem.weights, False).x
    fair_s = seen.age_s + seen.left_s / np.maximum((seen.rates * share).sum(axis=1), 1e-12)
    return Targets(np.clip(cone.finish_time(seen, fair_s), 0.0, 1.0) * (problem.rates > 0))


FORMS: dict[str, tuple[Believe, Callable[[Problem], Matrix] | None, Objective]] = {
    "released": (_believed, None, _finish_time),
    "largest-share": (_believed, _largest_share, _finish_time),
    "per-gpu": (_per_gpu, None, _finish_time),
    "p100": (_of_type(P100), None, _finish_time),
    "k80": (_of_type(K80), None, _finish_time),
    "k80-or-even": (_of_type(K80, instead=False), None, _or_even),
    "mean": (_mean, None, _finish_time),
    "age-both-sides": (_believed, None, _age_both_sides),
}
"""What is believed of rates, how even shares are divided if otherwise, and the objective."""


@contextmanager
def played_as(form: str) -> Iterator[None]:
    """Another form in the place of the released one."""
    believe, share, objective = FORMS[form]
    try:
        targets.as_believed = policy.as_believed = believe  # type: ignore[attr-defined]
        if share is not None:
            Problem.isolated = property(share)  # type: ignore[method-assign, assignment]
        targets.OBJECTIVES["ftf"] = objective
        yield
    finally:
        targets.as_believed = policy.as_believed = _believed  # type: ignore[attr-defined]
        Problem.isolated = _isolated  # type: ignore[method-assign]
        targets.OBJECTIVES["ftf"] = _finish_time


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.gavel_forms", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--aware", choices=("agnostic", "aware"), help="one of the two")
    parser.add_argument("--kind", choices=("single", "multi"), default="multi")
    parser.add_argument("--rate", type=float, default=2.6, help="jobs per hour")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="3,000 jobs instead of 12,000, jobs 800-1099")
    options = parser.parse_args()
    gavel_ecos.use()
    warm_up((LAS + BLIND, FTF))
    base = _jct_s(LAS + BLIND, options)
    print(f"{options.kind}, {options.rate:g} jobs/h, seed {options.seed}, --compat gavel,gavel:reset_interval_s=0")
    print(f"{'form':<18}{'':<10}{'hours':>8}{'ratio':>8}")
    print(f"{'las':<18}{'agnostic':<10}{base.mean() / 3600:>8.1f}{1.0:>8.2f}", flush=True)
    for form in options.forms:
        for name, more in (("agnostic", BLIND), ("aware", "")):
            if name == (options.aware or name):
                with played_as(form):
                    jct_s = _jct_s(FTF + more, options)
                print(f"{form:<18}{name:<10}{jct_s.mean() / 3600:>8.1f}{(jct_s / base).mean():>8.2f}", flush=True)


def _jct_s(name: str, options: argparse.Namespace) -> Floats:
    """Seconds of the measured jobs, in their order."""
    jobs, window = (3000, (800, 1099)) if options.quick else (12_000, (4000, 4999))
    multi = str(options.kind == "multi").lower()
    work = workload(f"gavel-like:jobs={jobs},jobs_per_hour={options.rate},multi={multi},seed={options.seed}")
    compat, costs = WAYS["no-wait"]
    outcome = simulate(
        Experiment(
            work, Cluster.parse(CLUSTER), name, profile=profile(), costs=costs, round_s=360.0, compat=compat,
            measure=window, seed=options.seed, window_s=(0.0, 0.0), compiled=True,
        )
    )  # fmt: skip
    return np.asarray(outcome.jct_s[outcome.measured])


if __name__ == "__main__":
    main()
