"""ONES a second time, gene by gene: `python -m bench.ones_twin`.

The published loop written down plainly, without arrays, engine or simulator: schedules are lists with a job per GPU,
operators go through them one gene after the other, a small world moves jobs between two generations. It shares with the
policy only the predictor and the true speeds. Draws differ, so means over seeds are compared: mean JCT, at no costs
(the twin knows none), of `ones` in the simulator and of the twin; exit status 1 where they are more than 10 % apart.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import dataclass, field

import numpy as np

from bench.ones import CLUSTER, WORKLOADS, played
from cotenant.core.spec import Spec
from cotenant.policies.ones.predictor import ProgressModel, features
from cotenant.workload.elastic import ElasticJobs, speeds
from cotenant.workload.generators import generate

GPUS, NODE, POPULATION, CROSS, MUTATE, EVERY_S = 64, 4, 16, 0.5, 0.3, 5.0
Schedule = list["Job | None"]


@dataclass(eq=False)
class Job:
    """A job of the small world, and what it has told at the end of its last epoch."""

    row: int
    submit_s: float
    asked: int
    work_s: float
    epoch_size: float
    speed: list[float]  # by GPUs: seconds of work per second
    apart: list[float]  # the same over one node more than it needs
    rate: list[float]  # by GPUs: samples per second
    decay: float
    floor: float
    done_s: float = 0.0
    ran_s: float = 0.0
    samples: float = 0.0
    size: int = 0
    spread: bool = False  # over one node more than it needs
    max_size: int = 1
    cap: int = 1
    epochs: int = 0
    told: tuple[float, float, float] = (0.0, 1.0, 0.0)  # samples, loss over first loss, accuracy
    scaled_at: int = 0
    since: int = 0
    rho: float | None = None
    seen: dict[int, float] = field(default_factory=dict)
    looks: list[tuple[np.ndarray, float]] = field(default_factory=list)

    def advance(self, seconds: float) -> None:
        """Run, and tell what is to be told when an epoch ends."""
        if not self.size:
            return
        rate = self.rate[self.size] * self.now / self.speed[self.size]
        self.done_s += self.now * seconds
        self.ran_s += seconds
        self.samples += rate * seconds
        self.seen[self.size] = rate
        if int(self.samples / self.epoch_size + 1e-9) > self.epochs:
            self.epochs = int(self.samples / self.epoch_size + 1e-9)
            share = min(self.done_s / self.work_s, 1.0)
            fall = (np.exp(-self.decay * share) - np.exp(-self.decay)) / (1 - np.exp(-self.decay))
            self.told = self.samples, self.floor + (1 - self.floor) * fall, (1 - fall) * (1 - self.floor)
            self.looks.append((self.features(), self.samples))

    @property
    def now(self) -> float:
        """Seconds of work per second where it runs."""
        return (self.apart if self.spread else self.speed)[self.size]

    def features(self) -> np.ndarray:
        """What the predictor looks at."""
        one = (np.array([value]) for value in (self.epoch_size, 1.0, float(self.epochs), self.told[1], self.told[2]))
        return features(*one)[0]

    def throughput(self, gpus: int) -> float:
        """Between and beyond what was seen by straight lines, from (0, 0)."""
        points = sorted({0: 0.0, **self.seen}.items())
        if gpus <= points[-1][0]:
            return float(np.interp(gpus, [x for x, _ in points], [y for _, y in points]))
        (x0, y0), (x1, y1) = points[-2:]
        return y1 + (y1 - y0) / (x1 - x0) * (gpus - x1)

    @property
    def left(self) -> float:
        """Samples predicted to be left."""
        assert self.rho is not None
        return self.told[0] * (1 / max(self.rho, 1e-12) - 1)


class Twin:
    """The loop."""

    def __init__(self, jobs: list[Job], seed: int) -> None:
        self.jobs, self.chance, self.progress = jobs, random.Random(seed), ProgressModel(seed)
        self.present: list[Job] = []
        self.population: list[Schedule] = []
        self.finished_s: dict[int, float] = {}
        self.over_s: list[float] = []

    def play(self) -> float:
        """Mean JCT in seconds."""
        now_s, waiting = 0.0, sorted(self.jobs, key=lambda job: (job.submit_s, job.row))
        while waiting or self.present:
            ends = [now_s + (job.work_s - job.done_s) / job.now for job in self.present if job.size]
            then_s = min([now_s + EVERY_S, *ends, *(job.submit_s for job in waiting[:1])])
            for job in self.present:
                job.advance(then_s - now_s)
            now_s = then_s
            while waiting and waiting[0].submit_s <= now_s:
                self.present.append(waiting.pop(0))
            for job in [job for job in self.present if job.work_s - job.done_s < 1e-6]:
                self._finish(job, now_s)
            if self.present:
                self._generation()
        return float(np.mean([self.finished_s[job.row] - job.submit_s for job in self.jobs]))

    def _finish(self, job: Job, now_s: float) -> None:
        self.present.remove(job)
        self.finished_s[job.row] = now_s
        self.over_s.append(job.ran_s)
        course = [(x, done / job.told[0]) for x, done in job.looks if done < job.told[0]]
        if course:
            self.progress.finish(np.stack([x for x, _ in course]), np.array([share for _, share in course]))
        for schedule in self.population:
            schedule[:] = [None if gene is job else gene for gene in schedule]

    def _generation(self) -> None:
        for job in self.present:
            known = job.epochs >= 2
            job.rho = float(self.progress.draw(job.features()[None, :], True)[0]) if known else None
        self._limits()
        if not self.population:
            for _ in range(POPULATION):
                order = self.chance.sample(self.present, len(self.present))
                self.population.append([*order[:GPUS], *[None] * (GPUS - len(order[:GPUS]))])
        parents = [self._cut(schedule) for schedule in self.population]
        children: list[Schedule] = []
        for _ in range(POPULATION // 2):
            one, other = self.chance.sample(parents, 2)
            first, second = list(one), list(other)
            for at in range(GPUS):
                if self.chance.random() < CROSS:
                    first[at], second[at] = second[at], first[at]
            children += [self._cut(first), self._cut(second)]
        sizes = [self._filled(counts(schedule)) for schedule in (*parents, *children, *map(self._mutant, parents))]
        sizes.sort(key=score)
        self.population = [[job for job, size in one.items() for _ in range(size)] for one in sizes[:POPULATION]]
        for schedule in self.population:
            schedule += [None] * (GPUS - len(schedule))
        self._deploy(sizes[0])

    def _limits(self) -> None:
        ready = [job for job in self.present if job.size and job.epochs - job.scaled_at >= 2]
        for job in self.present:
            if job in ready:
                if job.size >= job.max_size:
                    job.max_size = min(GPUS, 2 * job.max_size)
                job.cap = min(job.max_size, 4 * job.asked)
            else:
                job.cap = job.size or job.max_size
        largest = max(ready, key=lambda job: job.size, default=None)
        median_s = float(np.median([*self.over_s, *(job.ran_s for job in self.present if job.ran_s > 0)] or [0.0]))
        if largest is not None and largest.size >= GPUS // 2 and largest.ran_s > median_s > 0:
            limit = max(int(2 * largest.size / (largest.ran_s / median_s + 1)), 1)
            largest.cap = limit + limit % 2

    def _cut(self, schedule: Schedule) -> Schedule:
        have: dict[Job, int] = {}
        kept: Schedule = []
        for job in schedule:
            if job is not None and have.get(job, 0) < job.cap:
                have[job] = have.get(job, 0) + 1
                kept.append(job)
            else:
                kept.append(None)
        return kept

    def _mutant(self, schedule: Schedule) -> Schedule:
        gone = {job for job in self.present if job.epochs >= 2 and self.chance.random() < MUTATE}
        return [None if job in gone else job for job in schedule]

    def _filled(self, sizes: dict[Job, int]) -> dict[Job, int]:
        free = GPUS - sum(sizes.values())
        for job in self.present:
            if job.epochs < 2 and job not in sizes and free:
                sizes[job], free = 1, free - 1
        old = sorted((job for job in self.present if job.epochs >= 2), key=lambda job: job.left / job.throughput(1))
        for limit in ("cap", "max_size"):
            for job in old:
                more = min(max(getattr(job, limit) - sizes.get(job, 0), 0), free)
                if more:
                    sizes[job], free = sizes.get(job, 0) + more, free - more
        return sizes

    def _deploy(self, winner: dict[Job, int]) -> None:
        touched = [job for job in self.present if job.size and winner.get(job, 0) != job.size]
        whole = all(job.epochs - job.since >= 1 for job in touched)
        free = GPUS - sum(job.size for job in self.present)
        final = {job: winner.get(job, 0) if whole else job.size for job in self.present}
        for job in self.present:
            if not whole and not job.size and 0 < winner.get(job, 0) <= free:
                final[job], free = winner[job], free - winner[job]
        changed = [job for job in self.present if final[job] != job.size]
        for job in self.present if changed else ():
            job.since = job.epochs
            if whole and not job.size and not final[job] and job.samples > 0:
                job.max_size = max(job.max_size // 2, 1)
        for job in changed:
            job.size, job.scaled_at = final[job], job.epochs
        first = 0
        for job in (job for job in self.present if job.size):  # one block after the other
            nodes = (first + job.size - 1) // NODE - first // NODE + 1
            job.spread, first = nodes > -(-job.size // NODE), first + job.size


def counts(schedule: Schedule) -> dict[Job, int]:
    """GPUs by job."""
    found: dict[Job, int] = {}
    for job in schedule:
        if job is not None:
            found[job] = found.get(job, 0) + 1
    return found


def score(sizes: dict[Job, int]) -> float:
    """GPU-seconds predicted to be left."""
    return sum(size * job.left / job.throughput(size) for job, size in sizes.items() if size and job.rho is not None)


def twin_jct_s(workload: str, seed: int) -> float:
    """Mean JCT of the twin on a generated workload."""
    work = generate(Spec.parse(f"{workload},seed={seed}"), GPUS)
    truth, draw = ElasticJobs(work, NODE, GPUS), np.random.default_rng([seed, 53])
    sizes = np.arange(1, GPUS + 1)
    jobs = []
    for row in range(len(work)):
        fewest = -(-sizes // NODE)
        fast, apart = (speeds(truth, np.full(GPUS, row), sizes, nodes, False) for nodes in (fewest, fewest + 1))
        jobs.append(
            Job(
                row,
                float(work.submit_s[row]),
                int(work.gpus[row]),
                float(work.duration_s[row]),
                float(truth.epoch_size[row]),
                [0.0, *fast.tolist()],
                [0.0, *apart.tolist()],
                truth.table(row, False)[0].tolist(),
                3.0 * float(np.exp(0.4 * draw.standard_normal())),
                float(draw.uniform(0.05, 0.2)),
            )
        )
    return Twin(jobs, seed).play()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ones_twin", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    held = True
    print(f"mean JCT in seconds on {CLUSTER}, costs none; each seed, then the mean")
    for workload in WORKLOADS:
        ours = [float(run.jct_s.mean()) for run in played(workload, "ones", options.seeds, "none")]
        twin = [twin_jct_s(workload, seed) for seed in range(options.seeds)]
        apart = float(np.mean(ours) / np.mean(twin) - 1)
        held = held and abs(apart) <= 0.1
        for name, values in (("ones", ours), ("twin", twin)):
            print(f"{workload:<24}{name:<8}" + "".join(f"{value:>10,.1f}" for value in (*values, np.mean(values))))
        print(f"{workload:<24}{100 * apart:+.1f} %", flush=True)
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
