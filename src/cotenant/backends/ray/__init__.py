"""Jobs on the nodes of a Ray cluster (`serve --backend ray:address=...`).

    service process            gateway process          on every node, held by Ray
    backends.agent        <->  gateway: driver of  <->  the agent, a detached actor, around the local backend, whose
    link: calls and news       Ray, agents, table       keepers hold the jobs; it holds the node's GPUs, so that Ray
                                                        gives them to nobody else

A placement group for each gang could hold GPUs too, but it only counts them: neither exact ones nor a GPU for two jobs
can be had of it.

Ray is imported in the gateway and the agents only: a driver that loses Ray's control plane for a minute is ended by
Ray, and must not take the service with it.
"""

from cotenant.backends.ray.backend import RayBackend

__all__ = ["RayBackend"]
