"""The placements by name, and which rule of `cotenant.placement.fit` each job gets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.core.columns import ANYWHERE, CONSOLIDATED, SPREAD
from cotenant.core.errors import InputError, unknown
from cotenant.core.spec import Spec, Value, typed_params
from cotenant.core.workload import Floats, Ints


@dataclass(frozen=True, slots=True)
class PlacementRule:
    """A placement as written by the user. `skew_limit` and `relax_after_s` are infinite where not used."""

    text: str
    base_mode: int
    counts_only: bool = False
    relax_after_s: float = np.inf
    skew_limit: float = np.inf

    def modes(self, skew: Floats) -> Ints:
        """Mode per model. Under `skew` a model is consolidated when its skew is above the limit or unknown."""
        modes = np.full(len(skew), self.base_mode, np.int64)
        if np.isfinite(self.skew_limit):
            modes[~(skew > self.skew_limit) & ~np.isnan(skew)] = ANYWHERE
        return modes


@dataclass(frozen=True, slots=True)
class PlacementInfo:
    """What `cotenant policies` says about a placement."""

    description: str
    source: str
    defaults: dict[str, Value]


PLACEMENTS: dict[str, PlacementInfo] = {
    "count": PlacementInfo("counts GPUs only, as if the cluster were one node", "-", {}),
    "consolidated": PlacementInfo("as few nodes as the gang needs; waits for them", "Helios, SC'21", {}),
    "relaxed": PlacementInfo(
        "consolidated, but anywhere once the job has waited `after` seconds", "Philly, ATC'19", {"after": 1080.0}
    ),
    "spread": PlacementInfo("one GPU at a time on the emptiest nodes", "-", {}),
    "skew": PlacementInfo(
        "consolidated for models whose largest tensor holds more than `limit` of the weights, others anywhere",
        "Tiresias, NSDI'19",
        {"limit": 0.4},
    ),
}


def parse_placement(text: str) -> PlacementRule:
    """Read `relaxed:after=1080`."""
    spec = Spec.parse(text)
    if spec.name not in PLACEMENTS:
        raise unknown("placement", spec.name, PLACEMENTS)
    params = typed_params(spec, PLACEMENTS[spec.name].defaults, "placement")
    if spec.name == "count":
        return PlacementRule(text, CONSOLIDATED, counts_only=True)
    if spec.name == "relaxed":
        if not float(str(params["after"])) >= 0:
            raise InputError(f"placement '{text}': after must be 0 seconds or more")
        return PlacementRule(text, CONSOLIDATED, relax_after_s=float(str(params["after"])))
    if spec.name == "spread":
        return PlacementRule(text, SPREAD)
    if spec.name == "skew":
        if not 0 <= float(str(params["limit"])) <= 1:
            raise InputError(f"placement '{text}': limit is a share of the model's weights, from 0 to 1")
        return PlacementRule(text, CONSOLIDATED, skew_limit=float(str(params["limit"])))
    return PlacementRule(text, CONSOLIDATED)


def check_live(text: str) -> None:
    """Refuse what a service cannot do: GPUs without nodes, and rules that change while a job waits."""
    rule = parse_placement(text)
    if rule.counts_only or np.isfinite(rule.relax_after_s):
        raise InputError(f"--placement {text}: a service places by consolidated, spread or skew:limit=X")
