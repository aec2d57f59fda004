"""Cluster energy saving: how many nodes to keep awake (Helios, SC'21, section 4.3; rules as in the released code).

Time goes in steps of ten minutes. In each step, in this order: wake what is needed and `buffer` more, and then sleep
no one for `keep` steps; never exceed the cluster; let nodes sleep if the past falls, the forecast falls and
goes on falling, and enough would be saved. All counts are nodes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from math import inf

from cotenant.core.errors import InputError, unknown
from cotenant.core.spec import Spec, Value, typed_params
from cotenant.power.forecast import Forecast

STEP_S = 600.0


@dataclass(frozen=True, slots=True)
class CesRules:
    """The parameters of the rules; the names of the paper in brackets."""

    past: int = 3  # steps of the past to compare with (H)
    ahead: int = 18  # steps of the forecast; and twice as many (F)
    past_drop: float = 1.0  # least fall against the past (xi_H)
    ahead_drop: float = 1.0  # least fall to the forecast (xi_P)
    saving: float = 1.0  # least nodes to put to sleep (delta)
    buffer: int = 5  # awake beyond what is used (sigma)
    keep: int = 12  # steps without sleep after a wake
    initial: int = 6  # first steps, in which only the buffer is kept

    def __post_init__(self) -> None:
        for name in ("past", "ahead"):
            if getattr(self, name) < 1:
                raise InputError(f"power 'ces': {name}={getattr(self, name)} must be at least 1 step")
        for name in ("past_drop", "ahead_drop", "saving", "buffer", "keep", "initial"):
            if not getattr(self, name) >= 0:
                raise InputError(f"power 'ces': {name}={getattr(self, name)} must be at least 0")


PRESETS: dict[str, CesRules] = {
    "venus": CesRules(3, 18, 0.5, 1, 2, 5, 12),
    "earth": CesRules(6, 18, 1, 1, 5, 5, 12),
    "saturn": CesRules(6, 18, 1, 1, 1, 5, 12),
    "uranus": CesRules(3, 18, 1, 1, 1, 7, 12),
    "philly": CesRules(2, 30, 0.1, 0, 1, 20, 10),
}
"""The parameters of the paper's five clusters."""


DEFAULTS: dict[str, Value] = {
    "preset": "",  # venus, earth, saturn, uranus or philly: the parameters of the paper's clusters
    "past": 3, "ahead": 18, "past_drop": 1.0, "ahead_drop": 1.0, "saving": 1.0, "buffer": 5, "keep": 12,
    "boot": 300.0,  # seconds until a woken node can run jobs
}  # fmt: skip
_RULES = ("past", "ahead", "past_drop", "ahead_drop", "saving", "buffer", "keep")


def parse_power(text: str) -> tuple[CesRules, float]:
    """`ces`, `ces:preset=philly`, `ces:buffer=2,boot=120`: the rules, and the seconds of a boot."""
    spec = Spec.parse(text)
    if spec.name != "ces":
        raise unknown("--power", spec.name, ("ces",))
    values = typed_params(spec, DEFAULTS, "power")
    rules = CesRules()
    if values["preset"]:
        if values["preset"] not in PRESETS:
            raise unknown("preset of --power ces", str(values["preset"]), PRESETS)
        rules = PRESETS[str(values["preset"])]
    given = {name: values[name] for name in _RULES if name in spec.params}
    boot_s = float(str(values["boot"]))
    if not 0 <= boot_s < inf:
        raise InputError(f"power 'ces': boot={boot_s:g} must be at least 0 seconds")
    return replace(rules, **given), boot_s  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class PowerStep:
    """Nodes awake after a step, how many of them were woken or put to sleep in it, and when sleep is allowed again."""

    awake: float
    woken: float = 0.0
    slept: float = 0.0
    frozen_until: int = 0


def wake(rules: CesRules, nodes: int, step: int, awake: float, used: float, frozen_until: int) -> PowerStep:
    """Rules 1 and 2: if fewer are awake than used, wake them and the buffer, as far as the cluster goes."""
    if awake >= used:
        return PowerStep(min(awake, nodes), frozen_until=frozen_until)
    target = min(used + rules.buffer, nodes)
    return PowerStep(target, woken=target - awake, frozen_until=step + rules.keep)


def sleep(rules: CesRules, step: int, now: PowerStep, used: float, before: float, near: float, far: float) -> PowerStep:
    """Rule 3. `before`: mean of the past steps; `near`, `far`: means of the forecast over F and 2F steps from now."""
    target = used + rules.buffer
    falls = before - used >= rules.past_drop and used - near >= rules.ahead_drop and near >= far
    # More than nothing, even where the least saving is 0: rules that wake nobody may not do it by this way either.
    saves = now.awake - target >= rules.saving and now.awake > target
    if not (falls and saves and step >= now.frozen_until):
        return now
    return PowerStep(target, now.woken, now.awake - target, now.frozen_until)


class Ces:
    """The rules with their memory. A driver calls `step` every ten minutes and, if it likes, `need` in between."""

    def __init__(self, rules: CesRules, nodes: int, forecast: Forecast) -> None:
        if nodes < 1:
            raise InputError(f"power 'ces': nodes={nodes} must be at least 1")
        self.rules, self.nodes, self.forecast = rules, nodes, forecast
        self.last = PowerStep(nodes)
        self._steps = 0
        self._past: deque[float] = deque(maxlen=rules.past)

    def step(self, time_s: float, running_nodes: float, queued_nodes: float = 0.0) -> int:
        """Nodes to keep awake from now on, given those that run jobs and those that waiting jobs need."""
        rules, step = self.rules, self._steps
        used = min(running_nodes + queued_nodes, self.nodes)
        self.forecast.observe(time_s, running_nodes)
        if step < rules.initial:
            now = PowerStep(min(used + rules.buffer, self.nodes))
        else:
            now = wake(rules, self.nodes, step, self.last.awake, used, self.last.frozen_until)
            if self._past and step >= now.frozen_until and now.awake > used + rules.buffer:
                before = sum(self._past) / len(self._past)
                near, far = self.forecast.means(rules.ahead)
                now = sleep(rules, step, now, used, before, near, far)
        self._past.append(used)
        self._steps += 1
        self.last = now
        return round(now.awake)

    def need(self, required_nodes: float) -> int:
        """A job arrives between two steps: wake at once what it lacks (rules 1 and 2 only)."""
        used = min(required_nodes, self.nodes)
        self.last = wake(self.rules, self.nodes, self._steps, self.last.awake, used, self.last.frozen_until)
        return round(self.last.awake)
