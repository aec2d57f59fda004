"""What backfill, consolidation, sharing or four more nodes would have saved, by replays of the worst stretch.

Each change is made by itself to a plain queue: first come, first served, on whichever nodes are emptiest. Sharing needs
an order that looks at lengths, so it is compared with that order alone; it is a plan that is asked in Python at every
event, so it is played on fewer jobs and on as much fewer nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cotenant.analysis.groups import share
from cotenant.analysis.replay import MORE_NODES, Replay, figures, with_more_nodes
from cotenant.core.errors import InputError

_PLACEMENT = "spread"
_TOGETHER = "relaxed:after=1080"
_FEW_JOBS, _FEW_NODES, _MOST_THIN = 600, 20, 10  # that sharing is played on, and one job of so many at least
_RUNS = 6
Progress = Callable[[int, int], None]


def savings(scene: Replay, progress: Progress | None = None) -> dict[str, Any]:
    """The run without any change, and one row per change."""
    done = 0

    def run(played: Replay, policy: str, placement: str = _PLACEMENT, **more: Any) -> dict[str, Any]:
        nonlocal done
        found = figures(played.play(policy, placement, **more))
        done += 1
        if progress is not None:
            progress(done, _RUNS)
        return found

    plain = run(scene, "fifo")
    rows = {
        "backfill": _row("easy for fifo", plain, run(scene, "easy")),
        "consolidation": _row("few nodes per gang", plain, run(scene, "fifo", _TOGETHER)),
        "more_nodes": _row(
            f"{MORE_NODES} more nodes", plain, run(scene, "fifo", cluster=with_more_nodes(scene.cluster))
        ),
    }
    lacking = ""
    if scene.profile == "none":
        lacking = "several types of GPU: it is not known how jobs share them"
    else:
        try:
            rows["sharing"] = _sharing(scene, run)
        except InputError as error:  # no job fits the smaller cluster, for one
            lacking = str(error)
    for name, row in rows.items():
        row["advice"] = _advise(name, row)
    return {"without": plain | {"policy": f"fifo, {_PLACEMENT}"}, "changes": rows} | (
        {"sharing_lacking": lacking} if lacking else {}
    )


def _sharing(scene: Replay, run: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    by = min(max(scene.cluster.nodes // _FEW_NODES, 1), _MOST_THIN)
    few = scene.thinned(by)
    if len(few.work) > _FEW_JOBS:
        few = few.worst_part(_FEW_JOBS, "sjf", _TOGETHER)
    row = _row("sjf-bsbf for sjf", run(few, "sjf", _TOGETHER), run(few, "sjf-bsbf", _TOGETHER))
    part = f"one job of {by} and " if by > 1 else ""
    return row | {"played_on": f"{part}{few.cluster.nodes} nodes: {row['jobs']:,} jobs"}


def _row(change: str, without: dict[str, Any], by: dict[str, Any]) -> dict[str, Any]:
    return {
        "change": change, "jobs": by["jobs"],
        "avg_wait_s": by["avg_wait_s"], "without_avg_wait_s": without["avg_wait_s"],
        "avg_jct_s": by["avg_jct_s"], "without_avg_jct_s": without["avg_jct_s"],
        "saved_wait_share": share(without["avg_wait_s"] - by["avg_wait_s"], without["avg_wait_s"]),
        "saved_jct_share": share(without["avg_jct_s"] - by["avg_jct_s"], without["avg_jct_s"]),
        "saved_job_hours": (without["avg_jct_s"] - by["avg_jct_s"]) * by["jobs"] / 3600,
    }  # fmt: skip


_DO = {
    "backfill": "run with `easy`, and ask people how long jobs take",
    "consolidation": "keep gangs on as few nodes as they need (`--placement relaxed`)",
    "more_nodes": f"buy or borrow {MORE_NODES} nodes",
    "sharing": "let jobs share GPUs (`sjf-bsbf`), once pairs are measured (`cotenant profile`)",
}


def _advise(name: str, row: dict[str, Any]) -> str:
    saved = row["saved_jct_share"]
    if saved > 0.02:
        return f"It would have cut completion times by {saved:.0%}: {_DO[name]}."
    if saved < -0.02:
        return f"It would have made completion times {-saved:.0%} longer: leave it."
    return "It would have changed little in the worst stretch: other things come first."
