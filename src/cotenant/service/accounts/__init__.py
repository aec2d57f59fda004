"""What jobs have cost: who had how many GPUs from when to when, also of jobs that are long forgotten."""
