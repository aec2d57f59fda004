"""How fast eight models are with a part of an H200's multiprocessors, as the slices of MIG would have them.

`python -m bench.gpu_slices [--seconds 3] [--out FILE]` on a machine with a GPU, PyTorch, torchvision and transformers;
nothing else of Cotenant is needed. Each model trains alone under MPS with the percentage of active threads of a slice
(1g 14 %, 2g 29 %, 3g 43 %, 4g 57 %, 7g 100 %), twice, in both directions. Printed: speed against all of the GPU, mean
of the two. MPS limits the multiprocessors as a slice does; unlike a slice it leaves all of the memory's bandwidth and
cache to the job, so a real slice may be slower for models that are bound by those. MIG itself is not switched on.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

PARTS = {"1g": 1, "2g": 2, "3g": 3, "4g": 4, "7g": 7}
BATCH = {
    "resnet50": 128, "resnet18_cifar": 128, "vit_b_16": 64, "gpt2": 8, "bert": 32, "lstm": 80, "recsys": 2048,
    "mlp_rl": 64,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu_slices", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--models", default=",".join(BATCH))
    parser.add_argument("--out", default="")
    options = parser.parse_args()
    import torchvision.models  # noqa: F401 - once, before any process has a context
    import transformers  # noqa: F401

    rates: dict[str, dict[str, list[float]]] = {}
    with _mps():
        for model in options.models.split(","):
            found = rates.setdefault(model, {part: [] for part in PARTS})
            for part in (*PARTS, *reversed(PARTS)):
                found[part].append(_apart(model, PARTS[part], options.seconds))
            mean = {part: sum(values) / len(values) for part, values in found.items()}
            speeds = {part: round(mean[part] / mean["7g"], 3) for part in PARTS}
            scatter = max(abs(a - b) / (a + b) for a, b in found.values())
            print(f"{model:15} {mean['7g']:8.1f} steps/s  {speeds}  within {100 * scatter:.1f} %", flush=True)
            if options.out:
                with open(options.out, "w", encoding="utf-8") as file:
                    json.dump(rates, file, indent=1)


@contextlib.contextmanager
def _mps() -> Iterator[None]:
    """A control daemon of its own."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CUDA_MPS_PIPE_DIRECTORY"] = os.environ["CUDA_MPS_LOG_DIRECTORY"] = folder
        subprocess.run(["nvidia-cuda-mps-control", "-d"], check=True)
        try:
            yield
        finally:
            subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, check=False)


def _apart(model: str, sevenths: int, seconds: float) -> float:
    """Steps per second in a process of its own: the limit holds from the first use of the GPU on."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_measure, args=(queue, model, sevenths, seconds))
    child.start()
    found = float(queue.get(timeout=120))
    child.join()
    return found


def _measure(queue: Any, model: str, sevenths: int, seconds: float) -> None:
    os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{100 * sevenths / 7:.2f}"
    import torch

    step = _training(model, torch)
    for _ in range(15):
        step()
    torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for _ in range(5):
            step()
        torch.cuda.synchronize()
        steps += 5
    queue.put(steps / (time.perf_counter() - began))


def _training(model: str, torch: Any) -> Callable[[], None]:
    """One step of training on random data: bf16, AdamW."""
    network, inputs, loss_of = _network(model, BATCH[model], torch)
    network = network.cuda().train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(network, *inputs)
        loss.backward()
        optimizer.step()

    return step


def _network(model: str, batch: int, torch: Any) -> tuple[Any, tuple[Any, ...], Callable[..., Any]]:
    """A network, a batch, and the loss of it."""
    entropy = torch.nn.functional.cross_entropy
    if model in ("resnet50", "resnet18_cifar", "vit_b_16"):
        import torchvision.models

        side, classes = (32, 10) if model == "resnet18_cifar" else (224, 1000)
        network = getattr(torchvision.models, model.removesuffix("_cifar"))(num_classes=classes)
        inputs = torch.randn(batch, 3, side, side).cuda(), torch.randint(classes, (batch,)).cuda()
        return network, inputs, lambda net, x, y: entropy(net(x), y)
    if model in ("gpt2", "bert"):
        import transformers as tf

        network = tf.GPT2LMHeadModel(tf.GPT2Config()) if model == "gpt2" else tf.BertForMaskedLM(tf.BertConfig())
        words = torch.randint(30_000, (batch, 1024 if model == "gpt2" else 128)).cuda()
        return network, (words,), lambda net, x: net(x, labels=x).loss
    if model == "lstm":
        network = torch.nn.ModuleList(
            [
                torch.nn.Embedding(33_278, 650),
                torch.nn.LSTM(650, 650, 2, batch_first=True),
                torch.nn.Linear(650, 33_278),
            ]
        )
        words = torch.randint(33_278, (batch, 36)).cuda()

        def guess(net: Any, x: Any) -> Any:
            return entropy(net[2](net[1](net[0](x[:, :-1]))[0]).flatten(0, 1), x[:, 1:].flatten())

        return network, (words,), guess
    sizes = (20_108, 600, 20_108) if model == "recsys" else (128, 256, 256, 18)
    layers = [layer for a, b in pairwise(sizes) for layer in (torch.nn.Linear(a, b), torch.nn.Tanh())]
    inputs = (torch.rand(batch, sizes[0]).cuda(), torch.rand(batch, sizes[-1]).cuda())
    return torch.nn.Sequential(*layers[:-1]), inputs, lambda net, x, y: (net(x) - y).square().mean()


if __name__ == "__main__":
    main()
