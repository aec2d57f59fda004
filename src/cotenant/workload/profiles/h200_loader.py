"""Built-in profile `h200-loader`: the models of `h200`, and what cores and memory are worth to the image models.

Measured on one H200: images per second of ResNet-18, ResNet-50 and ViT-B/16 when training from JPEG bytes with 1 to 16
cores (`data/h200.json`, cpu_sensitivity). Computed: memory, by the cache in front of storage (`storage`), for a data
set of `images` images of `image_kib` KiB and `disk` MiB/s of storage per GPU. All other models read next to nothing:
one core and the memory that the job itself needs are enough. Speed 1 is the fastest point measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.sensitivity import Sensitivity, insensitive
from cotenant.core.spec import Spec, Value, typed_params
from cotenant.core.workload import Floats, Workload
from cotenant.workload.profiles.base import Profile, normal
from cotenant.workload.profiles.h200 import find, h200_profile
from cotenant.workload.profiles.measured import data
from cotenant.workload.storage import Storage, speeds

DEFAULTS: dict[str, Value] = {
    "sharing": "mps",
    "images": 1_281_167.0,  # ImageNet-1k
    "image_kib": 110.0,  # about a JPEG of 500 x 375 at quality 90
    "disk": 62.5,  # MiB/s per GPU: 500 MB/s of a server with 8
    "reserve": 8.0,  # GiB that a job needs beside its cache
}
_CACHED = np.linspace(0.0, 1.0, 11)


def curves() -> dict[str, tuple[Floats, Floats]]:
    """Model -> cores measured and images per second at each."""
    found = {}
    for model, points in data()["cpu_sensitivity"]["images_per_s"].items():
        rate = np.array([point["images_per_s"] for point in points])
        found[model] = np.array([point["cores"] for point in points], np.float64), np.maximum.accumulate(rate)
    return found


def h200_loader_profile(name: str, work: Workload, gpu_types: Sequence[str]) -> Profile:
    """The profile `h200` with a sensitivity."""
    values = typed_params(Spec.parse(name), DEFAULTS, "profile")
    numbers = {key: float(str(value)) for key, value in values.items() if key != "sharing"}
    for key, value in numbers.items():
        if not value > 0 or not np.isfinite(value):
            raise InputError(f"profile 'h200-loader': {key}={value:g} must be a positive number")
    base = h200_profile(name, str(values["sharing"]), work, gpu_types)
    return replace(base, sensitivity=loader_sensitivity([model for model, _ in base.kinds], **numbers))


def loader_sensitivity(
    models: Sequence[str], images: float, image_kib: float, disk: float, reserve: float
) -> Sensitivity:
    """Matrices of these models, in this order."""
    known = curves()
    data_gib = images * image_kib / 1024**2
    cpu_axis = next(iter(known.values()))[0]
    mem_axis = reserve + _CACHED * data_gib
    found = insensitive(len(models), cpu_axis, mem_axis)
    for at, model in enumerate(models):
        key = find(model)
        short = normal(model) if key is None else key[0]
        if short in known:
            rate = known[short][1]
            found.table[at] = speeds(
                cpu_axis, rate / rate.max(), mem_axis, data_gib, reserve, Storage(disk / 1024), images / rate.max()
            )
            found.step_s[at] = 64 / rate.max()  # measured at batch 64
    return found
