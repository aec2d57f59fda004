"""Contract suites that a third-party policy, backend or journal can import and pass."""
