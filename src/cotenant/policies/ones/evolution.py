"""One generation of schedules, as array operations over the whole population (ONES, SC'21).

A genome has one gene per GPU: the number of a job, or -1. A job's size is its number of genes; where they sit does
not enter the score, so places are given to the winner only. Every operator keeps: no gene of an unknown or finished
job, no job above its limit, no GPU with two jobs (by form).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.core.workload import Floats, Ints

EMPTY = -1


@dataclass(frozen=True, slots=True)
class Limits:
    """Per job: the size that evolution may give it (`cap`), the size that filling may give it (`train`), whether it is
    young (no prediction yet), and the order in which empty GPUs are given: `who[k]` gets its (`nth[k]` + 1)-th GPU."""

    cap: Ints
    train: Ints
    young: np.ndarray
    who: Ints
    nth: Ints


def order_by_time(alone_s: Floats, young: np.ndarray, cap: Ints, train: Ints) -> tuple[Ints, Ints]:
    """As in the artifact: young jobs one GPU each in order of submission; then the others by predicted time on one GPU,
    up to the limit of evolution; then again up to that of filling."""
    old = np.flatnonzero(~young)
    old = old[np.argsort(alone_s[old], kind="stable")]
    fresh = np.flatnonzero(young)
    rest = np.maximum(train - cap, 0)
    who = np.concatenate([fresh, np.repeat(old, cap[old]), np.repeat(old, rest[old])])
    begin = np.concatenate([np.zeros(len(fresh), np.int64), np.zeros(len(old), np.int64), cap[old]])
    return who, begin.repeat(np.concatenate([np.ones(len(fresh), np.int64), cap[old], rest[old]])) + _ramps(
        np.concatenate([np.ones(len(fresh), np.int64), cap[old], rest[old]])
    )


def order_by_gain(gain: np.ndarray, young: np.ndarray, cap: Ints) -> tuple[Ints, Ints]:
    """Young jobs first, one GPU each; then always the GPU that gains most. `gain[job, n]`: of the (n + 1)-th GPU."""
    falling = np.minimum.accumulate(gain, axis=1)  # a later GPU never comes before an earlier one
    job, nth = np.nonzero((np.arange(gain.shape[1])[None, :] < cap[:, None]) & (falling > 0) & ~young[:, None])
    order = np.argsort(-falling[job, nth], kind="stable")
    fresh = np.flatnonzero(young)
    return np.concatenate([fresh, job[order]]), np.concatenate([np.zeros(len(fresh), np.int64), nth[order]])


def _ramps(lengths: Ints) -> Ints:
    """0, 1, ... for each length, one after the other."""
    ends = np.cumsum(lengths)
    return np.arange(int(lengths.sum())) - np.repeat(ends - lengths, lengths)


def counts_of(genomes: Ints, jobs: int) -> Ints:
    """Population x jobs: sizes."""
    rows = np.arange(len(genomes))[:, None] * (jobs + 1)
    flat = np.bincount((rows + genomes + 1).ravel(), minlength=len(genomes) * (jobs + 1))
    return flat.reshape(len(genomes), jobs + 1)[:, 1:].astype(np.int64)


def cut(genomes: Ints, cap: Ints) -> Ints:
    """Drop the genes of each job beyond its limit, the last ones first."""
    order = np.argsort(genomes, axis=1, kind="stable")
    sorted_ = np.take_along_axis(genomes, order, axis=1)
    place = np.arange(genomes.shape[1])[None, :]
    new = np.ones(sorted_.shape, bool)
    new[:, 1:] = sorted_[:, 1:] != sorted_[:, :-1]
    first = np.maximum.accumulate(np.where(new, place, 0), axis=1)
    limit = np.append(cap, 0)[sorted_]  # EMPTY takes the appended 0: it stays empty anyway
    kept = np.where(place - first < limit, sorted_, EMPTY)
    out = np.empty_like(genomes)
    np.put_along_axis(out, order, kept, axis=1)
    return out


def refresh(genomes: Ints, renumber: Ints, cap: Ints) -> Ints:
    """Carry a population over to the jobs of now: `renumber[old]` is the new number, -1 for those that are gone."""
    return cut(np.append(renumber, EMPTY)[genomes], cap)


def crossover(genomes: Ints, cap: Ints, rng: np.random.Generator, probability: float = 0.5) -> Ints:
    """Pairs of different schedules swap each GPU with some probability; as many children as parents."""
    size, gpus = genomes.shape
    pairs = max(size // 2, 1)
    first = rng.integers(0, size, pairs)
    second = (first + rng.integers(1, max(size, 2), pairs)) % size
    swap = rng.random((pairs, gpus)) < probability
    one, other = genomes[first], genomes[second]
    return cut(np.concatenate([np.where(swap, other, one), np.where(swap, one, other)]), cap)


def mutate(genomes: Ints, young: np.ndarray, rng: np.random.Generator, probability: float = 0.3) -> Ints:
    """Every job but the young leaves a schedule entirely with some probability."""
    stays = (rng.random((len(genomes), len(young))) >= probability) | young[None, :]
    known = np.concatenate([stays, np.zeros((len(genomes), 1), bool)], axis=1)
    return np.where(np.take_along_axis(known, genomes, axis=1), genomes, EMPTY)


def pad(genomes: Ints, limits: Limits) -> Ints:
    """Fill empty GPUs in the order of the limits: each job from the size that it has on."""
    jobs = len(limits.cap)
    if jobs == 0:
        return np.full_like(genomes, EMPTY)
    counts = counts_of(genomes, jobs)
    empty = genomes == EMPTY
    room = empty.sum(axis=1)
    wanted = limits.nth[None, :] >= counts[:, limits.who]
    given = wanted & (np.cumsum(wanted, axis=1) <= room[:, None])
    rest = room - given.sum(axis=1)
    amounts = np.concatenate([given, rest[:, None]], axis=1)
    labels = np.tile(np.append(limits.who, EMPTY), len(genomes))
    out = genomes.copy()
    out[empty] = np.repeat(labels, amounts.ravel())
    return out


def score(genomes: Ints, cost: np.ndarray) -> Floats:
    """Sum of `cost[job, size]` over the jobs of each schedule; smaller is better."""
    counts = counts_of(genomes, len(cost))
    return np.asarray(cost[np.arange(len(cost))[None, :], counts].sum(axis=1))


def generation(
    genomes: Ints,
    limits: Limits,
    cost: np.ndarray,
    rng: np.random.Generator,
    *,
    cross: float = 0.5,
    mutation: float = 0.3,
) -> Ints:
    """Children by crossover and mutation beside their parents, all filled up; as many as before, best first."""
    parents = cut(genomes, limits.cap)
    everybody = pad(
        np.concatenate(
            [parents, crossover(parents, limits.cap, rng, cross), mutate(parents, limits.young, rng, mutation)]
        ),
        limits,
    )
    best = np.argsort(score(everybody, cost), kind="stable")[: len(genomes)]
    return np.asarray(everybody[best])


def first_population(size: int, gpus: int, jobs: int, rng: np.random.Generator) -> Ints:
    """Schedules of one GPU each for the jobs in random order."""
    genomes = np.full((size, gpus), EMPTY, np.int64)
    for row in genomes:
        order = rng.permutation(jobs)[:gpus]
        row[: len(order)] = order
    return genomes
