"""How busy the models of the profile `h200` keep a GPU, at each batch size of their curves: `python -m bench.gpu_busy`.

The models are those of `workload/data/h200.json`: bf16 autocast, AdamW, synthetic inputs. Two figures each: the share
of the time in which the driver saw a kernel at work (NVML, as the service measures live jobs), and the time of all
kernels of a step over the step's (PyTorch's profiler; the step is timed without it). Needs a GPU, torchvision and
transformers. `--out FILE` writes the measurements as `h200_busy.json` keeps them. Exits with 1 where what kernels take
of a step, at the speed of the profile, is more than 0.1 away from what is shipped.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from cotenant.workload.profiles.measured import busy, data

WARM_STEPS, PROFILED_STEPS = 12, 8
LOOK_S = 0.05
FAR = 0.1
Trainer = Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu_busy", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=1.5, help="of steps, per batch size")
    parser.add_argument("--only", default=",".join(MODELS), help="of these models, separated by commas")
    parser.add_argument("--out", type=Path, help="write the measurements there, as JSON")
    options = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {}
    far = 0
    print(f"{'model':16}{'batch':>8}{'steps/s':>10}{'of table':>10}{'NVML':>8}{'kernels':>9}")
    for model in options.only.split(","):
        curve = data()["batch_curves"][model]
        for point, train in zip(curve, _trainers(model, [point["batch"] for point in curve]), strict=True):
            one = _measure(train, options.seconds) | {"batch": point["batch"]}
            found.setdefault(model, []).append(one)
            ratio = one["steps_per_s"] / point["steps_per_s"]
            print(f"{model:16}{one['batch']:8}{one['steps_per_s']:10.2f}{ratio:10.2f}{one['nvml']:8.3f}"
                  f"{one['kernels']:9.3f}", flush=True)  # fmt: skip
            share = one["kernels"] / one["steps_per_s"] * point["steps_per_s"]
            far += abs(min(share, 1.0) - busy()[model, point["batch"]]) > FAR
            if options.out is not None:
                options.out.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(int(far > 0))


def _measure(train: Trainer, seconds: float) -> dict[str, float]:
    """Steps per second, the driver's share, and the kernels' share of a step."""
    import torch

    for _ in range(WARM_STEPS):
        train()
    torch.cuda.synchronize()
    looks: list[int] = []
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(looks, over))
    watcher.start()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        train()
        steps += 1
        if steps % 20 == 0:
            torch.cuda.synchronize()  # the host must not run ahead of the clock
    torch.cuda.synchronize()
    step_s = (time.perf_counter() - began) / steps
    over.set()
    watcher.join()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        for _ in range(PROFILED_STEPS):
            train()
        torch.cuda.synchronize()
    kernels_s = _covered_us(seen) / 1e6 / PROFILED_STEPS
    shares = looks[len(looks) // 4 :]  # the first ones are of the time before
    return {
        "steps_per_s": round(1 / step_s, 3),
        "nvml": round(sum(shares) / max(len(shares), 1) / 100, 4),
        "kernels": round(min(kernels_s / step_s, 1.0), 4),
    }


def _covered_us(seen: Any) -> float:
    """Microseconds in which at least one kernel was at work."""
    spans = sorted(
        (event.time_range.start, event.time_range.end)
        for event in seen.events()
        if str(event.device_type).endswith("CUDA")
    )
    covered, until = 0.0, float("-inf")
    for start, end in spans:
        covered += max(end - max(start, until), 0.0)
        until = max(until, end)
    return covered


def _watch(looks: list[int], over: threading.Event) -> None:
    import pynvml

    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    while not over.wait(LOOK_S):
        looks.append(int(pynvml.nvmlDeviceGetUtilizationRates(device).gpu))


def _trainers(model: str, batches: list[int]) -> Iterator[Trainer]:
    """For each batch size something that makes one step; the model is built once."""
    import torch

    torch.manual_seed(0)
    net, draw = MODELS[model]()
    net = net.cuda().train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    for batch in batches:
        inputs, loss_of = draw(batch)

        def train(inputs: Any = inputs, loss_of: Any = loss_of) -> None:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.bfloat16):
                loss = loss_of(net, *inputs)
            loss.backward()
            optimizer.step()

        yield train
        del train, inputs
        torch.cuda.empty_cache()


def _images(name: str, size: int, classes: int) -> tuple[Any, Any]:
    import torch
    import torchvision

    def draw(batch: int) -> Any:
        images = torch.randn(batch, 3, size, size, device="cuda").to(memory_format=torch.channels_last)
        labels = torch.randint(classes, (batch,), device="cuda")
        return (images, labels), lambda net, x, y: torch.nn.functional.cross_entropy(net(x), y)

    return getattr(torchvision.models, name)(num_classes=classes).to(memory_format=torch.channels_last), draw


def _language(kind: str, length: int) -> tuple[Any, Any]:
    import torch
    import transformers

    if kind == "gpt2":
        net: Any = transformers.GPT2LMHeadModel(transformers.GPT2Config())
    else:
        net = transformers.BertForMaskedLM(transformers.BertConfig())

    def draw(batch: int) -> Any:
        tokens = torch.randint(net.config.vocab_size, (batch, length), device="cuda")
        return (tokens,), lambda made, x: made(input_ids=x, labels=x).loss

    return net, draw


def _lstm() -> tuple[Any, Any]:
    import torch

    width, words, length = 650, 33_278, 35

    class Language(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = torch.nn.Embedding(words, width)
            self.lstm = torch.nn.LSTM(width, width, 2, batch_first=True)
            self.head = torch.nn.Linear(width, words)

        def forward(self, tokens: Any) -> Any:
            return self.head(self.lstm(self.words(tokens))[0])

    def draw(batch: int) -> Any:
        tokens = torch.randint(words, (batch, length), device="cuda")
        entropy = torch.nn.functional.cross_entropy
        return (tokens,), lambda net, x: entropy(net(x).flatten(0, 1), x.flatten())

    return Language(), draw


def _dense(*widths: int) -> tuple[Any, Any]:
    import torch

    layers: list[Any] = []
    for wide, narrow in pairwise(widths):
        layers += [torch.nn.Linear(wide, narrow), torch.nn.ReLU()]

    def draw(batch: int) -> Any:
        inputs = torch.randn(batch, widths[0], device="cuda")
        wanted = torch.rand(batch, widths[-1], device="cuda")
        return (inputs, wanted), lambda net, x, y: torch.nn.functional.mse_loss(net(x), y)

    return torch.nn.Sequential(*layers[:-1]), draw


MODELS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "resnet50": lambda: _images("resnet50", 224, 1000),
    "resnet18_cifar": lambda: _images("resnet18", 32, 10),
    "vit_b_16": lambda: _images("vit_b_16", 224, 1000),
    "gpt2": lambda: _language("gpt2", 1024),
    "bert": lambda: _language("bert", 128),
    "lstm": _lstm,
    "recsys": lambda: _dense(20_108, 600, 20_108),
    "mlp_rl": lambda: _dense(128, 256, 256, 18),
}


if __name__ == "__main__":
    main()
