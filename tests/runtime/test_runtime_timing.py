"""What a runtime says of its steps: the median of the last ones, and exact times of what is not a step."""

from __future__ import annotations

import time

import pytest

from cotenant.runtime._timing import StepTiming, process_began
from cotenant.runtime.protocol import Progress, decode, encode


def test_a_process_knows_how_old_it_is() -> None:
    age_s = time.monotonic() - process_began()
    assert 0.0 < age_s < 24 * 3600.0
    assert StepTiming().age_s >= age_s


def test_the_first_step_counts_only_until_there_are_others() -> None:
    timing = StepTiming()
    assert (timing.step_time_s, timing.ready_s) == (0.0, 0.0)
    timing.finished(501, 1, 10.0)
    assert timing.ready_step == 501
    assert timing.ready_s == pytest.approx(timing.age_s, abs=5.0)
    assert timing.step_time_s == 10.0
    ready_s = timing.ready_s
    for step, seconds in ((502, 0.1), (503, 9.0), (504, 0.12), (505, 0.11), (506, 0.13)):
        timing.finished(step, 1, seconds)
    assert (timing.ready_s, timing.ready_step) == (ready_s, 501)
    assert timing.step_time_s == 0.12


def test_several_steps_at_a_time_and_checkpoints() -> None:
    timing = StepTiming()
    timing.saved(3.0)  # before the first step: part of the start
    timing.finished(10, 10, 5.0)
    timing.finished(20, 10, 2.0)
    timing.saved(1.5)
    assert (timing.step_time_s, timing.ready_step, timing.saving_s) == (0.2, 10, 1.5)


def test_older_peers_ignore_what_they_do_not_know_and_say_less() -> None:
    line = encode(Progress(5, 10, 0.1, {}, True, 12.0, 8.0, 1, 0.5))
    assert decode(line) == Progress(5, 10, 0.1, {}, True, 12.0, 8.0, 1, 0.5)
    old = decode(b'{"type":"progress","step":5,"total":10,"step_time_s":0.1,"saves":true}\n')
    assert old == Progress(5, 10, 0.1, {}, True)
