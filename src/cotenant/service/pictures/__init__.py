"""What pages show at a glance: who is on which GPU and was, who waits in which order, and what stops have cost."""
