"""Jobs on the nodes of a Ray cluster (`serve --backend ray:address=...`).

    service process            gateway process          on every node, held by Ray
    backend, logs, gangs  <->  gateway: driver of  <->  agent: a detached actor around the local backend, whose keepers
    link: calls and news       Ray, agents, table       hold the jobs; leash: ends them when the node is lost to Ray

Ray is imported in the gateway and the agents only: a driver that loses Ray's control plane for a minute is ended by
Ray, and must not take the service with it.
"""

from cotenant.backends.ray.backend import RayBackend

__all__ = ["RayBackend"]
