"""Tiresias: least attained GPU service in a few queues (NSDI'19, sections 3.2 and 3.3).

Attained service is GPUs times executed time. Queue k holds jobs below its threshold; a job is demoted the
moment it reaches it. Inside a queue -L sorts by first start (whoever has not started comes last, by submit
time), -G by the Gittins index over past services. `knob` promotes a job that has waited `knob` times as long
as it has run.

`inner=released` is the order inside a queue that the authors' simulator has, whatever its comment says: a list
(`engine.listing`), in which a job that was passed over stays behind whoever passed it. It is what `--compat tiresias`
uses, and nobody weighs what its preemptions cost.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from cotenant.core import columns as col
from cotenant.core.errors import InputError
from cotenant.core.spec import Value
from cotenant.core.state import Rule, make_rule
from cotenant.core.view import View
from cotenant.core.workload import Floats
from cotenant.policies.base import WEIGHING, Context, OrderPolicy
from cotenant.policies.words import by_column

# The paper's simulations use one GPU-hour; the released simulator three queues with these limits.
_THRESHOLD_GPU_S = 3600.0
_RELEASED_GPU_S = (3250.0, 7200.0)
_MOST_SAMPLES_FOR_SUPREMUM = 512
_INNER = ("first-start", "released")


class TiresiasL(OrderPolicy):
    """Queues by attained GPU time, first start inside a queue, with preemption; needs no durations."""

    name = "tiresias-l"
    source = "Tiresias-L, NSDI'19"
    order: ClassVar[tuple[int, ...]] = (col.BY_QUEUE, col.BY_FIRST_START)
    preemptive = True
    defaults: ClassVar[dict[str, Value]] = {
        "threshold": _THRESHOLD_GPU_S,
        "queues": 2,
        "thresholds": (),
        "knob": np.inf,
        "inner": "first-start",
        **WEIGHING,
    }

    def thresholds(self, context: Context) -> tuple[float, ...]:
        """Upper limits of all queues but the last, GPU-seconds; each twice the one before unless listed."""
        listed = self.params["thresholds"]
        queues = int(self.number("queues"))
        if queues < 1:
            raise InputError(f"policy '{self.name}': queues={queues} must be at least 1")
        changed = self.params["threshold"] != _THRESHOLD_GPU_S or queues != 2
        if not listed and not changed and "tiresias" in context.compat:
            return _RELEASED_GPU_S
        limits = tuple(float(x) for x in listed) if isinstance(listed, tuple) else ()
        limits = limits or tuple(self.number("threshold") * 2**k for k in range(queues - 1))
        if any(a >= b for a, b in zip((0.0, *limits), limits, strict=False)):
            raise InputError(f"policy '{self.name}': thresholds {list(limits)} must be positive and rising")
        return limits

    def begin(self, context: Context) -> None:
        """The limits of this run and its order, for whoever asks why."""
        self.limits_gpu_s = self.thresholds(context)
        self.columns = self.inner_order(context)

    def inner_order(self, context: Context) -> tuple[int, ...]:
        """The columns to sort by, with the order inside a queue that was asked for."""
        inner = str(self.params["inner"])
        if inner not in _INNER:
            raise InputError(f"policy '{self.name}': inner={inner} is not one of {', '.join(_INNER)}")
        released = inner == "released" or "tiresias" in context.compat
        return (*self.order[:-1], col.BY_LISTED) if released else self.order

    def finish(self, rule: Rule, context: Context) -> Rule:
        """Stops are weighed, but not where jobs are listed as the authors' simulator does."""
        return rule if col.BY_LISTED in rule.columns else self.weighed(rule, context)

    def why(self, view: View) -> str:
        """Its queue, what that follows from, and what counts inside it."""
        had = float(view.attained_gpu_s[0])
        queue = sum(had >= limit for limit in self.limits_gpu_s)
        ends = (*(f"up to {limit:g}" for limit in self.limits_gpu_s), "no limit")
        where = f"it has had {had:.0f} GPU-seconds and is in queue {queue + 1} of {len(ends)} ({ends[queue]})"
        return "; ".join([where, *(by_column(column, view) for column in self.columns[1:])])

    def rule(self, context: Context) -> Rule:
        """Queue, then first start or place in the list."""
        limits = self.thresholds(context)
        flags = {col.PREEMPTIVE: 1, col.STABLE: 1, col.QUEUES: len(limits) + 1}
        columns, numbers = self.inner_order(context), {col.KNOB: self.number("knob")}
        return self.finish(make_rule(columns, flags, numbers, limits), context)


class TiresiasG(TiresiasL):
    """Queues by attained GPU time, Gittins index inside a queue, with preemption."""

    name = "tiresias-g"
    source = "Tiresias-G, NSDI'19"
    order: ClassVar[tuple[int, ...]] = (col.BY_QUEUE, col.BY_GITTINS, col.BY_FIRST_START)
    defaults: ClassVar[dict[str, Value]] = {**TiresiasL.defaults, "quantum": "queue", "samples": "trace"}

    @property
    def learns(self) -> bool:
        """Whether the distribution is what has finished so far, so that the rule must be renewed."""
        return self.params["samples"] == "finished"

    def rule(self, context: Context) -> Rule:
        """Queue, then Gittins index over the samples, then first start."""
        limits = self.thresholds(context)
        modes = {"queue": col.QUANTUM_QUEUE, "fixed": col.QUANTUM_FIXED, "sup": col.QUANTUM_SUP}
        quantum = str(self.params["quantum"])
        if quantum not in modes or (quantum == "fixed" and not limits):
            raise InputError(f"policy '{self.name}': quantum={quantum} is not one of {', '.join(modes)}")
        flags = {col.PREEMPTIVE: 1, col.QUEUES: len(limits) + 1, col.QUANTUM: modes[quantum]}
        samples = self.samples(context)
        if quantum == "sup" and len(samples) > _MOST_SAMPLES_FOR_SUPREMUM:
            samples = np.quantile(samples, np.linspace(0, 1, _MOST_SAMPLES_FOR_SUPREMUM))
        columns, numbers = self.inner_order(context), {col.KNOB: self.number("knob")}
        return self.finish(make_rule(columns, flags, numbers, limits, samples), context)

    def samples(self, context: Context) -> Floats:
        """Past services in GPU-seconds."""
        where = str(self.params["samples"])
        if where in ("trace", "finished"):
            return context.services_gpu_s
        try:
            lines = Path(where).read_text(encoding="utf-8").split()
            numbers = [float(line) for line in lines if line[:1].isdigit()]
        except (OSError, ValueError) as error:
            raise InputError(f"policy '{self.name}': samples={where} cannot be read: {error}") from None
        if not numbers:
            raise InputError(f"policy '{self.name}': samples={where} holds no numbers (one GPU-second value a line)")
        return np.array(numbers)
