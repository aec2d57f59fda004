"""What ONES and its variant have in common: a population of schedules that lives from decision to decision.

Jobs that cannot change their size run as they asked, in order of submission, before the others. Time is the driver's
and draws come from one seeded generator, so that the same seed gives the same run.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.plan import Plan
from cotenant.core.training import Training
from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints
from cotenant.placement.room import Room
from cotenant.policies.base import Context, PlanPolicy
from cotenant.policies.ones.evolution import EMPTY, Limits, first_population, generation, refresh
from cotenant.policies.ones.predictor import ProgressModel
from cotenant.policies.ones.reorder import place_rigid, place_sizes
from cotenant.policies.ones.saying import sizes_said
from cotenant.policies.ones.scaling import Sizes

YOUNG = 2.0  # epochs before a job is predicted, scaled or may be stopped


class Evolving(PlanPolicy):
    """Sizes of elastic jobs by evolution of whole schedules; what a schedule is worth is the subclass's."""

    resizes = True
    said: ClassVar[str]  # why a job has no more GPUs

    def checked(self) -> None:
        """Refuse parameters that make no sense."""
        if self.params["progress"] not in ("sample", "mean"):
            raise InputError(f"policy '{self.name}': progress={self.params['progress']}: write sample or mean")
        for name in ("population", "interval", "generations"):
            if not self.number(name) > 0:
                raise InputError(f"policy '{self.name}': {name}={self.params[name]} must be above 0")

    def begin(self, context: Context) -> None:
        """Nothing has been learned, and the first population is yet to come."""
        self.rng = np.random.default_rng([context.seed, 41])
        self.progress = ProgressModel(context.seed)
        self.sizes = Sizes()
        self._genomes: Ints | None = None
        self._jobs: list[int] = []  # row of each number in the genomes
        self._looks: dict[int, list[tuple[Floats, float]]] = {}
        self._samples: dict[int, float] = {}  # when last looked at, by row

    def decide(self, view: View) -> Plan:
        """Rigid jobs as they are; sizes of the elastic ones by evolution."""
        board = Room(view)
        elastic, training = view.facts.elastic, view.facts.training
        mine = np.zeros(len(view.rows), bool) if elastic is None or training is None else elastic[view.rows]
        run = place_rigid(board, np.flatnonzero(~mine))
        which = np.flatnonzero(mine)
        later_s = view.now_s + self.number("interval")
        if not len(which) or training is None:
            next_s = np.inf if training is None else later_s
            return Plan(run, next_s=next_s, why=sizes_said(view, {}, next_s, self.said))
        which = which[np.lexsort((view.rows[which], view.submit_s[which]))]
        now = {int(view.rows[at]): view.placement(int(view.rows[at])) for at in which[view.running[which]].tolist()}
        places = place_sizes(board, self.wanted(view, training, which, board.left), now)
        pause = {
            row: training.resize_s
            for row, place in places.items()
            if row in now and sum(g for _, g in place) <= sum(g for _, g in now[row])
        }
        run.update(places)
        return Plan(run, next_s=later_s, pause_s=pause, why=sizes_said(view, run, later_s, self.said))

    @abstractmethod
    def wanted(self, view: View, training: Training, which: Ints, gpus: int) -> list[tuple[int, int]]:
        """Rows and their sizes, of the elastic jobs (places in the view, by submission) on so many GPUs."""

    def drawn(self, x: np.ndarray) -> Floats:
        """Progress of jobs with these features: a draw from its distribution, or the mean."""
        return np.clip(self.progress.draw(x, self.params["progress"] == "sample"), 1e-12, 1.0)

    def evolved(self, ids: list[int], gpus: int, limits: Limits, cost: np.ndarray) -> Ints:
        """The next population over these rows, the best schedule first."""
        genomes = self._population(ids, gpus, limits.cap)
        for _ in range(int(self.number("generations"))):
            genomes = generation(
                genomes, limits, cost, self.rng, cross=self.number("crossover"), mutation=self.number("mutation")
            )
        self._genomes, self._jobs = genomes, ids
        return genomes

    def learn(self, rows: list[int], x: Floats, samples: Floats, epoch_size: Floats) -> None:
        """Remember what jobs look like after each epoch; when one is gone, learn from its whole course."""
        for row in self._looks.keys() - set(rows):
            looks = self._looks.pop(row)
            total = self._samples.pop(row)
            course = [(seen, done / total) for seen, done in looks if 0 < done < total]
            if course:
                self.progress.finish(np.stack([seen for seen, _ in course]), np.array([share for _, share in course]))
            self.forget(row)
        for k, row in enumerate(rows):
            looks, done = self._looks.setdefault(row, []), float(samples[k])
            self._samples[row] = done
            if done > 0 and (not looks or done > looks[-1][1] + 0.5 * epoch_size[k]):
                looks.append((x[k], done))

    def forget(self, row: int) -> None:
        """A job is gone."""
        self.sizes.forget(row)

    def _population(self, ids: list[int], gpus: int, cap: Ints) -> Ints:
        """The last population, carried over to the jobs and GPUs of now."""
        size = int(self.number("population"))
        if self._genomes is None:
            return first_population(size, gpus, len(ids), self.rng)
        place = {row: at for at, row in enumerate(ids)}
        renumber = np.array([place.get(row, EMPTY) for row in self._jobs], np.int64)
        genomes = self._genomes[:, :gpus]
        if genomes.shape[1] < gpus:
            more = np.full((len(genomes), gpus - genomes.shape[1]), EMPTY, np.int64)
            genomes = np.concatenate([genomes, more], axis=1)
        return refresh(genomes, renumber, cap)
