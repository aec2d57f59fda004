"""The script of `bench.gpu_cores`: steps that prepare input on many threads and then use the GPU for a moment.

    python bench/cores_job.py --steps 600 --cpu 0.16 --threads 16 --products 4 --wait 0.0

Preparing hashes blocks, which leaves Python's lock to others, so that it is as fast as there are cores. Whichever GPU
the scheduler names, it is the first one: a virtual GPU stands for a share of it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

os.environ["CUDA_VISIBLE_DEVICES"] = "0"
from cotenant import runtime

_BLOCK = bytes(1 << 19)  # long enough that threads seldom wait for the lock
_PRODUCT_S = 0.00025


def prepare(seconds: float) -> None:
    """Use this much CPU time of one core."""
    ends = time.thread_time() + seconds
    while time.thread_time() < ends:
        hashlib.sha256(_BLOCK).digest()


class Gpu:
    """Products of two matrices, a quarter of a millisecond each on an H200; sleeping where there is no GPU."""

    def __init__(self, products: int, real: bool) -> None:
        self.products, self._torch = products, None
        if real and products:
            import torch

            self._torch: Any = torch
            self._a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)

    def use(self) -> None:
        """One step's part."""
        if self._torch is None:
            time.sleep(self.products * _PRODUCT_S)
            return
        for _ in range(self.products):
            self._a @ self._a
        self._torch.cuda.synchronize()


def main() -> None:
    """Run the steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--cpu", type=float, default=0.16, help="CPU seconds per step, over all threads")
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--products", type=int, default=4, help="of a step, on the GPU")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds of a step in which it waits for input")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    args = parser.parse_args()
    gpu, pool = Gpu(args.products, args.device == "cuda"), ThreadPoolExecutor(args.threads)
    with runtime.job() as job, pool:
        for step in job.steps(args.steps):
            list(pool.map(prepare, [args.cpu / args.threads] * args.threads))
            time.sleep(args.wait)
            gpu.use()
            job.report(loss=1 / (step + 1))


if __name__ == "__main__":
    main()
