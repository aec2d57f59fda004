"""How large a batch may become before its samples help less: the gradient noise, estimated from gradients.

On average a batch of B samples has a gradient of squared norm |G|^2 + S / B. Data-parallel jobs see two at every
step, of one worker and of all, and two such equations give both unknowns; the noise is phi = S / |G|^2, in
samples (McCandlish et al., 2018, appendix A; Pollux, OSDI'21). Both are averaged before they are divided. On one GPU
there is no second batch, and nothing is learned.
"""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN = 1e12  # samples: a batch that never becomes too large


@dataclass(slots=True)
class _Sums:
    """Of one kind, over all steps seen."""

    gradient: float = 0.0
    spread: float = 0.0


class NoiseBelief:
    """The noise of each kind of job, from what its jobs have measured so far."""

    def __init__(self) -> None:
        self._sums: dict[int, _Sums] = {}

    def take(self, kind: int, small: float, small_sq: float, large: float, large_sq: float, steps: float = 1.0) -> None:
        """Mean squared norms of gradients of `small` and of `large` samples over so many steps."""
        if not 0 < small < large:
            return
        sums = self._sums.setdefault(kind, _Sums())
        sums.gradient += steps * (large * large_sq - small * small_sq) / (large - small)
        sums.spread += steps * (small_sq - large_sq) / (1.0 / small - 1.0 / large)

    def of(self, kind: int) -> float:
        """The noise in samples; `UNKNOWN` where nothing was measured, or the mean gradient is lost in it."""
        sums = self._sums.get(kind)
        if sums is None or sums.gradient <= 0:
            return UNKNOWN
        return min(max(sums.spread, 0.0) / sums.gradient, UNKNOWN)
