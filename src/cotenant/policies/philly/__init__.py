"""Philly: virtual clusters with quotas, gangs that hold GPUs for locality, and locality that is relaxed."""

from cotenant.policies.philly.policy import Philly as Philly
