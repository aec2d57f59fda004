"""An elastic job: the number of GPUs may change at any step; the order of the data stays.

    cotenant submit elastic.yaml        # gpus: 1, elastic: {min_gpus: 1, max_gpus: 2}
    cotenant set 1 gpus=2               # saves at the next step boundary and goes on with two

The global batch stays too; with `--keeps per-gpu` it grows with the GPUs and the learning rate with it. Each GPU takes
an equal part of the global batch and the parts' gradients are averaged, as data parallel training does; NumPy stands in
for the GPUs here. Prints the loss of every step.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from cotenant import runtime

BATCH, RATE = 32, 0.05


def main() -> None:
    """Train, on as many GPUs as there are at each step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--step-time", type=float, default=0.0, help="seconds that a step takes besides")
    parser.add_argument("--scales", action="store_true", help="that time is shared out over the GPUs")
    parser.add_argument("--losses", default="", help="also append 'step gpus loss batch rate' lines to this file")
    parser.add_argument(
        "--keeps", choices=["global", "per-gpu"], default="global", help="the batch of 32 is this one's"
    )
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    data = rng.standard_normal((4096, 8))
    target = data @ rng.standard_normal(8) + 0.1 * rng.standard_normal(4096)
    weights, taken = np.zeros(8), np.zeros(1, np.int64)

    with runtime.job(batch_size=BATCH, keeps=options.keeps, lr_scaling="linear") as job:

        def save(path: Path) -> None:
            np.savez(path / "state.npz", weights=weights, taken=taken)

        def load(path: Path) -> None:
            with np.load(path / "state.npz") as state:
                weights[:], taken[:] = state["weights"], state["taken"]

        job.save(save)
        job.restore(load)
        for step in job.steps(options.steps):
            parts = max(job.gpus, 1)
            rows = (taken[0] + np.arange(job.global_batch)) % len(data)
            gradient, loss = np.zeros(8), 0.0
            for part in np.array_split(rows, parts):  # one part per GPU
                error = data[part] @ weights - target[part]
                gradient += 2 * data[part].T @ error / len(rows)
                loss += float(error @ error) / len(rows)
            rate = RATE * job.learning_rate_scale
            weights -= rate * gradient
            taken += len(rows)
            job.report(loss=loss, batch=len(rows))
            if options.losses:
                with open(options.losses, "a", encoding="utf-8") as file:
                    file.write(f"{step} {parts} {loss!r} {len(rows)} {rate!r}\n")
            print(f"step {step} on {parts}: loss {loss:.6f}", flush=True)
            time.sleep(options.step_time / (parts if options.scales else 1))


if __name__ == "__main__":
    main()
