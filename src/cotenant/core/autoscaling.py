"""How many replicas an inference service should have now: one rule for simulated and live services.

As many as keep the target at the rate that is foreseen, at once. One more where the service is measured to be late all
the same, then a pause until that one answers. One fewer after `calm_s` in which fewer would have done, and only one per
`LOOK_S`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cotenant.core.serving import InferenceService

LOOK_S = 60.0


@dataclass(slots=True)
class Autoscaler:
    """The rule for one service, and what it has to remember; times in seconds."""

    needed_s: float = -math.inf  # when all replicas were needed last
    fewer_s: float = -math.inf  # when one was given up last
    raised_s: float = -math.inf  # when one was added last because the service was late

    def wanted(self, service: InferenceService, have: int, rate: float, now_s: float, late: bool = False) -> int:
        """Replicas from now on, where there are `have` and `rate` requests per second are foreseen."""
        need = service.replicas_for(rate)
        if late and have < service.most and now_s >= self.raised_s + service.start_s:
            need = max(need, have + 1)
            self.raised_s = now_s
        elif late:
            need = max(need, have)
        if need >= have:
            self.needed_s = now_s
            return min(need, service.most)
        if now_s < self.needed_s + service.calm_s or now_s < self.fewer_s + LOOK_S:
            return have
        self.fewer_s = now_s
        return have - 1
