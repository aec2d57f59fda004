"""Three real jobs with different bottlenecks take turns on one virtual GPU; the bench of the same name, in small."""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median

import pytest
from bench.muri_live import Bench, bench

GAIN = 1.2
QUIET = 0.7  # of a core: with more, others have a share of what the jobs hand to each other


def _gain(made: Bench, number: int) -> float:
    """How much longer the three take one by one.

    Stages are believed after 30 steps (`WINDOW_STEPS`) and a report; who has made 50 may have been missed on a busy
    machine, and whoever is not known is in no group: so they run alone again until all three are.
    """
    made.run("mixed", "one by one", number)
    for again in range(1, 4):
        if len(made.stages()) < 3:
            made.run("mixed", "one by one", 10 * again + number)
    made.run("mixed", "turns", number)
    serial_s, turns_s = (made.found[f"mixed/{how}/{number}"]["took_s"] for how in ("one by one", "turns"))
    return float(serial_s / turns_s)


@pytest.mark.slow
def test_a_group_in_turns_ends_earlier_than_one_by_one_and_than_plain_sharing(tmp_path: Path) -> None:
    """One core prepares data, another one computes, and there is the disk: each job waits most for another of them."""
    quiet = os.getloadavg()[0] < QUIET and (os.cpu_count() or 1) > 1
    with bench(tmp_path, gpus=1, steps=50, step_s=0.12) as made:
        made.calibrate()
        gains = [_gain(made, 0)]
        while gains[-1] <= GAIN and len(gains) < 3:  # what others took of the machine meanwhile is not the turns' loss
            gains.append(_gain(made, len(gains)))
        if quiet:
            made.run("mixed", "turns", len(gains))
        for number in range(6 if quiet else 0):  # a start that took long can leave fewer than three side by side
            if len(made.took_s("mixed", "plain")) < 2:
                made.run("mixed", "plain", number)
        assert len(made.stages()) == 3, "what jobs measured of themselves is believed"
        runs = [run for key, run in made.found.items() if "turns" in key]
        assert {(run["at_once"], run["in_turns"]) for run in runs} == {(3, 3)}
        turns_s, plain_s = median(made.took_s("mixed", "turns")), made.took_s("mixed", "plain")
    assert gains[-1] > GAIN, gains
    if quiet:
        assert turns_s < median(plain_s) / 1.05
