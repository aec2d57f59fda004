"""The cycle of a scheduler on columnar tables: observe, view, decide, check, commit. Knows no clock."""
