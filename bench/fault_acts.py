"""The faults of `bench.faults`, one function each: break, let a job come meanwhile, mend. Judging is not done here."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.fault_play import PHASES, Play
from bench.fault_worlds import Cable
from cotenant.core.errors import CotenantError

SIGHT_S = 30.0  # for which a node is gone at most, until that is noticed
RESTART_S = 2.0  # for which PostgreSQL is down
FULL_S = 3.0  # for which a full disk stays full
DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Tools:
    """What some faults need besides the world."""

    postgres: Any = None
    cable: Cable | None = None


def node_killed(play: Play, tools: Tools) -> None:
    """With all that runs there; it comes back once that was noticed."""
    victim = play.victim()

    def noticed() -> bool:
        with suppress(CotenantError, OSError):
            return any(node.name == victim.node and node.state != "up" for node in play.client.nodes())
        return False

    with play.world.node_killed(victim):
        with suppress(TimeoutError):
            play.until(noticed, SIGHT_S)
        play.meanwhile()


def agent_killed(play: Play, tools: Tools) -> None:
    """Once; whoever has to start it again does so."""
    play.world.agent_killed(play.victim())
    play.meanwhile()


def control_stopped(play: Play, tools: Tools) -> None:
    """For a while."""
    with play.world.control_stopped():
        _pass(play, play.away_s)


def service_killed(play: Play, tools: Tools) -> None:
    """`kill -9`, and started again."""
    play.service.kill()
    play.start()
    play.meanwhile()


def leader_killed(play: Play, tools: Tools) -> None:
    """`kill -9`; another one stands by."""
    play.take_over()
    play.meanwhile()


def postgres_restarted(play: Play, tools: Tools) -> None:
    """As if its machine had crashed."""
    tools.postgres.stop()
    _pass(play, RESTART_S)
    tools.postgres.start()


def network_cut(play: Play, tools: Tools) -> None:
    """Between the service and the world."""
    assert tools.cable is not None
    with tools.cable.cut():
        _pass(play, play.away_s)


def disk_full(play: Play, tools: Tools) -> None:
    """The file system of the service's home has no byte left for a while, whatever is deleted there."""
    until_s, fill = time.monotonic() + FULL_S, play.home / "fill"
    tried = False
    while time.monotonic() < until_s:
        with suppress(OSError):
            _fill(fill)
        if not tried:
            play.meanwhile()
        tried = True
        time.sleep(0.05)
    fill.unlink()


def _fill(path: Path) -> None:
    for size in (1 << 20, 4096, 1):
        with suppress(OSError), path.open("ab", buffering=0) as file:
            while True:
                file.write(bytes(size))


def clock_set(play: Play, tools: Tools) -> None:
    """The service's, by a day: forward in some phases, back in others."""
    play.service.set_clock(DAY_S if PHASES.index(play.cell.phase) % 2 == 0 else -DAY_S)
    play.until(lambda: "clock was set" in play.service.log.read_text())
    play.meanwhile()


def _pass(play: Play, seconds: float) -> None:
    began_s = time.monotonic()
    play.meanwhile()
    play.until(lambda: time.monotonic() - began_s > seconds, seconds + 10.0)


ACTS: dict[str, Callable[[Play, Tools], None]] = {
    "node killed": node_killed, "agent killed": agent_killed, "control plane stopped": control_stopped,
    "service killed": service_killed, "leader killed": leader_killed, "PostgreSQL restarted": postgres_restarted,
    "network cut": network_cut, "disk full": disk_full, "clock set": clock_set,
}  # fmt: skip
