"""Policies in rounds: targets, as fractions of the time per GPU type, become a choice of who runs next, and where."""
