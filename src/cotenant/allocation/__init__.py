"""Cores and memory beside the GPUs, as an axis of its own below any order of jobs.

One algorithm per class (`mechanisms`), all of them packing the same tables (`tables`, `servers`).
"""

from cotenant.allocation.base import Allocator, Request
from cotenant.allocation.demand import Demands, Share, demands, released_demands
from cotenant.allocation.mechanisms import ALLOCATORS, make_allocator

__all__ = ["ALLOCATORS", "Allocator", "Demands", "Request", "Share", "demands", "make_allocator", "released_demands"]
