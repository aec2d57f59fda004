"""Make the machine code of the hot loops and leave it in the cache: `python -m cotenant.sim.warm`."""

from __future__ import annotations

import sys
import time

from cotenant.core import jit


def warm() -> float:
    """Seconds that it took."""
    began = time.perf_counter()
    jit.enable()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.stdout.write(f"kernels ready after {warm():.1f} s\n")
