"""The journal and what it adds up to: the one writer, the book of jobs, costs, keys and tokens."""
