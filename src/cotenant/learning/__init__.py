"""Learning from numbers: a thin, deterministic door to gradient boosting. Knows nothing of jobs or nodes."""
