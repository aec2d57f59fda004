"""Benchmarks: `python -m bench.engine` and `python -m bench.traces`."""
