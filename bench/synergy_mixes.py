"""One round on random mixes: what part of the optimum each allocator reaches (`python -m bench.synergy --only mixes`).

GPUs are filled with 1-GPU jobs: the class of a job by the mix (image, language, speech), the model uniform in its
class. The optimum is phase 1 of synergy-opt (HiGHS), the whole cluster as one machine. Times are CPU milliseconds.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from cotenant.allocation import Demands, Share, demands, make_allocator
from cotenant.allocation.once import pack_once, placed, throughput
from cotenant.allocation.opt import best_shares
from cotenant.core.sensitivity import Sensitivity
from cotenant.core.workload import Codes, make_workload
from cotenant.workload.profiles import load_profile

CLASSES = {
    "image": ("alexnet", "shufflenet", "res18", "mobilenet", "res50"),
    "language": ("gnmt", "transformer", "lstm"),
    "speech": ("m5", "deepspeech"),
}
MIXES = {"20/70/10": (0.2, 0.7, 0.1), "33/33/33": (1 / 3, 1 / 3, 1 / 3), "50/0/50": (0.5, 0.0, 0.5)}
SERVER = Share(8, 24, 500)
RULES = {
    "proportional": "proportional",
    "greedy": "synergy-greedy",
    "tune, code order": "synergy-tune:order=policy,fit=first",
    "tune, paper sort": "synergy-tune",
    "knapsack": "synergy-knapsack",
    "opt, placed": "synergy-opt",
}


def sensitivity_of(profile: Path, models: list[str]) -> Sensitivity:
    """Matrices of models with one GPU each."""
    count = len(models)
    work = make_workload(
        "mixes", np.zeros(count), np.ones(count, np.int64), np.ones(count), model=Codes(np.arange(count), tuple(models))
    )
    found = load_profile(profile, work, ("gpu",))
    assert found.sensitivity is not None
    return found.sensitivity.take(found.row)


def draw(rng: np.random.Generator, mix: tuple[float, ...], jobs: int) -> Any:
    """Models of random jobs, as numbers in the order of CLASSES."""
    sizes = [len(models) for models in CLASSES.values()]
    classes = rng.choice(len(sizes), size=jobs, p=np.array(mix) / sum(mix))
    first = np.concatenate([[0], np.cumsum(sizes)])
    return first[classes] + (rng.random(jobs) * np.array(sizes)[classes]).astype(np.int64)


def measure(profile: Path, servers: int, mix: str, count: int, seed: int = 0) -> dict[str, Any]:
    """Parts of the optimum, jobs placed and milliseconds of every rule over random mixes."""
    models = [model for group in CLASSES.values() for model in group]
    matrices = sensitivity_of(profile, models)
    gangs = np.ones(len(models), np.int64)
    asked = demands(matrices, gangs, SERVER)
    rng = np.random.default_rng([seed, servers])
    parts: dict[str, list[tuple[float, float, float]]] = {name: [] for name in RULES}
    solve = []
    for _ in range(count):
        kind = draw(rng, MIXES[mix], servers * int(SERVER.gpus))
        began = time.process_time()
        best = optimum(kind, gangs, asked, servers)
        solve.append(time.process_time() - began)
        for name, text in RULES.items():
            allocator = make_allocator(text)
            began = time.process_time()
            packing = pack_once(allocator, kind, gangs, asked, SERVER, servers)
            spent = time.process_time() - began
            parts[name].append((throughput(packing) / best, placed(packing) / len(kind), spent))
    return {"parts": {name: np.array(rows) for name, rows in parts.items()}, "solve_s": np.array(solve)}


def optimum(kind: Any, gangs: Any, asked: Demands, servers: int) -> float:
    """Sum of speeds that no placement can beat."""
    counts = np.bincount(kind, minlength=len(gangs))
    return best_shares(counts, gangs, asked, servers * SERVER.cpus, servers * SERVER.mem, 30.0).value


def print_table(profile: Path, count: int) -> None:
    print(f"One round, GPUs filled with 1-GPU jobs: part of the optimum over {count} random mixes per line")
    print(
        f"{'servers, mix':16} {'rule':18} {'mean':>6} {'least':>6} {'most':>6} {'placed':>7} {'CPU ms':>8} {'worst':>8}"
    )
    for servers in (4, 16):
        for mix in MIXES:
            found = measure(profile, servers, mix, count)
            for name, rows in found["parts"].items():
                part, ran, spent = rows.T
                print(
                    f"{servers:2d}, {mix:12} {name:18} {part.mean():6.3f} {part.min():6.3f} {part.max():6.3f} "
                    f"{ran.mean():7.2f} {1e3 * spent.mean():8.2f} {1e3 * spent.max():8.2f}"
                )
            solve = 1e3 * found["solve_s"]
            label = f"{servers:2d}, {mix:12} {'optimum (phase 1)':18}"
            print(f"{label} {1:6.3f} {'':22} {solve.mean():8.2f} {solve.max():8.2f}", flush=True)
