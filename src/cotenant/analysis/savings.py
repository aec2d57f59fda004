"""What backfill, consolidation, sharing or four more nodes would have saved, by replays of the worst stretch.

Each change is compared with the same run without it. Sharing is a plan that is asked in Python at every event: it is
played on every tenth job and a tenth of the nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cotenant.analysis.groups import share
from cotenant.analysis.replay import MORE_NODES, Scene, figures, with_more_nodes
from cotenant.core.errors import InputError
from cotenant.core.outcome import Outcome

THIN = 10
_SMALL = 1000  # jobs up to which sharing is played whole
Progress = Callable[[int, int], None]


def savings(scene: Scene, progress: Progress | None = None) -> dict[str, Any]:
    """The run without any change, and one row per change."""
    count = 0

    def play(*args: Any, **more: Any) -> Outcome:
        nonlocal count
        made = scene.play(*args, **more)
        count += 1
        if progress is not None:
            progress(count, 7)
        return made

    base = play("fifo")
    plain, spread = figures(base), figures(play("fifo", "spread"))
    rows = {
        "backfill": _row("easy for fifo", plain, figures(play("easy"))),
        "consolidation": _row("consolidated for spread, fifo", spread, plain),
        "more_nodes": _row(
            f"{MORE_NODES} more nodes, fifo", plain, figures(play("fifo", cluster=with_more_nodes(scene.cluster)))
        ),
    }
    lacking = ""
    if scene.profile == "none":
        lacking = "several types of GPU: it is not known how jobs share them"
    else:
        few = scene if len(scene.work) <= _SMALL else scene.thinned(THIN)
        try:
            alone, shared = figures(few.play("sjf")), figures(few.play("sjf-bsbf"))
            rows["sharing"] = _row("sjf-bsbf for sjf", alone, shared)
            if few is not scene:
                rows["sharing"]["played_on"] = f"every {THIN}th job, {few.cluster.nodes} nodes"
        except InputError as error:  # no job fits the smaller cluster, for one
            lacking = str(error)
        if progress is not None:
            progress(7, 7)
    for name, row in rows.items():
        row["advice"] = _advise(name, row)
    return {"without": plain, "changes": rows} | ({"sharing_lacking": lacking} if lacking else {})


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
    "consolidation": "keep gangs on as few nodes as they need (`--placement consolidated`)",
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
