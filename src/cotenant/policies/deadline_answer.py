"""What a policy tells a job with a deadline. It is said once, kept with the job, and holds as it was said."""

from __future__ import annotations

from dataclasses import dataclass

PROMISED, REFUSED = "promised", "refused"


@dataclass(frozen=True, slots=True)
class DeadlineAnswer:
    """The verdict and its reason in one line, when it was given, and for which step of the deadline (-1: none).

    `by_s` is the end of the last lease that is reserved, or of the earliest that could be; 0: there is none.
    """

    verdict: str
    text: str
    at_s: float
    by_s: float
    step: int
