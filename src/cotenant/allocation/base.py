"""What an allocator is: given jobs in the order of a policy and servers, who sits where with how many cores and GiB.

An allocator neither orders nor preempts; it packs the jobs of one pool of like servers. The engine hands it a
`Request` and carries out what it wrote into the packing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cotenant.allocation.demand import Demands, Share
from cotenant.allocation.tables import Packing
from cotenant.core.spec import Value
from cotenant.core.workload import Floats, Ints


@dataclass(frozen=True, slots=True)
class Request:
    """One pool at one decision. `order` are positions in the packing, the policy's first job first.

    `turn` is the same with the jobs that are kept in their places in front. `asked` is what the job files say, per
    GPU, NaN where they are silent. `left_s` is the believed remaining time.
    """

    packing: Packing
    order: Ints
    turn: Ints
    kind: Ints
    gangs: Ints  # of every kind
    demands: Demands
    share: Share
    lo: int
    hi: int
    tenant: Ints
    left_s: Floats
    asked: Floats
    by_attained: bool = False  # the policy orders by attained service


class Allocator(ABC):
    """Subclasses are one algorithm each. Parameters come as keyword arguments, checked against `defaults`."""

    name: ClassVar[str] = ""
    source: ClassVar[str] = ""
    skips: ClassVar[bool] = False  # may leave jobs out, so it is shown the whole queue
    common: ClassVar[dict[str, Value]] = {
        "round": 0.0,  # seconds; 0 decides at every event
        "keep": True,  # running jobs keep their GPUs; otherwise everything is packed anew
        "profiling": "oracle",  # what is believed of the matrices: oracle or optimistic
        "noise": 0.0,  # relative error of one measurement of optimistic profiling
        "saturate": 0.9,  # the best-case demand reaches this part of the highest speed
    }
    own: ClassVar[dict[str, Value]] = {}

    def __init__(self, **params: Value) -> None:
        self.params: dict[str, Value] = {**self.common, **self.own, **params}

    @classmethod
    def description(cls) -> str:
        """First line of the docstring."""
        return (cls.__doc__ or "").strip().split("\n")[0]

    def number(self, name: str) -> float:
        """A parameter as a number."""
        return float(str(self.params[name]))

    @abstractmethod
    def pack(self, request: Request) -> None:
        """Place the jobs of `request.order` on servers [lo, hi)."""


def set_demands(packing: Packing, kind: Ints, demands: Demands, jobs: Ints) -> None:
    """Write the demands of some jobs into the packing."""
    packing.want[jobs] = demands.want[kind[jobs]]
    packing.floor[jobs] = demands.floor[kind[jobs]]


def largest_first(packing: Packing, turn: Ints) -> Ints:
    """GPUs, then cores, then memory of the whole gang, largest first; kept jobs before all others; ties stay."""
    gpus = packing.gpus[turn]
    keys = (-gpus * packing.want[turn, 1], -gpus * packing.want[turn, 0], -gpus, -packing.kept[turn])
    return np.asarray(turn[np.lexsort(keys)], np.int64)
