"""Truth about speeds: how fast a kind of job runs on a GPU type, consolidated, spread or shared.

`none` says 1 everywhere; `tiresias` slows a spread job by the factor that the Tiresias paper measured;
`h200` knows eight models measured on an H200 and derives other GPU types (`h200`, `roofline`). A file is a
table of speeds (`table_file`), a Gavel throughput file (`gavel`), Chronus' speeds of splits (`splits`), Synergy's
profiles (`synergy`), curves over cores (`curves`) or all that `cotenant profile` has measured (`of_file`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cotenant.core.errors import unknown
from cotenant.core.spec import Spec
from cotenant.core.workload import Workload
from cotenant.workload.model_facts import spread_speed
from cotenant.workload.profiles.base import Kind, Pairs, Profile, kinds_of
from cotenant.workload.profiles.curves import curves_profile, is_curves
from cotenant.workload.profiles.gavel import gavel_profile
from cotenant.workload.profiles.h200 import h200_profile, sharing_of
from cotenant.workload.profiles.h200_loader import h200_loader_profile
from cotenant.workload.profiles.of_file import as_shared, file_profile, split_sharing
from cotenant.workload.profiles.own_pairs import is_pairs, pairs_profile
from cotenant.workload.profiles.profile_file import is_profile_file
from cotenant.workload.profiles.splits import load_splits, split_speeds
from cotenant.workload.profiles.synergy import synergy_profile
from cotenant.workload.profiles.table_file import load_table, table_speeds
from cotenant.workload.readers.throughputs import Throughputs

__all__ = ["BUILT_IN", "Kind", "Pairs", "Profile", "as_shared", "kinds_of", "load_profile"]

BUILT_IN = {
    "none": "every job runs at the speed of the trace, wherever it is placed",
    "h200": "eight models measured on an H200, alone and in pairs; a100, v100 and more by a roofline model",
    "h200-loader": "the same, and what cores (measured) and memory (computed) are worth to models that read images",
    "tiresias": "jobs over more nodes than needed run at the speed measured in the Tiresias paper, by model",
}
"""Profiles that need no file: name -> one line about it."""


def load_profile(name_or_path: str | Path, work: Workload, gpu_types: Sequence[str], soft: bool = False) -> Profile:
    """The speeds of a workload's kinds of jobs on these types; what the profile does not name runs at 1.

    With `soft` GPU memory keeps nobody from a type or from company: who asks looks at it (`soften`).
    """
    name = str(name_or_path)
    kinds, row = kinds_of(work)
    speed = np.ones((len(kinds), len(gpu_types), 2))
    if name == "tiresias":
        speed[:, :, 1] = np.array([spread_speed(model) for model, _ in kinds]).reshape(-1, 1)
    elif name.split(":")[0] == "h200-loader":
        return h200_loader_profile(name, work, gpu_types)
    elif name.split(":")[0] == "h200":
        return h200_profile(name, sharing_of(Spec.parse(name).params), work, gpu_types, soft)
    elif name != "none":
        path = Path(name)
        if is_profile_file(split_sharing(name)[0]):
            return file_profile(name, work, gpu_types, soft)
        if not path.suffix and not path.exists():
            raise unknown("profile", name, BUILT_IN)
        if is_pairs(path):
            return pairs_profile(path, work, gpu_types)
        splits = load_splits(path)
        if splits is not None:
            speed = split_speeds(path, splits, kinds, len(gpu_types))
            return Profile(name, tuple(gpu_types), kinds, row, speed, np.full(len(kinds), np.nan))
        table = load_table(path)
        if isinstance(table, Throughputs):
            return gavel_profile(name, table, work, gpu_types)
        if isinstance(table, dict) and is_curves(table):
            return curves_profile(name, table, work, gpu_types)
        if isinstance(table, dict):
            return synergy_profile(name, table, work, gpu_types)
        speed = table_speeds(table, kinds, gpu_types)
    return Profile(name, tuple(gpu_types), kinds, row, speed, np.full(len(kinds), np.nan))
