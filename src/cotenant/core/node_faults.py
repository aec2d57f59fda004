"""What a backend knows to be wrong with a node, or with one GPU of it.

Backends tell what is wrong now, as part of `NodeInfo`; what follows from it (nothing starts there, jobs leave) is the
service's to decide and to write down.
"""

from __future__ import annotations

from dataclasses import dataclass

WHOLE_NODE = -1


@dataclass(frozen=True, slots=True)
class NodeFault:
    """One thing that is wrong, by its kind: `xid`, `ecc`, `remap`, `lost` of a GPU; `slurm`, `ready`, `taint`,
    `pressure`, `devices` of a node.

    `leave`: jobs there are to go elsewhere; else it only takes no new ones. `passes`: it is over when it is no longer
    told; else an operator has to say so. The same kind of fault at the same place is one fault, whatever its words.
    """

    kind: str
    why: str
    gpu: int = WHOLE_NODE
    leave: bool = True
    passes: bool = True
