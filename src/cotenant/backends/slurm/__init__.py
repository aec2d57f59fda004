"""Jobs on a Slurm cluster: whole nodes that we keep (pilot), or every gang as a Slurm job of its own (native)."""

from cotenant.backends.slurm.backend import SlurmBackend

__all__ = ["SlurmBackend"]
