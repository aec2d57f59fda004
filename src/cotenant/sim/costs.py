"""What starting and stopping a job costs, in seconds.

By default one price: to save and restore it, charged when it starts again. During that time the job holds its GPUs and
makes no progress; the GPU-seconds are reported as lost. Tiresias measured about 60 s per preemption on its testbed
(62.1, 58.7 and 57.1 s in three runs). Where the profile was measured (`cotenant profile`), every start, restore, save,
suspension and exit takes what it took there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.compat import costs_of_systems
from cotenant.core.errors import InputError
from cotenant.core.spec import Spec, Value, typed_params
from cotenant.core.workload import Floats, Workload
from cotenant.engine.tables import JobCosts
from cotenant.workload.model_facts import preemption_costs_s
from cotenant.workload.profiles import Profile
from cotenant.workload.profiles.lifecycle import better_suspended
from cotenant.workload.stages import start_seconds_of

FLAT_S = 60.0
RESIZE_S = 2.0  # pause of an elastic job that changes its size: groups are built, parameters are sent
LOAD_S = 10.0  # until the new workers of a growing job are ready; the old ones train on
MEASURED: dict[str, Value] = {
    "max_suspended": 0,  # so many jobs may be suspended at a time, as with `serve --max-suspended`
    "saves": True,  # jobs that were seen to save are asked to unless suspending is better; otherwise nobody can save
}
"""Parameters of the costs `profile`."""


@dataclass(frozen=True, slots=True)
class Charges:
    """What the jobs of a workload are charged: to restore after a stop, and where measured all else."""

    restore_s: Floats
    jobs: JobCosts | None = None
    most_suspended: int = 0


def charges(name: str, work: Workload, profile: Profile, takes_turns: bool) -> Charges:
    """By a name of `restore_seconds`, or `profile`, `profile:max_suspended=4`: as measured.

    `default` is as measured too, where the profile knows a job. `takes_turns`: jobs make room for each other's turns,
    which they do by suspension where they can.
    """
    spec = Spec.parse(name) if name.partition(":")[0] == "profile" else Spec("default")
    known = profile.lifecycle
    if spec.name == "profile" and known is None:
        raise InputError(
            f"--costs {name}: profile '{profile.name}' does not know them; `cotenant profile` measures them"
        )
    restore_s = restore_seconds("default" if spec.name == "profile" else name, work)
    if known is None or name.partition(":")[0] not in ("default", "profile"):
        return Charges(restore_s)
    values = typed_params(spec, MEASURED, "costs")
    most = int(str(values["max_suspended"]))
    if most < 0:
        raise InputError(f"--costs {name}: max_suspended must not be negative")
    return _measured(work, profile, restore_s, most, bool(values["saves"]), takes_turns)


def _measured(work: Workload, profile: Profile, usual_s: Floats, most: int, saves: bool, takes_turns: bool) -> Charges:
    """As the profile says. The first step is part of the time to start, and of the work: it counts once."""
    assert profile.lifecycle is not None
    of = profile.lifecycle.take(profile.row)
    step_s = np.nan_to_num(1 / profile.steps_per_s[profile.row])
    seen = np.isfinite(of.start_s) | np.isfinite(of.restore_s)
    can_save = np.isfinite(of.save_s) & saves
    stands = np.isfinite(of.suspend_s) & (most > 0)
    rung = stands & (~can_save | better_suspended(of))
    leaves_s = np.where(rung | (stands & takes_turns), of.suspend_s, of.save_s)
    jobs = JobCosts(
        save_s=np.nan_to_num(leaves_s),
        start_s=np.maximum(np.nan_to_num(of.start_s) - step_s, 0.0),
        resume_s=np.nan_to_num(of.resume_s),
        rung=rung.astype(np.int64),
        yields=stands + 2 * np.ones(len(work), np.int64),
        exit_s=np.nan_to_num(of.exit_s),
    )
    return Charges(np.where(seen, np.nan_to_num(of.restore_s), usual_s), jobs, most)


def restore_seconds(name: str, work: Workload) -> Floats:
    """Seconds per preemption of each job: `default`, `none`, `flat`, `startup`, a name of `compat` or a number.

    `startup` is what starting a model took on Muri's testbed, 60 s for models that it did not have.
    """
    if name == "none":
        return np.zeros(len(work))
    if name == "flat":
        return np.full(len(work), FLAT_S)
    if name == "default":
        known = preemption_costs_s(work)
        return np.where(np.isnan(known), FLAT_S, known)
    if name == "startup":
        known = start_seconds_of(work)
        return np.where(known > 0, known, FLAT_S)
    systems = costs_of_systems()
    if name in systems:
        return systems[name](work)
    try:
        seconds = float(name)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < np.inf:
        names = ", ".join(("default", "none", "flat", "startup", "profile", *systems))
        raise InputError(f"--costs '{name}': write {names} or a number of seconds")
    return np.full(len(work), seconds)
