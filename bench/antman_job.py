"""What `bench.gpu_antman` runs: real training of a model of the H200's profile, with a mark for every finished step.

    python bench/antman_job.py gpt2 --wait 0.035 --marks host.marks
    python bench/antman_job.py mlp_rl --marks guest.marks --off DIR/off      # makes no step while that file is there

Models, batch sizes and precision are those of `workload/data/h200.json`. `--wait`: seconds that each step waits for its
input, as if from a storage that is too slow for the GPU. `--stand-in` SECONDS:RATIO does not train: a step takes so
long, and is this fast while another such job is in the middle of one.
"""

from __future__ import annotations

import argparse
import os
import struct
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from cotenant import runtime

FLUSH_S = 0.5
ENDLESS = 10**9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--wait", type=float, default=0.0)
    parser.add_argument("--marks", type=Path, required=True, help="(end, pause told, seconds) of every step, 3 doubles")
    parser.add_argument("--off", type=Path, default=Path("/nonexistent"))
    parser.add_argument("--stand-in", default="")
    args = parser.parse_args()
    train = stand_in(args.stand_in, args.marks) if args.stand_in else BUILD[args.model]()
    with runtime.job() as job, args.marks.open("wb") as marks:
        flushed = time.monotonic()
        for _ in job.steps(ENDLESS):
            while args.off.exists() and not job.should_stop:
                time.sleep(0.01)
            began = time.monotonic()
            if args.wait:
                with job.waiting():
                    time.sleep(args.wait)
            train()
            marks.write(struct.pack("ddd", time.time(), job.throttle_s, time.monotonic() - began))
            if time.monotonic() - flushed > FLUSH_S:
                marks.flush()
                flushed = time.monotonic()


def gpt2() -> Callable[[], None]:
    """GPT-2 small, sequences of 1,024, batches of 8."""
    hugging: Any = import_module("transformers")
    model = hugging.GPT2LMHeadModel(hugging.GPT2Config(use_cache=False))
    return _language(model, vocabulary=50257, batch=8, length=1024)


def bert() -> Callable[[], None]:
    """BERT-base, masked words, sequences of 128, batches of 32."""
    hugging: Any = import_module("transformers")
    return _language(hugging.BertForMaskedLM(hugging.BertConfig()), vocabulary=30522, batch=32, length=128)


def _language(model: Any, vocabulary: int, batch: int, length: int) -> Callable[[], None]:
    import torch

    text = torch.randint(vocabulary, (batch, length), device="cuda")
    return _step(model, lambda: model(input_ids=text, labels=text).loss)


def mlp_rl() -> Callable[[], None]:
    """A small policy network, 128-256-256-18, batches of 64."""
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 18))
    seen, done = torch.randn(64, 128, device="cuda"), torch.randint(18, (64,), device="cuda")
    return _step(model, lambda: nn.functional.cross_entropy(model(seen).float(), done))


def resnet18_cifar() -> Callable[[], None]:
    """ResNet-18 on pictures of 32x32, ten classes, batches of 128."""
    import torch

    models: Any = import_module("torchvision.models")
    model = models.resnet18(num_classes=10)
    seen, kinds = torch.randn(128, 3, 32, 32, device="cuda"), torch.randint(10, (128,), device="cuda")
    return _step(model, lambda: torch.nn.functional.cross_entropy(model(seen).float(), kinds))


def _step(model: Any, loss_of: Callable[[], Any]) -> Callable[[], None]:
    """One step of AdamW under bfloat16, and wait for the GPU."""
    import torch

    model.cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = loss_of()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()

    return step


BUILD: dict[str, Callable[[], Callable[[], None]]] = {
    "gpt2": gpt2, "bert": bert, "mlp_rl": mlp_rl, "resnet18_cifar": resnet18_cifar,
}  # fmt: skip


def stand_in(words: str, marks: Path) -> Callable[[], None]:
    """A step that is slower while the mark of another such job is there."""
    seconds, ratio = map(float, words.split(":"))
    mine = marks.with_suffix(f".{os.getpid()}.busy")

    def step() -> None:
        mine.touch()
        left, before = seconds, time.monotonic()
        while left > 0:
            time.sleep(min(left, 0.002))
            now = time.monotonic()
            others = any(path != mine for path in marks.parent.glob("*.busy"))
            left, before = left - (now - before) * (ratio if others else 1.0), now
        mine.unlink(missing_ok=True)

    return step


if __name__ == "__main__":
    main()
