"""A service of commit 7050bf1 with real jobs, to be killed: run by `test_upgrade_live.py` with that commit's sources.

`old_service.py HOME` submits jobs, serves them on four virtual GPUs under srtf, and says in which states they are once
there are some of every kind, in one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from cotenant.core.jobspec import parse_job
from cotenant.service.facade import Caller, Role
from cotenant.service.run import Loop, first_token, open_service

ADMIN = Caller("root", Role.ADMIN)
COUNT = 'for ((i = 0; i < {}; i++)); do echo "$COTENANT_KEY $i" | tee -a "$TRAIL"; sleep 0.05; done; echo done'


def main(home: Path) -> None:
    """Serve until killed."""
    service = open_service(home=home, policy="srtf", db=None, gpus=4, grace_s=20.0)
    first_token(service, home)
    Loop(service).start()
    env = {"TRAIL": str(home.parent / "trail")}

    def submit(name: str, turns: int, **fields: object) -> str:
        spec = parse_job({"run": COUNT.format(turns), "name": name, "env": env, **fields})
        ((job, *_),) = service.submit(ADMIN, [spec], *((name, name) if name == "short" else ()))
        return str(job)

    def wait(job: str, state: str) -> None:
        while str(service.job(ADMIN, job).state) != state:
            time.sleep(0.02)

    quick = submit("quick", 1)
    wait(quick, "succeeded")
    long = submit("long", 60, gpus=3, expected=600)
    stays = submit("stays", 200, preemptible=False, expected=500)
    wait(long, "running")
    wait(stays, "running")
    time.sleep(0.3)
    short = submit("short", 100, gpus=2, expected=50)
    wait(long, "suspended")
    wait(short, "running")
    for number in range(3):
        submit(f"waits-{number}", 2, gpus=4, expected=1000 + number)
    held = submit("held", 1, gpus=4, expected=2000)  # it cannot start before it is held
    service.hold(ADMIN, held)
    if str(service.job(ADMIN, held).state) != "pending":
        raise SystemExit("the held job runs")
    jobs = {info.id: [info.name, str(info.state)] for info in service.jobs(ADMIN)}
    sys.stdout.write(json.dumps(jobs) + "\n")
    sys.stdout.flush()
    time.sleep(600)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
