"""Jobs on nodes that something else holds for us: an agent on each, around the local backend.

Ray's actors and Slurm's pilots both run it, and its keepers hold the jobs; how agents are reached is a link of theirs
(`agents.AgentsLink`).
"""

from cotenant.backends.agent.backend import AgentBackend

__all__ = ["AgentBackend"]
