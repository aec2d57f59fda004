"""What is believed of jobs: durations, speeds, pairs, utilisation; guessed, learned, measured. Truth is `workload`."""
