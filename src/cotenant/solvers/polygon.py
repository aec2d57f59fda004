"""The set of prices that could still improve a bound: a part of the simplex for two or three types."""

from __future__ import annotations

import numpy as np

from cotenant.solvers.answer import Floats

_TINY = 1e-13


class Polygon:
    """Points q >= 0 with sum 1, cut by half-spaces g . q >= 0. In the plane of the first coordinates."""

    def __init__(self, types: int) -> None:
        if types not in (2, 3):
            raise ValueError("two or three types")
        self.types = types
        self.corners: list[tuple[float, ...]] = [tuple(row) for row in np.eye(types).tolist()]

    def cut(self, g: Floats) -> None:
        """Keep the side g . q >= 0 (clipping edge by edge)."""
        normal = g.tolist()
        heights = [sum(a * b for a, b in zip(normal, corner, strict=True)) for corner in self.corners]
        if all(h >= 0.0 for h in heights):
            return
        kept: list[tuple[float, ...]] = []
        count = len(self.corners)
        edges = range(count) if count > 2 else range(count - 1)
        if count == 2 and heights[0] >= 0.0:
            kept.append(self.corners[0])
        for i in edges:
            here, there = self.corners[i], self.corners[(i + 1) % count]
            h, t = heights[i], heights[(i + 1) % count]
            if count > 2 and h >= 0.0:
                kept.append(here)
            if (h >= 0.0) != (t >= 0.0):
                f = h / (h - t)
                kept.append(tuple(a + f * (b - a) for a, b in zip(here, there, strict=True)))
        if count == 2 and heights[1] >= 0.0:
            kept.append(self.corners[1])
        self.corners = kept

    def centroid(self) -> Floats | None:
        """Centre of gravity; None once nothing of any size is left."""
        if self.types == 2:
            return self._middle()
        if len(self.corners) < 3:
            return None
        first = np.array(self.corners[0])
        rest = np.array(self.corners[1:]) - first
        cross = rest[:-1, 0] * rest[1:, 1] - rest[1:, 0] * rest[:-1, 1]
        area = float(np.abs(cross).sum())
        if area < _TINY * _TINY:
            return None
        weight = np.abs(cross) / area
        return np.asarray(np.maximum(first + (weight[:, None] * (rest[:-1] + rest[1:])).sum(axis=0) / 3.0, 0.0))

    def _middle(self) -> Floats | None:
        if len(self.corners) < 2:
            return None
        ends = np.array(self.corners)
        if abs(ends[0, 0] - ends[-1, 0]) < _TINY:
            return None
        return np.asarray((ends[0] + ends[-1]) / 2.0)
