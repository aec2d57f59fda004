"""Driver 1 of the engine: virtual time, a model of the hardware, costs, failures, metrics."""
