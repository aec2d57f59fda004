"""The rolling estimate P_R of QSSF (Helios, SC'21, section 4.2.2), from finished jobs only. Seconds.

1. user unknown: mean of all jobs with as many GPUs;
2. user known, no similar name: mean of this user's jobs with as many GPUs;
3. similar name: mean of this user's jobs of that kind, each older one weighing `decay` times the next.

Without a job of as many GPUs that condition is dropped. `decay=1` weighs all alike. All O(1) per job.
"""

from __future__ import annotations

from dataclasses import dataclass

from cotenant.beliefs.prediction.names import NO_NAME, NameKinds
from cotenant.core.workload import Workload


@dataclass(slots=True)
class Mean:
    """A mean in which a value weighs `decay` for every value that came after it."""

    total: float = 0.0
    weight: float = 0.0

    def add(self, value: float, decay: float = 1.0) -> None:
        """One more value, the newest."""
        self.total = self.total * decay + value
        self.weight = self.weight * decay + 1.0

    @property
    def value(self) -> float:
        """The mean; needs at least one value."""
        return self.total / self.weight


class Rolling:
    """What finished jobs say about the next one."""

    def __init__(self, decay: float = 0.5, prior_s: float = 3600.0) -> None:
        self._decay, self._prior_s = decay, prior_s
        self._means: dict[tuple[int, int, int], Mean] = {}

    def add(self, user: int, kind: int, gpus: int, duration_s: float) -> None:
        """A job has ended."""
        means = self._means
        for key in ((-1, -1, -1), (-1, -1, gpus), (user, -1, -1), (user, -1, gpus)):
            means.setdefault(key, Mean()).add(duration_s)
        if kind != NO_NAME:
            means.setdefault((user, kind, -1), Mean()).add(duration_s, self._decay)

    def estimate(self, user: int, kind: int, gpus: int) -> float:
        """Seconds that a job submitted now is expected to last."""
        keys = [(user, -1, gpus), (user, -1, -1), (-1, -1, gpus), (-1, -1, -1)]
        if kind != NO_NAME:
            keys.insert(0, (user, kind, -1))
        for key in keys:
            mean = self._means.get(key)
            if mean is not None:
                return mean.value
        return self._prior_s


def kinds_of(work: Workload) -> list[int]:
    """Kind of name per row, in order of submission; the name of a job is its `model` column."""
    kinds = NameKinds()
    of_code: dict[int, int] = {}
    return [
        of_code[code] if code in of_code else of_code.setdefault(code, kinds.kind(work.model.names[code]))
        for code in work.model.code.tolist()
    ]
