"""The columns of a job, declared once: type, unit, meaning, what kind of knowledge it is, and what policies call it.

`cotenant.core.columns` names the places of the first two groups as plain integers for compiled code, `View` shows
what has a name here, and the table in docs/policies.md is printed by `table()`; tests compare all three.
"""

from __future__ import annotations

from dataclasses import dataclass

TRUTH = "truth"  # what only whoever moves jobs may know
BELIEF = "belief"  # what somebody thinks, right or wrong
FACT = "fact"  # what was asked for, decided or observed
ENGINE = "engine"  # the engine's own bookkeeping


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `shown` is its name in `View`, empty where policies do not see it."""

    name: str
    unit: str
    nature: str
    meaning: str
    shown: str = ""


# Times are seconds on the driver's clock; NaN means "not yet".
FLOATS = (
    Column("SUBMIT", "s", FACT, "when it arrived", "submit_s"),
    Column("WORK", "s", TRUTH, "seconds of work at speed 1"),
    Column("BELIEF", "s", BELIEF, "how long it is believed to take in all, on the GPUs it asked for", "believed_s"),
    Column("DONE", "s", ENGINE, "seconds of work finished when it last stopped"),
    Column("ATTAINED", "s", ENGINE, "executed seconds that count for priority (a promotion sets it to 0)"),
    Column("OCCUPIED", "s", ENGINE, "all seconds in which it held GPUs"),
    Column("SINCE", "s", FACT, "when the present run, or the present wait, began", "since_s"),
    Column("WARM", "s", ENGINE, "when the present run starts to make progress (after restoring)"),
    Column("SPEED", "s/s", FACT, "seconds of work per second in the present run, as observed", "speed"),
    Column("FIRST", "s", FACT, "first start, NaN before it", "first_start_s"),
    Column("FINISH", "s", ENGINE, "end of the job"),
    Column("WAITED", "s", ENGINE, "seconds of waiting before the present run or wait"),
    Column("LOST", "GPU s", ENGINE, "GPU-seconds spent restoring or redoing"),
    Column("KEY1", "", ENGINE, "order: smaller first, then KEY2, KEY3, KEY4, then the row"),
    Column("KEY2", "", ENGINE, "second key"),
    Column("KEY3", "", ENGINE, "third key"),
    Column("EVENT", "s", ENGINE, "time of its next own event"),
    Column("FAIL_AT", "s", TRUTH, "DONE at which the present attempt fails; infinity when it will not"),
    Column("CPUS", "cores", FACT, "cores asked for the whole gang; 0 where cores are not modelled", "cpus"),
    Column("MEM", "GiB", FACT, "host memory asked for the whole gang; 0 where it is not modelled", "mem_gib"),
    Column("DRAW", "", ENGINE, "one random number per job"),
    Column("RESTORE", "s", FACT, "seconds that stopping and restoring it takes", "restore_s"),
    Column("DEADLINE", "s", FACT, "deadline, NaN without one", "deadline_s"),
    Column("TIER", "", FACT, "minus the priority that its owner gave it: smaller tiers come first", "tier"),
    Column("KEY4", "", ENGINE, "used only where jobs have different tiers"),
    Column("RATED", "s", ENGINE, "since when SPEED holds"),
    Column("WEIGHT", "", FACT, "its share against other jobs; 1 unless its source says otherwise", "weight"),
    Column("STEPS", "1/s", BELIEF, "steps per second of work; 1 where nobody knows", "steps_per_s"),
    Column("ALONE", "s/s", FACT, "what its speed is, or would be, without anybody else on its GPUs", "alone_speed"),
    Column("GPU_GIB", "GiB", FACT, "memory that it needs on each of its GPUs now; 0 where not known", "gpu_gib"),
    Column("SHARE", "", FACT, "part of its GPUs' time that it is allowed; 1 unless throttled or sliced", "share"),
    Column("CAP", "", FACT, "part of its memory need that may lie on the GPU, the rest on the host", "cap"),
    Column("SAVE", "s", ENGINE, "from the order to leave until its GPUs are free; infinity: only the world can tell"),
    Column("LEAVES", "s", ENGINE, "when it will have left the GPUs that it still holds"),
    Column("START_UP", "s", ENGINE, "what a start takes before it makes progress, beside restoring"),
    Column("RESUME", "s", ENGINE, "what going on takes for a suspended job"),
    Column("BARRED", "s", ENGINE, "since when a suspended job could have started, but not where it is bound; else NaN"),
    Column("SAVED", "s", ENGINE, "work that is in a checkpoint: what is left when a suspended job is ended"),
    Column("SAVING", "s", BELIEF, "what SAVE is believed to be: stops are weighed with it"),
    Column("GAIN", "s", ENGINE, "what its last stop by an order gained, as weighed then; NaN: nobody weighed it"),
    Column("COST", "s", ENGINE, "and what that cost"),
    Column("LISTED", "", ENGINE, "its place in a list: last who comes, starts or is promoted, first who is stopped"),
    Column("EXIT", "s", ENGINE, "the last of its work: its steps are done, and it saves and leaves"),
)
INTS = (
    Column("GPUS", "GPUs", FACT, "GPUs that it runs on, or asks for while it waits", "gpus"),
    Column("CLASS", "", FACT, "jobs of one class are alike for placement and quotas", "class_number"),
    Column("STATE", "", ENGINE, "one of the states below"),
    Column("QUEUE", "", ENGINE, "index of the priority queue, for policies that have queues"),
    Column("PREEMPTS", "", FACT, "how often it has been preempted", "preemptions"),
    Column("STARTS", "", ENGINE, "starts so far"),
    Column("EVENT_KIND", "", ENGINE, "what its next own event is"),
    Column("HEAP_AT", "", ENGINE, "position in the heap of its class, -1 when not waiting"),
    Column("EVENT_AT", "", ENGINE, "position in the event heap, -1 when it has no event"),
    Column("SLICE", "", ENGINE, "first slice of its allocation, -1 when it has none"),
    Column("TENANT", "", FACT, "tenant as a small number", "tenant"),
    Column("MODEL", "", ENGINE, "model as a small number"),
    Column("ATTEMPT", "", ENGINE, "failed attempts so far"),
    Column("OWES", "", ENGINE, "1 when the next start has to restore first"),
    Column("RANK", "", ENGINE, "rank inside the class by tier and row, for backfill searches"),
    Column("SPEED_ROW", "", FACT, "kind: jobs of one kind run alike (same model, same GPU count)", "kind"),
    Column("HOST", "", FACT, "row of the job on whose GPUs it is a guest, -1 when they are its own", "host_row"),
    Column("LEVEL", "", FACT, "its steps are cut into 2**level sub-batches whose gradients add up", "level"),
    Column("TURN", "", FACT, "jobs of different turns use their GPUs one after the other; 0: beside others", "turn"),
    Column("OPPORTUNISTIC", "", FACT, "1 when it runs outside the quota of its tenant", "opportunistic"),
    Column("ARRIVAL", "", FACT, "number of its arrival: the tie-break of last resort", "arrival"),
    Column("OLD", "", ENGINE, "first slice of the GPUs that it still holds while it leaves, -1 when it holds none"),
    Column("LEAVING", "", FACT, "1 while its last run is not over yet: it saves, or is being stopped", "leaving"),
    Column("PROMISED", "", FACT, "1 while it waits for others to leave the GPUs that it was given", "promised"),
    Column("HOME", "", ENGINE, "first slice of the GPUs to which a suspended job is bound, -1 when it is not"),
    Column("RUNG", "", ENGINE, "how it makes room for others: 0 it saves or is stopped, 1 it is suspended"),
    Column("EVICTED", "", ENGINE, "1 while a walk gives its GPUs to a suspended job that is bound to them"),
    Column("YIELDS", "", ENGINE, "makes room for another's turn, as bits: 1 by standing still, 2 by saving; 0 never"),
    Column("DEMOTED", "", ENGINE, "1 when it came into another queue since the last decision"),
    Column("SLICED", "", FACT, "shape of its slice of a GPU, as a number from 1 on; 0: it has all of it", "sliced"),
    Column("COLUMN", "", FACT, "first column of its slice", "column"),
    Column("LETS_IN", "", ENGINE, "1 while others may join a pinned job on its GPUs: the tables show these as empty"),
    Column("RUN_AT", "", ENGINE, "position in the list of running jobs, while it runs"),
    Column("SHIELDED", "", ENGINE, "0, or its place in the list of jobs in their minimum run, the first being 1"),
)
# What the engine works out for the view: from several columns at the moment of the look, ...
LOOKS = (
    Column("V_REMAINING", "s", BELIEF, "how long it is believed to take from now on; 0 when overdue", "remaining_s"),
    Column("V_ATTAINED", "s", FACT, "seconds in which it has held its GPUs (restoring included)", "attained_s"),
    Column("V_WAITED", "s", FACT, "seconds in which it has waited, before its first start and after stops", "waited_s"),
    Column("V_RUNNING", "", FACT, "1 when it runs now"),
    Column("V_PROGRESS", "s", FACT, "seconds of work that it has reported as done", "progress_s"),
    Column("V_STARTING", "s", BELIEF, "what is left of its start-up, or what its start would take", "starting_s"),
)
# ... and from the class of the job.
SHAPES = (
    Column("C_GPUS", "GPUs", FACT, "GPUs that it asked for, whatever it runs on; or that it stands on", "asked_gpus"),
    Column("C_MODE", "", FACT, "placement mode: consolidated, anywhere or spread, as a number", "mode"),
    Column("C_POOLS", "", FACT, "pools in which it may run, as bits", "open_pools"),
    Column("C_NODES", "nodes", FACT, "nodes on which it wants equal parts; 0: it leaves that open", "parts"),
)


def shown(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Those of the columns that policies see."""
    return tuple(column for column in columns if column.shown)


def table() -> str:
    """The columns that a policy sees, as the documentation prints them."""
    lines = ["| name | unit | what | kind |", "|---|---|---|---|"]
    for column in (*shown(LOOKS), *shown(FLOATS), *shown(SHAPES), *shown(INTS)):
        lines.append(f"| `{column.shown}` | {column.unit} | {column.meaning} | {column.nature} |")
    return "\n".join(lines)
