"""Sleeping nodes on Philly, 2017-12-01 to 12-14: `python -m bench.ces`.

COTENANT_DATA (default ../shared/data) names the folder above helios/ with philly_node_sequence.csv.gz: busy nodes by
the minute since October. The rules of CES run over the two weeks once with a perfect forecast, which has
no learning in it and must give the figures of the released code's rules exactly, and once with a forecast
learned from October and November and refreshed every week. `used / awake` is the mean over steps of nodes in
use over nodes awake.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np

from cotenant.power import PRESETS, Ces, Forecast, LearnedForecast, PerfectForecast
from cotenant.power.account import Account, run
from cotenant.power.ces import PowerStep
from cotenant.power.windows import Floats, mean_ahead, to_steps

FIRST, LAST = np.datetime64("2017-12-01T00:00", "s"), np.datetime64("2017-12-15T00:00", "s")
NODES = 420
HEADS = ("nodes asleep", "wakes", "a day", "nodes/wake", "sleeps", "used / awake", "MWh a year", "wall s")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ces", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=3, help="learned forecasts, one per seed")
    options = parser.parse_args()
    time_s, used = load()
    test = (time_s >= seconds(FIRST)) & (time_s < seconds(LAST))
    rules = PRESETS["philly"]
    print(f"CES on Philly, {int(test.sum())} steps of ten minutes, {NODES} nodes")
    print(f"{'forecast':<34}" + "".join(f"{head:>14}" for head in HEADS))
    print(_line("paper", (100.1, None, 0.5, 27.1, None, 90.4, None, None)))
    print(_line("released code, LightGBM", (101.8, 8, 0.57, 26.4, None, 90.92, None, None)))
    print(_line("same rules, perfect (reference)", (108.15, 10, 0.71, 26.2, 92, 92.83, None, None)))
    account, decisions, wall_s = _play(PerfectForecast(used[test]), time_s[test], used[test])
    print(_line("perfect", _cells(account, wall_s)))
    exact = (account.wakes, account.sleeps, round(100 * account.utilization, 2)) == (10, 92, 92.83)
    good = True
    for seed in range(options.seeds):
        forecast = LearnedForecast(rules.ahead, seed=seed)
        forecast.learn(time_s[time_s < seconds(FIRST)], used[time_s < seconds(FIRST)])
        account, _, wall_s = _play(forecast, time_s[test], used[test])
        good &= 0.90 <= account.utilization <= 0.92 and account.wakes_per_day <= 0.75
        print(_line(f"learned, seed {seed}", _cells(account, wall_s)), flush=True)
    print(f"without sleep {100 * account.utilization_before:.2f} %")
    _tell_wakes(time_s[test], used[test], decisions)
    _tell_errors(time_s, used, test)
    print(f"perfect forecast: {'agrees exactly' if exact else 'DIFFERS'};", end=" ")
    print(f"learned: {'within 90 to 92 % and 0.75 wakes a day' if good else 'OUTSIDE 90 to 92 % or 0.75 wakes a day'}")
    sys.exit(0 if exact and good else 1)


def load() -> tuple[Floats, Floats]:
    """Busy nodes in steps of ten minutes; time in seconds since 1970, naive local."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    path = Path(os.environ.get("COTENANT_DATA") or default) / "helios" / "philly_node_sequence.csv.gz"
    if not path.is_file():
        sys.exit(f"bench.ces: {path} is missing; COTENANT_DATA must name the folder above helios/")
    import polars as pl

    table = pl.read_csv(path, try_parse_dates=True)
    time_s = table["time"].to_numpy().astype("datetime64[s]").astype(np.float64)
    return to_steps(time_s, table["active"].to_numpy().astype(np.float64))


def seconds(moment: np.datetime64) -> float:
    return float(moment.astype(np.int64))


def _play(forecast: Forecast, time_s: Floats, used: Floats) -> tuple[Account, list[PowerStep], float]:
    began = time.perf_counter()
    account, decisions = run(Ces(PRESETS["philly"], NODES, forecast), time_s, used)
    return account, decisions, time.perf_counter() - began


def _cells(account: Account, wall_s: float) -> tuple[float | None, ...]:
    return (
        account.nodes_asleep, account.wakes, account.wakes_per_day, account.nodes_per_wake, account.sleeps,
        100 * account.utilization, account.saved_kwh_per_year / 1000, wall_s,
    )  # fmt: skip


def _line(name: str, cells: tuple[float | None, ...]) -> str:
    shown = ("-" if cell is None else f"{cell:,}" if isinstance(cell, int) else f"{cell:,.2f}" for cell in cells)
    return f"{name:<34}" + "".join(f"{cell:>14}" for cell in shown)


def _tell_wakes(time_s: Floats, used: Floats, decisions: list[PowerStep]) -> None:
    wakes = [at for at, decision in enumerate(decisions) if decision.woken > 0]
    for name, at in (("first", wakes[0]), ("largest", max(wakes, key=lambda at: decisions[at].woken))):
        when = np.datetime64(int(time_s[at]), "s").item()
        before, after = decisions[at].awake - decisions[at].woken, decisions[at].awake
        print(
            f"perfect forecast, {name} wake: {when:%m-%d %H:%M}, used {used[at]:.0f}, awake {before:.0f} to {after:.0f}"
        )


def _tell_errors(time_s: Floats, used: Floats, test: np.ndarray) -> None:
    """Errors of the two means that the rules use, forecast at every step, beside "as now"."""
    first, ahead = int(np.flatnonzero(test)[0]), PRESETS["philly"].ahead
    forecast = LearnedForecast(ahead)
    forecast.learn(time_s[:first], used[:first])
    said = []
    for at in range(first, first + int(test.sum())):
        forecast.observe(time_s[at], used[at])
        said.append(forecast.means(ahead))
    for column, steps in enumerate((ahead, 2 * ahead)):
        truth = mean_ahead(used, steps)[test]
        known = np.isfinite(truth)
        guess, now, truth = np.array(said)[known, column], used[test][known], truth[known]
        print(
            f"mean over {steps} steps: SMAPE {_smape(guess, truth):.2f} %, RMSE {_rmse(guess, truth):.1f} nodes"
            f" (as now: {_smape(now, truth):.2f} %, {_rmse(now, truth):.1f})"
        )


def _smape(guess: Floats, truth: Floats) -> float:
    return float(200 * np.mean(np.abs(guess - truth) / (guess + truth)))


def _rmse(guess: Floats, truth: Floats) -> float:
    return float(np.sqrt(np.mean((guess - truth) ** 2)))


if __name__ == "__main__":
    main()
