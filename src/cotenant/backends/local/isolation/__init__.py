"""Tenants kept apart by the operating system: what is possible here, who they are, where their files lie, the sandbox."""
