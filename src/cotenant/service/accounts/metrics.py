"""Numbers of tenants for Prometheus. How many lines there are is bounded: beyond the first so many, all are one."""

from __future__ import annotations

from collections import defaultdict

from cotenant.service.accounts.share import SharePicture

MOST_TENANTS = 200
OTHERS = "(others)"


def tenant_metrics(picture: SharePicture) -> dict[str, float]:
    """Gauges of how tenants stand, and what they have ever used."""
    found: defaultdict[str, float] = defaultdict(float)
    names = _labels(picture)
    for row in picture.rows:
        label = names.get(row.name, OTHERS)
        for what in ("guaranteed", "used", "borrowed", "lent", "waiting"):
            found[f'cotenant_tenant_{what}_gpus{{tenant="{label}"}}'] += float(getattr(row, what))
    view, now_s = picture.view, picture.at_s
    total = defaultdict(float, view.gpu_s)
    for job in view.on_gpus.values():
        total[job.tenant] += job.size * max(now_s - (job.last.taken_s or now_s), 0.0)
    for name, gpu_s in total.items():
        found[f'cotenant_tenant_gpu_seconds_total{{tenant="{names.get(name, OTHERS)}"}}'] += gpu_s
    return dict(found)


def _labels(picture: SharePicture) -> dict[str, str]:
    """Declared tenants first, then those that ever had GPUs in the order in which they came: a line keeps its name."""
    known = [tenant.name for tenant in picture.tree.tenants]
    names = list(dict.fromkeys([*known, *picture.view.gpu_s, *(row.name for row in picture.rows)]))[:MOST_TENANTS]
    return {name: name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") for name in names}
