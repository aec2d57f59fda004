"""Beliefs and the engine: what should run now, where, and why the others wait."""
