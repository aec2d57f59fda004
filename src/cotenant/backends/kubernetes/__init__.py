"""Jobs as pods of a Kubernetes cluster: see `backend`."""

from cotenant.backends.kubernetes.backend import KubernetesBackend

__all__ = ["KubernetesBackend"]
