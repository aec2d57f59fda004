"""What is believed of jobs: durations, speeds, pairs, utilisation; guessed, learned or measured. Truth: `workload`."""
