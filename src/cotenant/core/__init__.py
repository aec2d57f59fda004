"""The vocabulary: jobs, clusters, tables, rules, plans, reasons, errors. No I/O, clock or randomness."""
