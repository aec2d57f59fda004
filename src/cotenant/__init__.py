"""Cotenant: simulate, serve and explain shared GPU clusters with one engine."""

from cotenant._version import __version__

__all__ = ["__version__"]
