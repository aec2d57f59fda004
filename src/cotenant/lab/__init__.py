"""The researcher's door: traces, runs and comparisons as Python objects and data frames (docs/python.md)."""
