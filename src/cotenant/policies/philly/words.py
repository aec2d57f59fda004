"""Why a job waits, in words: for whom its tenant's quota is, or for which locality, and when it tries again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.core.reasons import moment
from cotenant.core.workload import Floats, Ints
from cotenant.policies.philly.attempts import attempt_of, attempt_s, backs_off, locality_of
from cotenant.policies.philly.laying import NO_LIMIT
from cotenant.policies.philly.memory import Tries
from cotenant.policies.philly.tables import HOLD, HOLD_GPUS, HOLD_ROW, IS_RESERVED, LEFT, Timing

_WANTS = ("as few nodes as can be, in one rack", "nodes of one rack", "any nodes")


@dataclass(frozen=True, slots=True)
class WaitingWords:
    """What a decision left of the jobs that wait; nothing in it changes any more."""

    options: Timing
    now_s: float
    rows: Ints
    gpus: Ints
    used: Ints
    quota: Floats
    limit: Ints
    began_s: Floats
    holds: Ints
    idle: int
    reserved: bool

    @classmethod
    def of(
        cls, options: Timing, now_s: float, rows: Ints, gpus: Ints, used: Ints, quota: Floats, limit: Ints,
        kept: Tries, marks: Ints,
    ) -> WaitingWords:  # fmt: skip
        """As it is after a decision."""
        told = kept.began_s(rows), kept.holds(), int(marks[LEFT]), bool(marks[IS_RESERVED])
        return cls(options, now_s, rows, gpus, used, quota, limit, *told)

    def why(self, row: int) -> str:
        """The reason of one job."""
        found = np.flatnonzero(self.rows == row)
        if not len(found):
            return ""
        at = int(found[0])
        gang, used, quota, limit = int(self.gpus[at]), int(self.used[at]), self.quota[at], int(self.limit[at])
        if used + gang > limit and limit < NO_LIMIT:
            return f"its tenant has {used} of at most {limit} GPUs, and it needs {gang}"
        share = f"its tenant has {used} GPUs of its quota of {quota:g}"
        if used >= quota:
            share = f"waits for its fair share: {share}, and none are lent to it"
        else:
            share = f"{share}: within it, but none that suit are free"
        return f"{self._tries(at, gang)}; {share} ({self.idle} idle)"

    def _tries(self, at: int, gang: int) -> str:
        """How its attempts stand."""
        options, began = self.options, float(self.began_s[at])
        if np.isnan(began):
            return f"it needs {gang} GPU{'s' if gang > 1 else ''}"
        attempt = attempt_of(options, began, self.now_s)
        wants = f"{gang} GPUs on {_WANTS[locality_of(options, attempt)]}"
        before = f" of {options.retries + 1}" if attempt <= options.retries else ""
        if backs_off(options, began, self.now_s):
            again = moment(attempt_s(options, began, attempt + 1))
            return f"waits for locality ({wants}): attempt {attempt + 1}{before} timed out, next at {again}"
        if options.way != HOLD:
            return f"waits for {wants}" + (", with a place reserved for the first who waits" if self.reserved else "")
        until = moment(attempt_s(options, began, attempt) + options.timeout_s)
        held = int(self.holds[self.holds[:, HOLD_ROW] == self.rows[at], HOLD_GPUS].sum())
        holds = f"holds {held} of them" if held else "holds none"
        return f"waits for locality ({wants}): attempt {attempt + 1}{before} {holds} until {until}"
