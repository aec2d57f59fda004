"""Features of a model's graph: operators that multiply, floating point operations, parameters, batch.

Multiplications dominate, so only matrix products, convolutions and recurrent layers count: two FLOPs per multiply-add,
three passes for forward and backward. A recurrent layer counts as two operators, like two linear layers (Horus,
HotCloud'20). Attention counts as its two matrix products.
"""

from __future__ import annotations

from dataclasses import dataclass

PASSES = 3  # forward, and backward to weights and to inputs


@dataclass(frozen=True, slots=True)
class GraphFeatures:
    """What the predictor looks at. `flops` are those of one training step on one GPU."""

    flops: float
    parameters: float
    batch: int
    operators: int
