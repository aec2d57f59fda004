"""Tokens that go round a group of real processes: in order, and on when a member is killed, hangs or leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from runtime_service import PATIENCE_S, ROOT, Service

from cotenant.runtime import Job, job
from cotenant.runtime._stages import StageClock
from cotenant.runtime._turns import StageTokens, TurnOrder
from cotenant.runtime.protocol import Progress, ProtocolError, TakeTurns, decode, encode

# A member: it asks for the token at each line that it reads, and gives it back at the next one.
MEMBER = """
import sys
from pathlib import Path
from cotenant.runtime._turns import StageTokens, TurnOrder

me, line, patience = int(sys.argv[2]), tuple(map(int, sys.argv[3].split(","))), float(sys.argv[4])
tokens = StageTokens(Path(sys.argv[1]), TurnOrder("gpu", me, line))
print("ready", flush=True)
for _ in sys.stdin:
    print("asks", flush=True)
    held = tokens.take("compute", patience)
    print(f"{me} has it" if held else f"{me} goes on", flush=True)
    sys.stdin.readline()
    if held:
        tokens.give("compute")
    print("gave", flush=True)
"""


class Member:
    """One process of a group."""

    def __init__(self, folder: Path, me: int, line: str, patience_s: float) -> None:
        command = [sys.executable, "-c", MEMBER, str(folder), str(me), line, str(patience_s)]
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.hears() == "ready"

    def says(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def hears(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def asks(self) -> None:
        self.says()
        assert self.hears() == "asks"

    def takes(self) -> str:
        self.asks()
        return self.hears()

    def gives(self) -> None:
        self.says()
        assert self.hears() == "gave"


Group = Callable[..., Member]


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Group]:
    made: list[Member] = []

    def make(me: int, line: str = "1,2,3", patience_s: float = 60.0) -> Member:
        made.append(Member(tmp_path, me, line, patience_s))
        return made[-1]

    yield make
    for one in made:
        one.process.kill()
        one.process.communicate()


def watcher(folder: Path) -> Callable[[int], None]:
    """Waits until a member waits for its turn: this process is no member, so it only looks."""
    tokens = StageTokens(folder, TurnOrder("gpu", 99, (1, 2, 3)))

    def until_waits(me: int) -> None:
        until = time.monotonic() + PATIENCE_S
        while not tokens.waits("compute", me):
            assert time.monotonic() < until
            os.sched_yield()

    return until_waits


def test_a_token_goes_round_in_the_planned_order_whoever_asked_first(member: Group, tmp_path: Path) -> None:
    one, two, three, waits = member(1), member(2), member(3), watcher(tmp_path)
    assert one.takes() == "1 has it"
    three.asks()
    waits(3)
    two.asks()
    waits(2)
    one.gives()
    assert two.hears() == "2 has it"
    one.asks()
    waits(1)
    two.gives()
    assert three.hears() == "3 has it"
    three.gives()
    assert one.hears() == "1 has it"


def test_a_killed_member_holds_nothing_and_nobody_waits_for_one_that_does_not_ask(member: Group) -> None:
    one, three = member(1), member(3)
    assert one.takes() == "1 has it"
    three.asks()
    one.process.kill()
    assert three.hears() == "3 has it", "and not 2, which never came"
    three.gives()
    assert three.takes() == "3 has it", "a free token is whose who asks"


def test_nobody_waits_for_ever_for_a_member_that_stands_still(member: Group) -> None:
    one, two = member(1), member(2, patience_s=0.2)
    assert one.takes() == "1 has it"
    one.process.send_signal(signal.SIGSTOP)
    assert two.takes() == "2 goes on"
    two.gives()
    two.process.send_signal(signal.SIGCONT)
    one.process.send_signal(signal.SIGCONT)
    one.gives()
    assert two.takes() == "2 has it"


def test_who_was_left_out_of_a_group_holds_up_nobody(member: Group) -> None:
    gone, left = member(1, "1,2"), member(2, "2,3")
    assert gone.takes() == "1 has it"
    assert left.takes() == "2 has it", "of another group: it does not know the first any more"


def test_stages_are_timed_and_follow_each_other(tmp_path: Path) -> None:
    clock = StageClock()
    clock.follow(tmp_path, TurnOrder("gpu", 1, (1,)))
    assert not clock.in_line, "alone nobody takes turns"
    with clock.stage("load"), pytest.raises(RuntimeError, match="stages follow each other"), clock.stage("compute"):
        pass
    with pytest.raises(ValueError, match="one of load, preprocess, compute, synchronise"), clock.stage("gpu"):
        pass
    ended: list[str] = []
    clock.finish["compute"] = lambda: ended.append("compute")
    with clock.stage("compute"):
        pass
    clock.stepped(1, 7.0)
    times = clock.times_s
    assert ended == ["compute"]
    assert set(times) == {"load", "compute", "other"}
    assert sum(times.values()) == pytest.approx(7.0)
    assert not list(tmp_path.iterdir()), "nobody else, no file"


def test_a_job_takes_turns_as_it_is_told_and_says_what_stages_take(inside: Service, tmp_path: Path) -> None:
    def step(made: Job) -> None:
        with made.stage("compute"):
            pass

    with job() as made:
        steps = made.steps()
        next(steps)
        inside.send(TakeTurns("gpu", 5, [4, 5]))
        while not (tmp_path / "turns" / "gpu").exists():
            step(made)
            next(steps)
        for _ in range(3):
            step(made)
            next(steps)
        stages, waited_s = made.stage_times
        assert {"compute", "other"} == set(stages)
        assert waited_s > 0, "asking for the token takes a moment"
        inside.send(TakeTurns())
        while not any(isinstance(said, Progress) and said.stages and not said.waited_s for said in inside.heard):
            step(made)
            next(steps)
    assert inside.wait_for(lambda said: isinstance(said, Progress) and "compute" in said.stages)


def test_turns_travel_and_nonsense_is_refused() -> None:
    told = TakeTurns("gpus-1", 2, [3, 2])
    assert decode(encode(told)) == told
    for wrong in (b'{"type":"turns","where":"../x","me":2,"line":[2,3]}', b'{"type":"turns","where":"x","line":[2]}'):
        with pytest.raises(ProtocolError):
            decode(wrong)
