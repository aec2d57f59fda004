"""What a policy is: the one thing about it that the engine, the simulator, the service and the tests ask."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

PAIR_RULES = ("mixture", "nearest")  # by which pairs that were not measured are estimated


@dataclass(frozen=True, slots=True)
class Traits:
    """Two kinds: an order says who comes first, a plan (`plans`) says who runs. The rest says how.

    A policy gives them as class attributes or properties of the same names; `Policy.traits` collects them.
    """

    plans: bool = False  # it returns the whole target state; otherwise an order
    computed: bool = False  # an order that is computed in Python, not read off columns
    preemptive: bool = False
    strict: bool = False  # the first job that does not fit holds back the rest of its partition
    round_s: float = np.inf  # asked so often, besides
    wakes: bool = True  # a plan is asked at every event; otherwise only at the times that it names itself
    names_pools: bool = False  # a plan says in which pool jobs run, and the engine finds the places
    shares: bool = False  # several jobs may sit on one GPU
    overcommits: bool = False  # jobs may run outside the quota of their tenant
    own_shares: bool = False  # it shares between tenants itself: limits are ceilings, it reads the guarantees
    interleaves: bool = False  # jobs that share take turns stage by stage
    stage_noise: float = 0.0  # how wrong it is about stage times: standard deviation of their logarithms
    resizes: bool = False  # it gives elastic jobs other sizes than they asked for
    fixed_batch: bool = False  # resized jobs keep the batch they asked for, in smaller or larger parts
    undoes: bool = False  # it parts, or holds back, jobs that do not gain from sharing by itself
    takes_turns: bool = False  # jobs on one GPU may have it one after the other (`Terms.turn`)
    quantum_s: float = np.inf  # of jobs that take turns on a GPU
    slices: bool = False  # it cuts GPUs into slices, where the cluster says how (`Terms.sliced`)
    promises: bool = False  # it answers jobs with deadlines, and reserves what it promises (`Policy.deadline_answers`)
    learns: bool = False  # its rule is to be renewed as jobs finish
    default_estimator: str = "oracle"  # what is believed of durations where nobody chose
    pair_belief: str = ""  # what it believes of pairs: `oracle`, or `online:...` from what it has seen; "" for nothing

    @property
    def names_gpus(self) -> bool:
        """Whether it says on which GPUs exactly a job sits, not only on how many of which node."""
        return self.plans and self.shares and not self.names_pools
