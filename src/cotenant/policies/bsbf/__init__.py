"""SJF-BSBF: shortest job first, sharing with the running job where that pays most (IWQoS'24)."""

from cotenant.policies.bsbf.policy import SjfBsbf, SjfBsbfPaper, SjfFfs

__all__ = ["SjfBsbf", "SjfBsbfPaper", "SjfFfs"]
