"""Gavel (OSDI'20): time fractions per GPU type from an optimisation problem, realised in rounds."""

from cotenant.policies.gavel.allox import Allox
from cotenant.policies.gavel.packing import GandivaPacking
from cotenant.policies.gavel.policy import Gavel

__all__ = ["Allox", "GandivaPacking", "Gavel"]
