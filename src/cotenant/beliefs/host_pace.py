"""How much longer a host takes now than when it was measured, from the starts of jobs.

Starting up is the host's work: imports, building a model, the first step. Hosts are not as fast at one time as at
another, a virtual machine the less so the more its neighbours do, and that concerns all jobs at once. So the starts
that were seen tell of those to come, and of steps for which a GPU waits. Steps that keep the GPU busy hardly change
(`core/bound.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

SPREAD = 0.07  # of a host from one time to another, as a logarithm: three with an H200 had 0.036, 0.094 and 0.063
OWN_SPREAD = 0.1  # of one start at the same time: there they had 0.099 to 0.109
_FAR = 0.5  # a start that is off by more tells of something else: files that nobody had read yet, a full disk


@dataclass(frozen=True, slots=True)
class HostPace:
    """`shift`: the logarithm of how much longer the host takes, as believed; `spread`: the doubt about it."""

    shift: float = 0.0
    spread: float = SPREAD


def host_pace(starts: Iterable[float]) -> HostPace:
    """By starts that were seen: the logarithm of what each took over what was measured of such starts before."""
    kept = [log for log in starts if abs(log) <= _FAR]
    sure = SPREAD**-2 + len(kept) * OWN_SPREAD**-2
    return HostPace(sum(kept) * OWN_SPREAD**-2 / sure, sure**-0.5)
