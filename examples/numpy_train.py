"""A small neural network in NumPy whose interrupted run ends with the same bits as an undisturbed one.

    python examples/numpy_train.py --steps 200
    python examples/numpy_train.py --steps 200 --checkpoint-dir /tmp/ckpt     # stop it with SIGTERM, start it again

The data of a step come from a generator seeded by the step, so the weights are all there is to save.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from pathlib import Path

import numpy as np

from cotenant import runtime

INPUTS, HIDDEN = 8, 32


def main() -> None:
    """Train and print the digest of the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--step-time", type=float, default=0.0, help="least seconds per step")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkpoint-dir", type=Path, help="used outside Cotenant")
    parser.add_argument("--out", type=Path, help="file for the result")
    args = parser.parse_args()

    rng = np.random.default_rng(args.seed)
    truth = rng.normal(size=INPUTS)
    weights = {
        "w1": rng.normal(size=(INPUTS, HIDDEN)) / INPUTS**0.5,
        "b1": np.zeros(HIDDEN),
        "w2": rng.normal(size=HIDDEN) / HIDDEN**0.5,
    }

    def save(path: Path) -> None:
        np.savez(path / "weights.npz", **weights)

    def load(path: Path) -> None:
        with np.load(path / "weights.npz") as saved:
            weights.update({name: saved[name] for name in saved.files})

    with runtime.job(batch_size=32, checkpoint_dir=args.checkpoint_dir) as job:
        job.save(save)
        job.restore(load)
        for step in job.steps(args.steps):
            ends = time.monotonic() + args.step_time
            batch = np.random.default_rng((args.seed, step)).normal(size=(job.batch_size, INPUTS))
            loss = train(weights, batch, np.sin(batch @ truth), rate=0.05 * job.learning_rate_scale)
            job.report(loss=loss)
            time.sleep(max(0.0, ends - time.monotonic()))

        result = {"steps": args.steps, "digest": digest(weights)}
        print(json.dumps(result))
        if args.out:
            args.out.write_text(json.dumps(result) + "\n")


def train(weights: dict[str, np.ndarray], inputs: np.ndarray, targets: np.ndarray, rate: float) -> float:
    """One step of gradient descent on the squared error; returns the loss before it."""
    hidden = np.tanh(inputs @ weights["w1"] + weights["b1"])
    error = hidden @ weights["w2"] - targets
    back = np.outer(error, weights["w2"]) * (1 - hidden**2)
    scale = rate * 2 / len(targets)
    weights["w2"] = weights["w2"] - scale * (hidden.T @ error)
    weights["w1"] = weights["w1"] - scale * (inputs.T @ back)
    weights["b1"] = weights["b1"] - scale * back.sum(axis=0)
    return float(np.mean(error**2))


def digest(weights: dict[str, np.ndarray]) -> str:
    """A fingerprint of every bit of the weights."""
    return hashlib.sha256(b"".join(weights[name].tobytes() for name in sorted(weights))).hexdigest()


if __name__ == "__main__":
    main()
