"""GPUs in slices: single-GPU jobs side by side in legal partitions, larger gangs on whole GPUs."""

from cotenant.policies.slices.policy import SlicedGpus

__all__ = ["SlicedGpus"]
