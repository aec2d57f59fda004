"""`python -m cotenant.api.simulation_child`: one comparison of policies, in a process of its own with little to break.

Reads what is asked as one line of JSON on standard input, tells how far it has come as lines of JSON on standard
output, and writes the report to `report.html` in its working folder.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import time
from typing import Any

_PR_SET_PDEATHSIG = 1
_TELL_S = 0.5


def limit(memory_gib: float, cpu_s: int, file_gib: float) -> None:
    """Bound this process, and let it end with the service."""
    resource.setrlimit(resource.RLIMIT_AS, (int(memory_gib * 2**30),) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 5))
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(file_gib * 2**30),) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(10)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def tell(**what: Any) -> None:
    """One line for the service."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def compare(asked: dict[str, Any]) -> None:
    """Play the workload under each policy and write the report."""
    from cotenant.core.outcome import Outcome
    from cotenant.core.spec import Spec
    from cotenant.report.html import write_html
    from cotenant.sim.driver import Experiment, simulate
    from cotenant.workload.cluster_file import load_cluster
    from cotenant.workload.generators import generate
    from cotenant.workload.readers import read

    cluster = load_cluster(asked["cluster"])
    work = generate(Spec.parse(asked["generate"]), cluster.gpus) if asked["generate"] else read(asked["log"])
    outcomes: list[Outcome] = []
    last_s = 0.0

    def progress(done: int, total: int) -> None:
        nonlocal last_s
        if time.monotonic() - last_s >= _TELL_S:
            last_s = time.monotonic()
            tell(policy=policy, done=done, jobs=total, runs=len(outcomes))

    for policy in asked["policies"]:
        tell(policy=policy, done=0, jobs=len(work), runs=len(outcomes))
        outcomes.append(simulate(Experiment(work, cluster, policy, skip_infeasible=True), progress))
    what = asked["generate"] or asked["log"]
    command = f"cotenant compare {what} --cluster {asked['cluster']} --policies {','.join(asked['policies'])}"
    title = f"{len(outcomes)} policies on {asked['cluster']}"
    write_html(outcomes, "report.html", title=title, command=command)
    tell(runs=len(outcomes), notes=list(dict.fromkeys(work.notes))[:20])


def main() -> None:
    """Do what standard input asks; what the user can mend is told, anything else too."""
    asked = json.loads(sys.stdin.readline())
    limit(asked["memory_gib"], asked["cpu_s"], asked["file_gib"])
    from cotenant.core.errors import CotenantError

    try:
        compare(asked)
    except CotenantError as error:
        tell(error=" ".join(str(error).split()))
        sys.exit(2)
    except MemoryError:
        tell(error=f"it needs more than the {asked['memory_gib']:g} GiB of memory that it may have: take a smaller log")
        sys.exit(2)


if __name__ == "__main__":
    main()
