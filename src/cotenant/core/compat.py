"""Quirks of released simulators that can be switched on to compare with them, by name.

`--compat gavel` switches on all that the authors' published runs need; `--compat gavel:name=value` a single one.
Several are joined by commas. The default is always the behaviour that the paper means.
"""

from __future__ import annotations

from collections.abc import Sequence

from cotenant.core.errors import InputError, unknown
from cotenant.core.spec import Spec

BUNDLES: dict[str, dict[str, str]] = {
    "tiresias": {},
    "muri": {
        "progress": "startup_at_every_event",
        "durations": "iterations",
        "memory": "none",
        "costs": "none",
    },
    "gavel": {
        "reset_interval_s": "1920",
        "late_arrivals": "drop_at_placement",
        "round_end": "latest_finish",
        "progress": "whole_steps",
        "agnostic_rate": "v100_copy",
        "makespan.method": "bisect_1.05",
        "gandiva.threshold": "all_types",
        "costs": "none",
    },
    "chronus": {
        "costs": "chronus",
        "admission": "new_only",
        "events": "slots",
        "spare": "best-effort",
    },
    "synergy": {
        "round_s": "300",
        "progress": "whole_iterations",
        "packing": "from_empty",
        "order": "policy",
        "fit": "first",
        "demand": "profile",
        "costs": "none",
    },
}
"""System -> what its name alone switches on."""

SINGLE: dict[str, dict[str, str]] = {
    "gavel": {**BUNDLES["gavel"], "fifo.type_choice": "stale"},
    "chronus": BUNDLES["chronus"],
    "synergy": {"first_round_s": "1"},
    "muri": BUNDLES["muri"],
}
"""System -> quirks that can be switched on one by one, with the value that does."""


_SECONDS = ("reset_interval_s", "first_round_s")


def parse_compat(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """The quirks of each system named, e.g. `("gavel", "gavel:fifo.type_choice=stale")`."""
    found: dict[str, dict[str, str]] = {}
    for name in names:
        spec = Spec.parse(name)
        if spec.name not in BUNDLES:
            raise unknown("--compat", spec.name, BUNDLES)
        quirks = found.setdefault(spec.name, {})
        if not spec.params:
            quirks.update(BUNDLES[spec.name])
        for key, value in spec.params.items():
            known = SINGLE.get(spec.name, {})
            if key not in known:
                raise unknown(f"quirk of --compat {spec.name}", key, known)
            if key in _SECONDS:
                _check_seconds(name, key, value)
            elif value != known[key]:
                raise InputError(f"--compat {name}: {key} can only be {known[key]}")
            quirks[key] = value
    return found


def _check_seconds(name: str, key: str, value: str) -> None:
    try:
        good = 0 <= float(value) < float("inf")
    except ValueError:
        good = False
    if not good:
        raise InputError(f"--compat {name}: {key} must be a number of seconds, 0 or more")
