"""Outcomes of runs, made readable: tables for the terminal, one self-contained HTML file, a CSV of jobs.

The room reads `core.Outcome` and nothing else. Rich and Polars are imported where they are used,
so that importing this package costs nothing.
"""
