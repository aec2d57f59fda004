"""What people ask: submit, look, change, explain."""
