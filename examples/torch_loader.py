"""PyTorch with an input pipeline that costs CPU time, and a loader that follows the scheduler's worker count.

    python examples/torch_loader.py --steps 100

Each sample is decoded and augmented on the CPU by a worker of the loader. When the scheduler changes the job's cores it
also changes `job.workers`; at the next step `runtime.torch.Loader` goes on with that many workers, with the very next
sample. What cores are worth: `cotenant profile --name images -- python examples/torch_loader.py --steps 100000`.
"""

from __future__ import annotations

import argparse
import zlib
from typing import Any

import torch
from torch import nn

from cotenant import runtime
from cotenant.runtime import torch as runtime_torch


class Images(torch.utils.data.Dataset[Any]):
    """Compressed images of noise; taking one means inflating, cropping and flipping it."""

    def __init__(self, count: int, side: int = 96) -> None:
        generator = torch.Generator().manual_seed(1)
        raw = torch.randint(0, 16, (count, 3, side, side), dtype=torch.uint8, generator=generator)
        self.packed = [zlib.compress(bytes(image.flatten().tolist())) for image in raw]
        self.side = side

    def __len__(self) -> int:
        """How many there are."""
        return len(self.packed)

    def __getitem__(self, at: int) -> Any:
        """One image, prepared."""
        flat = torch.frombuffer(bytearray(zlib.decompress(self.packed[at])), dtype=torch.uint8)
        image = flat.reshape(3, self.side, self.side).float() / 16
        return image[:, 8:-8, 8:-8].flip(2 if at % 2 else 1), at % 10


def main() -> None:
    """Train and say how many workers there were on the way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--images", type=int, default=256)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with runtime.job(batch_size=16, workers=1) as job:
        seen = [job.workers]
        job.on_change(lambda settings: seen.append(settings.workers))
        batches = runtime_torch.Loader(job, Images(args.images), seed=1).forever()
        for _ in job.steps(args.steps):
            images, labels = next(batches)
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            job.report(loss=loss, workers=job.workers)
        print(f"steps {args.steps}, workers {seen}, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
