"""Gavel's completed pairs in the service: kinds that the profile does not know, from what was seen of them."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.beliefs.live_pairs import completed
from cotenant.beliefs.live_profiles import LiveKind, LiveProfiles, Seen, Use, veto

MODELS = ("bert", "lstm", "resnet18_cifar", "resnet50")
ONLINE = "online:profiled=0.2,references=16,rule="


def profiles() -> tuple[LiveProfiles, Seen]:
    """Four models that the profile knows, and one that it does not, whose memory was seen."""
    found = LiveProfiles("h200", ["h200"], {"h200": 140.0})
    for name in (*MODELS, "mine"):
        found.kind_of(LiveKind((name, 1)))
    seen = Seen(uses={((name, 1), "h200"): Use(0.5, 10.0) for name in (*MODELS, "mine")}, changes=1)
    return found, seen


def test_only_who_asks_for_it_believes_in_pairs_that_nobody_knows() -> None:
    found, seen = profiles()
    plain = found.pairs(seen)
    assert plain is not None
    assert (plain[4] == 0).all()
    assert (plain[:4, :4] > 0).all()
    online = found.pairs(seen, ONLINE + "mixture")
    assert online is not None
    assert online[:4, :4] == pytest.approx(plain[:4, :4])
    alone = found.speed[:, :, 0]
    known = plain[:4, :4, 0] / alone[:4, :1]
    assert online[4, :4, 0] / alone[4, 0] == pytest.approx(known.mean(axis=0)), "nothing is known: as the others"


@pytest.mark.parametrize("rule", ["mixture", "nearest"])
def test_a_kind_is_placed_among_those_that_are_known(rule: str) -> None:
    """It does with two of them what `lstm` does; so it is believed to do with the others."""
    found, seen = profiles()
    plain = found.pairs(seen)
    assert plain is not None
    known = plain[:4, :4, 0] / found.speed[:4, :1, 0]
    for other in (0, 2):
        seen.ratios[("mine", 1), (MODELS[other], 1), "h200"] = known[1, other]
        seen.ratios[(MODELS[other], 1), ("mine", 1), "h200"] = known[other, 1]
    online = found.pairs(seen, ONLINE + rule)
    assert online is not None
    ratio = online[4, :4, 0] / found.speed[4, 0, 0]
    assert ratio[[0, 2]] == pytest.approx(known[1, [0, 2]]), "what was measured is believed"
    mean = known.mean(axis=0)
    assert abs(ratio[3] - known[1, 3]) <= abs(mean[3] - known[1, 3])


def test_memory_vetoes_and_too_few_references() -> None:
    found, seen = profiles()
    full = Seen(uses={**seen.uses, (("mine", 1), "h200"): Use(0.5, 120.0)}, changes=2)
    online = found.pairs(full, ONLINE + "mixture")
    assert online is not None
    assert (online[4] == 0).all(), "both do not fit"
    apart = Seen(frozenset([veto(("mine", 1), ("bert", 1), "h200")]), changes=3, uses=profiles()[1].uses)
    online = found.pairs(apart, ONLINE + "mixture")
    assert online is not None
    assert online[4, 0, 0] == online[0, 4, 0] == 0
    assert online[4, 1, 0] > 0
    ratio = np.full((3, 3, 1), np.nan)
    ratio[0, 0] = 0.8
    assert np.isnan(completed(ratio, np.ones(3, np.int64), ONLINE + "mixture")[1:]).all()
