"""Real processes on this machine; see `backend` for what the service calls and `keeper` for what stays with a job."""

from cotenant.backends.local.backend import LocalBackend

__all__ = ["LocalBackend"]
