"""How fast a job goes, from what it reports: cold steps, single slow ones and pauses for saving do not count as speed.

A report is a moment and the steps finished by then; two of them are a sample, seconds per step. The typical step is the
median of the last samples. Three samples in a row that lie apart from it, or that are faster than all before, are a
change that lasts (the warm-up is over, another job came or went, the GPU is throttled): what was before is dropped.
The first step of a process is never a sample. What steps take on average is the typical step and what comes on top of
it: evaluation, checkpoints, in proportion since the warm-up.
"""

from __future__ import annotations

import math
from collections import deque

WINDOW = 15  # samples from which the median is taken
LASTS = 3  # samples in a row that make a change
WARM_UP = 50  # samples within which a change is taken for the end of the warm-up
APART = 0.15  # a change is at least so large (as a logarithm), or three times the scatter, or ...
FAR = 0.4  # ... this, however large the scatter is
FASTER = 0.95  # or all of the last samples are below this part of the fastest before
REPORT_S = 0.2  # between two reports of a job at least: a longer stretch is worth several samples
_UNKNOWN = 3.0  # spread before the first sample
_COLD = 2.0  # spread after the first sample, should it be cold; it falls with the number of samples
_LEAST = 0.03  # spread that always remains
_DAMPING = 5  # steps that count as made without anything on top
_ALIKE = math.exp(APART)
_AVERAGED = 5  # steps of such a job that are worth one sample
_LATE = 1  # reports of before a pause that may come after it
_NOTHING = (math.inf, 0.0)


class SpeedBelief:
    """How fast one attempt of a job goes.

    `step_s`: what a step takes of late, None while it is cold or in new company. `mean_s`: seconds per step with all
    that comes on top, for the time that is left; None before anything is known. `spread`: the standard deviation of the
    logarithm of `mean_s`. Made to be asked often: all of it is worked out when a report comes.
    """

    __slots__ = (
        "_busy", "_extra", "_extras", "_fresh", "_last", "_recent", "_samples", "_skips", "_usual", "_waiting",
        "mean_s", "spread", "step_s",
    )  # fmt: skip

    def __init__(self) -> None:
        self.step_s: float | None = None
        self.mean_s: float | None = None
        self.spread = _UNKNOWN
        self._last: tuple[float, int, float] | None = None  # moment, steps, seconds of saving so far
        self._recent: deque[float] = deque(maxlen=WINDOW)  # seconds per step since the last change
        self._waiting: deque[tuple[float, int]] = deque()  # the last samples, as seconds and steps: not yet in the sums
        self._samples = 0
        self._busy, self._extra, self._extras = 0.0, 0.0, 0  # steps; time on top, in typical steps; how often
        self._fresh = False
        self._skips = 0
        self._usual = _NOTHING

    @property
    def warm(self) -> bool:
        """Whether its first, cold steps are behind it, as far as one can see."""
        return self._samples >= LASTS

    def gap(self) -> None:
        """It stood still, or is about to: until a report or two later nothing is said of its speed."""
        self._last, self._skips = None, _LATE

    def new_company(self) -> None:
        """From here on its steps may take longer or shorter; `mean_s` stays until that is seen, `step_s` does not."""
        self._fresh = True
        self.step_s = None

    def told(self, step_s: float, steps: int) -> None:
        """A job that says only what its steps took on average, the cold ones included, after so many of them."""
        self.mean_s, self._samples = step_s, steps // _AVERAGED
        self.step_s = step_s if self.warm else None
        self.spread = math.hypot(_COLD / max(self._samples, 1), 0.1)

    def add(self, moment_s: float, step: int, saving_s: float = 0.0) -> None:
        """So many steps were finished by this moment; `saving_s`: what it has spent in checkpoints so far.

        The first report, and the first after a pause, is only where counting begins: it should be the end of a step.
        """
        last, self._last = self._last, (moment_s, step, saving_s)
        if self._skips:
            self._skips, self._last = self._skips - 1, None
            return
        if self._fresh:
            self._fresh = False
            self._recent.clear()
            self._waiting.clear()
            self._usual = _NOTHING
            return
        if last is None or step == last[1]:
            self._last = last or self._last
            return
        passed_s, steps, saved_s = moment_s - last[0], step - last[1], saving_s - last[2]
        each_s = (passed_s - max(saved_s, 0.0)) / steps
        if steps < 0 or each_s <= 0:  # it began anew, or its clock did
            return
        self._take(each_s, passed_s, steps)

    def _take(self, each_s: float, passed_s: float, steps: int) -> None:
        worth = min(max(int(passed_s / REPORT_S), 1), steps, WARM_UP)
        self._samples += worth
        self._recent.extend([each_s] * min(worth, LASTS))
        self._waiting.append((passed_s, steps))
        alike = self._usual[0] < each_s < self._usual[1]
        if not alike and self._has_changed():
            last = [self._recent[at] for at in range(-LASTS, 0)]
            if self._samples <= WARM_UP:  # what was cold is not what comes on top of steps
                self._busy, self._extra, self._extras = 0.0, 0.0, 0
            self._recent.clear()
            self._recent.extend(last)
            while len(self._waiting) > LASTS:
                self._waiting.popleft()
        elif alike and len(self._waiting) < 2 * LASTS:  # nothing new: think about it now and then
            return
        self._conclude()

    def _has_changed(self) -> bool:
        """Whether the last samples are not of a kind with those before."""
        samples = list(self._recent)
        before, last = sorted(samples[:-LASTS]), samples[-LASTS:]
        if not before:
            return False
        if max(last) < FASTER * before[0]:
            return True
        typical, scatter = before[(len(before) - 1) // 2], _scatter(before)
        apart = math.exp(min(max(APART, 3 * scatter), FAR))
        return min(last) > apart * typical or max(last) < typical / apart

    def _conclude(self) -> None:
        ordered = sorted(self._recent)
        typical = ordered[(len(ordered) - 1) // 2]
        while len(self._waiting) > LASTS:
            passed_s, steps = self._waiting.popleft()
            over = passed_s / typical - steps
            self._busy += steps
            self._extra += over
            self._extras += over > steps
        extra = max(self._extra / (self._busy + _DAMPING), 0.0)
        self.mean_s = typical * (1.0 + extra)
        self.step_s = typical if self.warm and len(ordered) >= LASTS else None
        if self._samples > WINDOW and len(ordered) >= LASTS:
            self._usual = max(FASTER * ordered[0], typical / _ALIKE), typical * _ALIKE
        sampled = _scatter(ordered) / math.sqrt(len(ordered))
        rare = math.log1p(extra) / math.sqrt(max(self._extras, 1))
        self.spread = math.hypot(_COLD / self._samples, sampled, rare, _LEAST)


def _scatter(ordered: list[float]) -> float:
    """The standard deviation of the logarithm of some sorted samples, by their quartiles."""
    quarter = len(ordered) // 4
    return math.log(ordered[-1 - quarter] / ordered[quarter]) / 1.35
