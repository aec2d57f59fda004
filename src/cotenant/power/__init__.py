"""Putting idle nodes to sleep: forecast of busy nodes, rules to wake and to sleep, energy (CES of Helios, SC'21).

Counts of nodes only; which node sleeps, what booting delays and who waits for it belong to the driver.
"""

from cotenant.power.ces import PRESETS, Ces, CesRules, parse_power
from cotenant.power.forecast import Forecast, LearnedForecast, PerfectForecast
from cotenant.power.queue import QueueLength, QueueRules, parse_queue

__all__ = [
    "PRESETS",
    "Ces",
    "CesRules",
    "Forecast",
    "LearnedForecast",
    "PerfectForecast",
    "QueueLength",
    "QueueRules",
    "parse_power",
    "parse_queue",
]
