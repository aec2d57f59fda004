"""The measurements behind the profile `h200`: step times, memory and pairs of eight models on one H200."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.resources import files
from typing import Any

from cotenant.workload.profiles.roofline import Step

REFERENCE = "h200"
SHARING = {"mps": "pairs_mps", "time-sliced": "pairs_time_sliced"}
"""How two jobs share a GPU -> where the file has the pairs."""
_FLAT = 1.1  # a step that grows less than this over all batch sizes is bound by the host
_LEAST_BUSY = 0.25  # of a step: GPU time where the host is the bound and hides how little it is

# FLOPs of forward and backward per sample: 3 passes x 2 per multiply-add; 6 x parameters x tokens for matmuls.
FLOPS_PER_SAMPLE = {
    "resnet50": 6 * 4.09e9,
    "resnet18_cifar": 6 * 1.81e9 / 49,  # 224x224 has 49 times the pixels of 32x32
    "vit_b_16": 6 * 17.56e9,
    "gpt2": 6 * 124.4e6 * 1024 + 12 * 12 * 768 * 1024**2,  # matmuls, then attention over 1,024 tokens
    "bert": 6 * 109.5e6 * 128,
    "lstm": 6 * 28.4e6 * 35,  # without the embedding, which multiplies nothing
    "recsys": 6 * 24.15e6,
    "mlp_rl": 6 * 103_442,
}
# Operators of a forward pass that multiply, from the architectures; attention is two, a recurrent layer is two.
OPERATORS = {
    "resnet50": 54,  # 53 convolutions and a linear layer
    "resnet18_cifar": 21,
    "vit_b_16": 74,  # 12 blocks of 4 linear layers and attention, patches, head
    "gpt2": 73,
    "bert": 98,  # 12 blocks of 6 linear layers and attention, 2 of the head
    "lstm": 5,
    "recsys": 2,
    "mlp_rl": 3,
}


@lru_cache(maxsize=1)
def data() -> dict[str, Any]:
    """The measurements as shipped."""
    return _read("h200.json")


def _read(name: str) -> dict[str, Any]:
    text = files("cotenant.workload").joinpath(f"data/{name}").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@lru_cache(maxsize=1)
def busy() -> dict[tuple[str, int], float]:
    """(model, batch size) -> share of time in which it keeps the GPU busy, as measured.

    What its kernels take was measured on another day: the share is theirs of a step as the table has it.
    """
    found = {}
    for model, curve in data()["batch_curves"].items():
        for point, seen in zip(curve, _read("h200_busy.json")["busy"][model], strict=True):
            assert point["batch"] == seen["batch"], f"{model}: other batch sizes"
            found[model, point["batch"]] = min(seen["kernels"] / seen["steps_per_s"] * point["steps_per_s"], 1.0)
    return found


@lru_cache(maxsize=1)
def steps() -> dict[tuple[str, int], Step]:
    """(model, batch size) -> what a step takes, for everything that was measured.

    The host's time is the shortest step over all batch sizes. GPU time follows the line through the two
    largest batches, between a quarter of the step (kernels that a host can only just launch fast enough
    keep the GPU busy about that long) and the step itself.
    """
    found = {}
    for model, curve in data()["batch_curves"].items():
        seconds = [1 / point["steps_per_s"] for point in curve]
        (small, large), host_s = curve[-2:], min(seconds)
        slope = (seconds[-1] - seconds[-2]) / (large["batch"] - small["batch"])
        for point, step_s in zip(curve, seconds, strict=True):
            flops = FLOPS_PER_SAMPLE[model] * point["batch"]
            gpu_s = _LEAST_BUSY * step_s
            if max(seconds) > _FLAT * host_s:
                gpu_s = max(gpu_s, min(step_s, seconds[-1] - slope * (large["batch"] - point["batch"])))
            found[model, point["batch"]] = Step(
                max(host_s, step_s if gpu_s < step_s else 0.0), gpu_s, flops, point["params"], point["reserved_MiB"]
            )
    return found


def default_batch(model: str) -> int:
    """The batch size at which a model was measured in pairs."""
    return int(data()["pairs_default_batch"][model])


@lru_cache(maxsize=4)
def pairs(sharing: str) -> dict[tuple[str, str], tuple[float, float]]:
    """(model, model) -> speed of each beside the other against alone, both ways round."""
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for pair in data()[SHARING[sharing]]["pairs"]:
        a, b = min(pair["a_ratio"], 1.0), min(pair["b_ratio"], 1.0)
        if pair["a"] == pair["b"]:
            a = b = (a + b) / 2
        found[pair["a"], pair["b"]], found[pair["b"], pair["a"]] = (a, b), (b, a)
    return found
