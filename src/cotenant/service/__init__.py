"""Driver 2 of the engine: wall time, real jobs, a journal. Nothing acknowledged is lost."""
