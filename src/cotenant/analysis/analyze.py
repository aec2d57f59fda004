"""All questions to one log, in one dict."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from cotenant._version import __version__
from cotenant.analysis import congestion as crowd
from cotenant.analysis import cycles, delay, failures, queueing, runs, savings, statuses, use, users
from cotenant.analysis.replay import played, scene
from cotenant.analysis.table import JobTable
from cotenant.core.cluster import Cluster

_STAND_IN = "backfill", "relaxed:after=1080"  # the replay for what a log does not say: nearest to Philly's scheduler
_LACKS = {
    "tenant": ("tenants", "whose jobs they are: nothing can be said by tenant"),
    "user": ("users", "who submitted: nothing can be said of users' shares"),
    "status": ("status", "how jobs ended: passed, killed and failed cannot be told apart"),
    "tries": (
        "attempts",
        "how often jobs were tried: retries and what they cost are not known, durations may hold them",
    ),
    "failure": ("failure reasons", "why jobs failed: failures cannot be told by reason"),
    "wait_s": ("queueing", "when jobs started: queueing cannot be measured, a replay stands in for it"),
    "fair_share_s": ("delay causes", "why jobs waited: the split of delays comes from a replay"),
    "gpu_util": ("utilisation", "how busy GPUs were: nothing can be said of utilisation by size or spread"),
    "servers": ("spread", "on how many nodes jobs ran: nothing can be said of spread"),
}
Bar = Callable[[int, int], None]


def analyze(
    jobs: JobTable, cluster: Cluster | None = None, *, replays: bool = True, progress: Bar | None = None
) -> dict[str, Any]:
    """What `cotenant analyze --json` writes. Without `replays` nothing is simulated."""
    total = runs.totals(jobs)
    sizes, tenants = runs.by_size(jobs), runs.by_tenant(jobs)
    ended, went_wrong = statuses.statuses(jobs), failures.failures(jobs)
    rhythm, people, busy, spread = cycles.cycles(jobs), users.users(jobs), use.use(jobs), use.spread(jobs)
    report: dict[str, Any] = {
        "source": jobs.source, "version": __version__, **total, "first_submit": _date(jobs, total["first_submit_s"]),
        "last_submit": _date(jobs, total["last_submit_s"]), "by_size": sizes, "by_tenant": tenants,
        "by_hour": rhythm.pop("by_hour"), "by_weekday": rhythm.pop("by_weekday"), "cycles": rhythm,
        "statuses": ended, "failures": went_wrong, "users": people, "utilisation": busy, "spread": spread,
    }  # fmt: skip
    report["definitions"] = _definitions(jobs, ended)
    report["lacking_means"] = _lacking(jobs, cluster) | _cut(total)
    report["lacking"] = list(report["lacking_means"])
    report["notes"] = list(jobs.notes)
    report |= _replay(jobs, cluster, tenants, total["largest_gpus"], replays, progress)
    report["advice"] = _advice(report)
    return report


def _replay(
    jobs: JobTable, cluster: Cluster | None, tenants: dict[str, Any], largest: int, replays: bool, progress: Bar | None
) -> dict[str, Any]:
    """Congestion, and what stands on replays of its worst stretch."""
    waits = "wait_s" in jobs.known
    seen = crowd.demand(jobs)
    why = ""
    if cluster is None:
        cluster, why = crowd.assumed_cluster(seen, waits, largest)
    window = crowd.worst_window(seen, waits, cluster.gpus)
    crowded = crowd.congestion(seen, cluster.gpus) | {
        "cluster": cluster.spec, "cluster_gpus": cluster.gpus, "cluster_assumed": why, "window": window.chosen_by,
        "window_jobs": window.jobs, "window_from_s": window.from_s, "window_from": _date(jobs, window.from_s),
    }  # fmt: skip
    told = delay.from_log(jobs)
    if not replays:
        return {"congestion": crowded, "queueing": queueing.queueing(jobs, None), "delay": told, "savings": None}
    stage = scene(crowd.workload_of(jobs, window), cluster)
    stand_in = None
    if not waits or told is None:
        policy, placement = _STAND_IN
        about = f"replay of {window.jobs:,} jobs on {cluster.spec} under {policy}, {placement}"
        stand_in = played(stage.play(policy, placement), jobs, about)
    if told is None and stand_in is not None:
        told = delay.from_replay(stand_in, *delay.quotas_of(cluster, tenants))
    return {
        "congestion": crowded,
        "queueing": queueing.queueing(jobs, stand_in),
        "delay": told,
        "savings": savings.savings(stage, progress),
    }


def _date(jobs: JobTable, at_s: float) -> str | None:
    """A moment on the log's own clock; None for logs that count from zero."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S") if jobs.dated else None


def _definitions(jobs: JobTable, ended: dict[str, Any] | None) -> dict[str, str]:
    """What the words of the report mean for this log."""
    duration = f"run time (duration) is {jobs.duration_means}"
    if "first_to_last_s" in jobs.known:
        duration += "; first start to last end is given beside it as first_to_last_s"
    else:
        duration += "; first start to last end, pauses between attempts included, is not known"
    clock = "local time of the log" if jobs.dated else "from second 0 of the log, taken as midnight"
    exact = "exact, between jobs linearly" if jobs.exact else "of bins 1 % wide: at most half a per cent off"
    return {
        "duration": duration, "killed": statuses.killed_means(ended), "gpu_hours": "GPUs asked times run time",
        "sizes": "buckets 1, 2-4, 5-8 and >8 GPUs of the Philly study", "hours": clock, "percentiles": exact,
    }  # fmt: skip


def _lacking(jobs: JobTable, cluster: Cluster | None) -> dict[str, str]:
    found = {name: f"the log does not say {what}" for key, (name, what) in _LACKS.items() if key not in jobs.known}
    if not jobs.dated:
        found["dates"] = "the log has no dates: hours count from its second 0, weekdays are not known"
    if "first_to_last_s" not in jobs.known:
        found["first start to last end"] = (
            "the log gives one duration: how long a job took over all attempts is not told"
        )
    if cluster is None:
        found["cluster"] = (
            "the log does not say what it ran on: replays assume a cluster, give the real one by --cluster"
        )
    if "model" not in jobs.known:
        found["models"] = (
            "the log does not say what jobs train: replays give them measured models by a hash of their id"
        )
    return found


def _cut(total: dict[str, Any]) -> dict[str, str]:
    """Many jobs of exactly the same, longest duration were cut there."""
    if total["at_longest"] < 10 or total["longest_s"] % 60:
        return {}
    jobs, longest_s = total["at_longest"], total["longest_s"]
    cut = f"{jobs:,} jobs last exactly {longest_s:,.0f} s, the maximum: they look cut off, so GPU-hours are too few"
    return {"true length of the longest jobs": cut}


def _advice(report: dict[str, Any]) -> dict[str, str]:
    """One sentence per question that has an answer."""
    crowded = report["congestion"]
    said = {
        "runs": runs.advise(report["by_size"], report["run_s"]),
        "cycles": cycles.advise(report["cycles"] | {"by_hour": report["by_hour"]}),
        "congestion": crowd.advise(crowded, crowded["cluster_gpus"]),
    }
    if report["by_tenant"]:
        said["tenants"] = runs.advise_tenants(report["by_tenant"])
    for name, advise in (
        ("queueing", queueing.advise), ("delay", delay.advise), ("statuses", statuses.advise),
        ("failures", failures.advise), ("users", users.advise), ("utilisation", use.advise),
        ("spread", use.advise_spread),
    ):  # fmt: skip
        if report[name]:
            said[name] = advise(report[name])
    return said
