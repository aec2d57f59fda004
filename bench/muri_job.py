"""A training job of `bench.muri_live`: each step reads a file from the disk, prepares its data on the CPU and computes.

`python muri_job.py calibrate FOLDER DEVICE AT` prints what a unit of each stage takes, beginning at that time: two of
them begun at the same time tell what two do to each other. `python muri_job.py run FOLDER DEVICE STEPS DISK CPU GPU`
makes steps with so many units of each. All of it is real work: the disk is written durably and read past the page cache
by four threads, images are cropped, scaled and normalised on all cores, and the GPU trains a network of dense layers.
Without a GPU (DEVICE `cpu`) compressed images are prepared on one core, and another one multiplies matrices.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from cotenant import runtime

BLOCK = 1 << 20  # bytes on the disk per unit
READERS = 4
IMAGE = 1 << 15  # bytes of a compressed image
ROWS = 4096
UNITS = {"load": 64, "preprocess": 64, "compute": 16}  # of which the time is taken
SLOT_S = 3.0  # for each stage, when two are timed side by side


class Disk:
    """A file that is written durably and read back from the device."""

    def __init__(self, folder: Path, units: int) -> None:
        self._path, self._units = folder / f"data-{os.getpid()}", max(units, 1)
        self._buffers = [mmap.mmap(-1, BLOCK) for _ in range(READERS)]  # aligned, as the device wants it
        for buffer in self._buffers:
            buffer.write(np.random.default_rng(0).bytes(BLOCK))
        self._file, self._pool = self._open(), ThreadPoolExecutor(READERS)
        for at in range(self._units):
            os.pwrite(self._file, self._buffers[0], at * BLOCK)
        os.fsync(self._file)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT
        try:
            return os.open(self._path, flags | os.O_DIRECT)
        except OSError:  # a file system without it: the pages are dropped instead
            return os.open(self._path, flags)

    def _part(self, reader: int) -> None:
        for at in range(reader, self._units, READERS):
            os.preadv(self._file, [self._buffers[reader]], at * BLOCK)
            if at % 4 == 0:
                os.pwrite(self._file, self._buffers[reader], at * BLOCK)

    def use(self) -> None:
        """Read every block, and write every fourth one."""
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)
        list(self._pool.map(self._part, range(READERS)))
        os.fdatasync(self._file)

    def close(self) -> None:
        """Leave nothing."""
        os.close(self._file)
        self._path.unlink()


def loader(units: int, device: str) -> Callable[[], object]:
    """Prepares the images of a batch."""
    draw = np.random.default_rng(0)
    if device == "cpu":
        raw = zlib.compress(np.repeat(draw.integers(0, 255, IMAGE // 4, np.uint8), 4).tobytes(), 6)

        def unpack() -> None:
            for _ in range(units):
                image = np.frombuffer(zlib.decompress(raw), np.uint8).astype(np.float32)
                _ = (image - image.mean()) / (image.std() + 1e-6)

        return unpack
    import torch

    images = torch.from_numpy(draw.integers(0, 255, (units, 3, 320, 320), np.uint8))

    def prepare() -> None:
        top, left = (int(each) for each in draw.integers(0, 32, 2))
        batch = images[:, :, top : top + 288, left : left + 288].flip(3).float()
        batch = torch.nn.functional.interpolate(batch, size=(224, 224), mode="bilinear", antialias=True)
        batch.sub_(batch.mean((2, 3), keepdim=True)).div_(batch.std((2, 3), keepdim=True))

    return prepare


def trainer(units: int, device: str) -> Callable[[], object]:
    """One step of training, `units` of it."""
    if device == "cpu":
        a = np.random.default_rng(0).random((160, 160), np.float32)

        def multiply() -> None:
            for _ in range(units):
                a @ a

        return multiply
    import torch

    layers = [torch.nn.Linear(ROWS, ROWS, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(ROWS, ROWS, device="cuda", dtype=torch.bfloat16)

    def train() -> None:
        for _ in range(units):
            optimizer.zero_grad()
            model(x).float().square().mean().backward()
            optimizer.step()
        torch.cuda.synchronize()

    return train


def pin(device: str, core: int) -> None:
    """Without a GPU the two resources are two cores."""
    if device == "cpu":
        os.sched_setaffinity(0, {core})


def timed(use: Callable[[], object], seconds: float = 0.6 * SLOT_S) -> float:
    """What it takes, on average over so long."""
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        use()
        count += 1
    return (time.perf_counter() - began) / count


def calibrate(folder: Path, device: str, at_s: float) -> dict[str, float]:
    """Seconds per unit of each stage; each begins at its own moment from `at_s` on."""
    disk = Disk(folder, UNITS["load"])
    uses = {
        "load": disk.use,
        "preprocess": loader(UNITS["preprocess"], device),
        "compute": trainer(UNITS["compute"], device),
    }
    found = {}
    for number, (name, use) in enumerate(uses.items()):
        if name != "load":
            pin(device, number - 1)
        use()
        time.sleep(max(at_s + number * SLOT_S - time.time(), 0.0))
        found[name] = timed(use) / UNITS[name]
    disk.close()
    return found


def run(folder: Path, device: str, steps: int, load: int, preprocess: int, compute: int) -> dict[str, Any]:
    """Train, and say when."""
    disk, prepare, train = Disk(folder, load), loader(preprocess, device), trainer(compute, device)
    prepare()
    train()
    with runtime.job() as job:
        began, each = 0.0, []
        for _ in job.steps(steps):
            now = time.time()
            began = began or now
            with job.stage("load"):
                disk.use()
            with job.stage("preprocess"):
                pin(device, 0)
                prepare()
            with job.stage("compute"):
                pin(device, 1)
                train()
            each.append(time.time() - now)
    disk.close()
    stages_s, waited_s = job.stage_times
    return {"began": began, "ended": time.time(), "step_s": mean(each), "waited_s": waited_s, "stages_s": stages_s}


if __name__ == "__main__":
    verb, where, on, *numbers = sys.argv[1:]
    place = Path(where)
    said = calibrate(place, on, float(numbers[0])) if verb == "calibrate" else run(place, on, *map(int, numbers))
    print(json.dumps(said), flush=True)
