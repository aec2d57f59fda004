"""Tenants kept apart by the operating system: what is possible here, who they are, their files, the sandbox."""
