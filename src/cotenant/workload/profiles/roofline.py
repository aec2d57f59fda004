"""Step times on GPU types that were not measured, from one measured type, by a roofline model.

A training step needs the GPU for g seconds and the host, which launches kernels and runs beside it, for h:

    step = max(h, g) + exposed exchange
    g on type x = g measured * ( c * P/P_x + (1 - c) * B/B_x )

P is peak FLOP/s, B memory bandwidth. The share c of GPU time that is bound by arithmetic is the time that
the step's FLOPs take at 60 % of the measured type's peak; all other GPU time is taken as bound by memory.
Gangs exchange gradients in fp32 by ring all-reduce, 2(n-1)/n of them per GPU over NVLink or PCIe inside a
node and over the network when spread; half the GPU time hides it. The host is taken as the same everywhere.
A model runs only where its memory fits. Assumptions, not measurements: good for experiments with mixed
clusters, not for buying one. Roofline: Williams et al., CACM 2009.
"""

from __future__ import annotations

from dataclasses import dataclass

EFFICIENCY = 0.6  # of peak, in kernels bound by arithmetic
OVERLAP = 0.5  # share of GPU time behind which gradients can be exchanged
CONTEXT_MIB = 600.0  # memory of a CUDA context beside what the framework reserves


@dataclass(frozen=True, slots=True)
class GpuCeilings:
    """Published figures of a GPU: dense 16-bit FLOP/s, bytes/s, MiB; bytes/s per direction to other GPUs.

    `link` is NVLink or PCIe inside a node, `network` the usual share of a node's network per GPU.
    """

    flops: float
    bandwidth: float
    memory_mib: float
    link: float
    network: float


GPUS: dict[str, GpuCeilings] = {
    "h200": GpuCeilings(989e12, 4.80e12, 143_771, 450e9, 50e9),
    "h100": GpuCeilings(989e12, 3.35e12, 81_559, 450e9, 50e9),
    "a100": GpuCeilings(312e12, 2.04e12, 81_920, 300e9, 25e9),
    "l40s": GpuCeilings(362e12, 0.864e12, 46_068, 32e9, 6.25e9),
    "a10": GpuCeilings(125e12, 0.600e12, 23_028, 32e9, 3.125e9),
    "v100": GpuCeilings(125e12, 0.900e12, 16_384, 150e9, 6.25e9),
    "t4": GpuCeilings(65e12, 0.320e12, 15_360, 16e9, 3.125e9),
    "p100": GpuCeilings(21e12, 0.732e12, 16_384, 80e9, 6.25e9),
}
"""Types that the model knows: SXM variants where there are some (A100 of 80 GB, V100 and P100 of 16 GB)."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one step of a model at one batch size takes, seen on the measured type. Seconds, FLOPs, MiB."""

    host_s: float
    gpu_s: float
    flops: float
    parameters: float
    memory_mib: float


def gpu_seconds(step: Step, seen: GpuCeilings, gpu: GpuCeilings) -> float:
    """GPU time of a step on another type."""
    share = min(step.flops / (EFFICIENCY * seen.flops) / step.gpu_s, 1.0)
    return step.gpu_s * (share * seen.flops / gpu.flops + (1 - share) * seen.bandwidth / gpu.bandwidth)


def fits(gpu: GpuCeilings, *steps: Step) -> bool:
    """Whether the memory holds these jobs together."""
    return sum(step.memory_mib + CONTEXT_MIB for step in steps) <= gpu.memory_mib


def step_seconds(
    step: Step, seen: GpuCeilings, gpu: GpuCeilings, gpus: int = 1, spread: bool = False, soft: bool = False
) -> float:
    """Seconds of one step of a gang of `gpus`, each with the step's own batch; infinite where it does not fit.

    With `soft` memory is no limit here.
    """
    if not soft and not fits(gpu, step):
        return float("inf")
    busy_s = gpu_seconds(step, seen, gpu)
    exchange_s = 2 * (gpus - 1) / gpus * 4 * step.parameters / (gpu.network if spread else gpu.link)
    return max(step.host_s, busy_s) + max(exchange_s - OVERLAP * busy_s, 0.0)


def shared_ratios(
    ratios: tuple[float, float], steps: tuple[Step, Step], seen: GpuCeilings, gpu: GpuCeilings, soft: bool = False
) -> tuple[float, float]:
    """Speeds of two jobs on one GPU against alone, carried over from the ratios on the measured type.

    Where the two would then keep the GPU busy for longer than the clock runs (or than they did where they
    were measured), both are slowed alike: on slow types jobs that left gaps on a fast one leave none.
    0 where memory does not hold both, unless it is `soft`.
    """
    if not soft and not fits(gpu, *steps):
        return 0.0, 0.0

    def busy(on: GpuCeilings) -> float:
        shares = [gpu_seconds(step, seen, on) / step_seconds(step, seen, on, soft=soft) for step in steps]
        return sum(ratio * share for ratio, share in zip(ratios, shares, strict=True))

    limit = max(busy(seen), 1.0)
    slow = min(limit / max(busy(gpu), 1e-12), 1.0)
    return ratios[0] * slow, ratios[1] * slow
