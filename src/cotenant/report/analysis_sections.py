"""An analysis as sections with one table each, the same for terminal and page: what was found, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cotenant.report.units import count, duration, percent

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
Row = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """One question: its table, remarks on where the figures come from, and one sentence of advice."""

    slug: str
    title: str
    columns: Row
    rows: tuple[Row, ...]
    advice: str = ""
    remarks: tuple[str, ...] = ()


def sections(report: Mapping[str, Any], most: int = 12) -> list[Section]:
    """All that have an answer, in the order of the report; at most so many tenants, reasons and the like in each."""
    makers = (_sizes, _tenants, _queueing, _delay, _statuses, _failures, _utilisation, _spread, _users, _cycles,
              _congestion, _savings)  # fmt: skip
    return [section for make in makers for section in make(report, most)]


def headline(report: Mapping[str, Any]) -> str:
    """The log in one line."""
    when = f"{report['first_submit']} to {report['last_submit']}" if report["first_submit"] else "no dates"
    return (
        f"{count(report['jobs'])} jobs, {count(report['gpu_hours'])} GPU-hours, submitted over"
        f" {duration(report['span_s'])} ({when}); mean {report['mean_gpus']:.2f} GPUs, most"
        f" {count(report['largest_gpus'])}; run time mean {duration(report['run_s']['mean'])}, median"
        f" {duration(report['run_s']['p50'])}"
    )


def _sizes(report: Mapping[str, Any], most: int) -> Iterator[Section]:
    head = ("GPUs", "jobs", "of jobs", "GPU-hours", "of GPU-hours", "median run", "p95 run")
    yield Section("runs", "Run time by size", head, _shares(report["by_size"]), report["advice"]["runs"])


def _tenants(report: Mapping[str, Any], most: int) -> Iterator[Section]:
    found = report["by_tenant"]
    if found:
        head = ("tenant", "jobs", "of jobs", "GPU-hours", "of GPU-hours", "median run", "p95 run")
        more = len(found) - most
        remarks = (f"and {more} more tenants, see the JSON",) if more > 0 else ()
        few = dict(list(found.items())[:most])
        yield Section("tenants", "Tenants", head, _shares(few), report["advice"]["tenants"], remarks)


def _shares(found: Mapping[str, Mapping[str, Any]]) -> tuple[Row, ...]:
    return tuple(
        (
            name, count(row["jobs"]), percent(row["jobs_share"]), count(row["gpu_hours"]),
            percent(row["gpu_hours_share"]), duration(row["p50_run_s"]), duration(row["p95_run_s"]),
        )
        for name, row in found.items()
    )  # fmt: skip


def _queueing(report: Mapping[str, Any], most: int) -> Iterator[Section]:
    found = report["queueing"]
    if found:
        groups = {"all": found["all"], **{_gpus(name): row for name, row in found["by_size"].items()}}
        groups |= dict(list(found.get("by_tenant", {}).items())[:most])
        rows = tuple(
            (name, count(row["jobs"]), *(duration(row[f"{at}_wait_s"]) for at in ("mean", "p50", "p95")))
            for name, row in groups.items()
        )
        head = ("jobs of", "jobs", "mean wait", "median wait", "p95 wait")
        yield Section("queueing", "Queueing", head, rows, report["advice"]["queueing"], (_origin(found),))


def _delay(report: Mapping[str, Any], most: int) -> Iterator[Section]:
    found = report["delay"]
    if found:
        rows = tuple(
            (
                name, count(row["jobs"]), duration(row["fair_share_s"]), duration(row["fragmentation_s"]),
                percent(row["fragmentation_time_share"]), percent(row["fragmentation_jobs_share"]),
            )
            for name, row in found["by_size"].items()
        )  # fmt: skip
        head = ("GPUs", "waiting jobs", "fair share", "fragmentation", "of time fragm.", "of jobs fragm.")
        remarks = [_origin(found)] + ([f"quotas: {found['quotas']}"] if "quotas" in found else [])
        yield Section("delay", "Why jobs wait", head, rows, report["advice"]["delay"], tuple(remarks))


def _origin(found: Mapping[str, Any]) -> str:
    return "as the log says" if found["from"] == "log" else f"not in the log: {found['from']}"


def _statuses(report: Mapping[str, Any], most: int) -> Iterator[Section]:
    found = report["statuses"]
    if found:
        rows = tuple(
            (
                name, count(row["jobs"]), percent(row["jobs_share"]), count(row["gpu_hours"]),
                percent(row["gpu_hours_share"]), duration(row["p50_run_s"]),
            )
            for name, row in found.items()
        )  # fmt: skip
        head = ("status", "jobs", "of jobs", "GPU-hours", "of GPU-hours", "median run")
        yield Section("statuses", "How jobs ended", head, rows, report["advice"]["statuses"])


def _failures(report: Mapping[str, Any], most: int) -> Iterator[Section]:
    found = report["failures"]
    if not found:
        return
    rows = [
        (_gpus(name), count(row["failed"]), percent(row["failed_share"]), f"{row['retries_per_job']:.2f}",
         count(row["gpu_hours"]))
        for name, row in found["by_size"].items()
    ]  # fmt: skip
    rows += [(name, count(row["jobs"]), "", "", count(row["gpu_hours"]))
             for name, row in list(found.get("by_reason", {}).items())[:most]]  # fmt: skip
    head = ("of", "failed jobs", "of jobs", "retries a job", "GPU-hours lost")
    yield Section("failures", "Failures", head, tuple(rows), report["advice"]["failures"])


def _utilisation(report: Mapping[str, Any], most: int) -> Iterator[Section]:
    found = report["utilisation"]
    if found:
        groups = {"all": found["all"]} | {_gpus(name): row for name, row in found["by_size"].items()}
        groups |= found.get("by_status", {}) | dict(list(found.get("by_spread", {}).items())[:most])
        head = ("jobs of", "jobs", "mean use", "median use", "p95 use")
        rows = tuple((name, count(row["jobs"]), *(percent(row[at]) for at in ("mean", "p50", "p95")))
                     for name, row in groups.items())  # fmt: skip
        yield Section("utilisation", "How busy GPUs are", head, rows, report["advice"]["utilisation"])


def _spread(report: Mapping[str, Any], most: int) -> Iterator[Section]:
    found = report["spread"]
    if found:
        rows = tuple((name, count(row["jobs"]), f"{row['mean']:.2f}", count(row["p95"])) for name, row in found.items())
        head = ("GPUs", "jobs", "mean nodes", "p95 nodes")
        yield Section("spread", "Spread over nodes", head, rows, report["advice"]["spread"])


def _users(report: Mapping[str, Any], most: int) -> Iterator[Section]:
    found = report["users"]
    if found:
        rows = tuple((name, count(row["jobs"]), count(row["gpu_hours"]), percent(row["gpu_hours_share"]))
                     for name, row in found["top"].items())  # fmt: skip
        head = ("user", "jobs", "GPU-hours", "of GPU-hours")
        yield Section("users", "Users with the most GPU time", head, rows, report["advice"]["users"])


def _cycles(report: Mapping[str, Any], most: int) -> Iterator[Section]:
    by_hour, by_day = report["by_hour"], report["by_weekday"]
    quarters = [(at, sum(by_hour[at : at + 6])) for at in range(0, 24, 6)]
    rows = [(f"{at:02d}-{at + 5:02d} h", count(jobs), percent(jobs / sum(by_hour))) for at, jobs in quarters]
    rows += [(_DAYS[at], count(jobs), percent(jobs / sum(by_day))) for at, jobs in enumerate(by_day or ())]
    remarks = (f"hours: {report['definitions']['hours']}",)
    yield Section(
        "cycles", "Day and week", ("submitted", "jobs", "of jobs"), tuple(rows), report["advice"]["cycles"], remarks
    )


def _congestion(report: Mapping[str, Any], most: int) -> Iterator[Section]:
    found = report["congestion"]
    rows = (
        ("GPUs wanted, mean", count(found["gpus_wanted_mean"])),
        ("GPUs wanted, peak", count(found["gpus_wanted_peak"])),
        (f"time with more wanted than {count(found['cluster_gpus'])} GPUs",
         percent(found["wanted_beyond_cluster_share_of_time"])),
    )  # fmt: skip
    remarks = []
    if found["cluster_assumed"]:
        remarks.append(
            f"assumed cluster {found['cluster']}: {found['cluster_assumed']}; give the real one by --cluster"
        )
    start = found["window_from"] or f"second {found['window_from_s']:,.0f}"
    remarks.append(f"most congested stretch: {found['window']}, from {start} on")
    yield Section(
        "congestion", "Congestion", ("what", "how much"), rows, report["advice"]["congestion"], tuple(remarks)
    )


def _savings(report: Mapping[str, Any], most: int) -> Iterator[Section]:
    found = report["savings"]
    if not found:
        return
    rows = tuple(
        (name.replace("_", " "), row["change"], duration(row["without_avg_wait_s"]), duration(row["avg_wait_s"]),
         duration(row["without_avg_jct_s"]), duration(row["avg_jct_s"]), percent(row["saved_jct_share"]))
        for name, row in found["changes"].items()
    )  # fmt: skip
    head = ("change", "which", "wait without", "wait with", "completion without", "with", "saved")
    said = tuple(f"{name.replace('_', ' ')}: {row['advice']}" for name, row in found["changes"].items())
    played = [f"sharing is played on {row['played_on']}" for row in found["changes"].values() if "played_on" in row]
    if "sharing_lacking" in found:
        played.append(f"sharing was not played: {found['sharing_lacking']}")
    crowded = report["congestion"]
    base = (
        f"replays of the most congested {count(crowded['window_jobs'])} jobs on {crowded['cluster']},"
        f" without any change under {found['without']['policy']}"
    )
    yield Section("savings", "What would have helped", head, rows, "", (*said, base, *played))


def _gpus(size: str) -> str:
    return "1 GPU" if size == "1" else f"{size} GPUs"
