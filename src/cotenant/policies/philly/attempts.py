"""When a job tries to get GPUs: for `timeout_s`, then not for `backoff_s`, and again; after some tries less locally.

All of it follows from the moment at which the first attempt began, so that nobody has to look at every time-out.
"""

from __future__ import annotations

import math

from cotenant.core.jit import entry, kernel
from cotenant.policies.philly.tables import ANYWHERE, FEWEST, HOLD, ONE_RACK, SLACK_S, Timing


@entry
def attempt_of(o: Timing, began_s: float, now_s: float) -> int:
    """The number of its attempt, from 0; one that is over counts until the next begins."""
    if math.isnan(began_s):
        return 0
    return int((now_s - began_s + SLACK_S) / (o.timeout_s + o.backoff_s))


@entry
def attempt_s(o: Timing, began_s: float, attempt: int) -> float:
    """When an attempt begins."""
    return began_s + attempt * (o.timeout_s + o.backoff_s)


@entry
def backs_off(o: Timing, began_s: float, now_s: float) -> bool:
    """Whether its attempt has timed out and the next one has not begun."""
    if o.way != HOLD or math.isnan(began_s):
        return False
    return now_s - attempt_s(o, began_s, attempt_of(o, began_s, now_s)) >= o.timeout_s - SLACK_S


@entry
def locality_of(o: Timing, attempt: int) -> int:
    """After `retries` retries more servers will do, after as many more several racks."""
    if attempt <= o.retries:
        return FEWEST
    return ONE_RACK if attempt <= o.retries + max(o.retries, 1) else ANYWHERE


@kernel
def relaxes_s(o: Timing, began_s: float, attempt: int) -> float:
    """When it will be content with less locality than in this attempt."""
    if attempt <= o.retries:
        return attempt_s(o, began_s, o.retries + 1)
    last = o.retries + max(o.retries, 1)
    return attempt_s(o, began_s, last + 1) if attempt <= last else math.inf
