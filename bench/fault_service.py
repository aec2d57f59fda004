"""The service of `bench.fault_table` and `bench.faults`: `cotenant serve` with a clock that can be set from outside.

    python -m bench.fault_service HOME CLOCK [--db URL] [--backend local:gpus=2] [--standby] [--unknown-jobs adopt]

CLOCK is a file with two numbers: by how many seconds the wall clock was set, and how many more have passed. Nothing of
this touches the clock of the machine, or of any other process.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path

from cotenant.api.front import Doors, listen, open_front
from cotenant.api.standby import StandbyDoor
from cotenant.core.errors import CotenantError
from cotenant.service.options import Options
from cotenant.service.run import Site, serve
from cotenant.service.store.clock import since_boot_s


def main() -> None:
    """Serve two virtual GPUs, or another backend, until asked to end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("clock", type=Path)
    parser.add_argument("--db")
    parser.add_argument("--backend", default="local:gpus=2")
    parser.add_argument("--standby", action="store_true")
    parser.add_argument("--unknown-jobs", default="")
    given = parser.parse_args()

    def shifts() -> tuple[float, float]:
        set_s, passed_s = given.clock.read_text().split()
        return float(set_s), float(passed_s)

    options = Options(
        given.home, grace_s=2.0, policy="fifo", unknown_jobs=given.unknown_jobs,
        clock=lambda: time.time() + sum(shifts()), steady=lambda: since_boot_s() + shifts()[1],
    )  # fmt: skip
    try:
        doors = Doors(given.home.absolute(), port=0)
        tcp = listen(doors)
        standby = partial(StandbyDoor, doors, tcp) if given.standby else None
        serve(partial(open_front, doors, tcp), options, Site(given.db, given.backend), standby)
    except CotenantError as error:
        sys.exit(f"cotenant: {error}")


if __name__ == "__main__":
    main()
