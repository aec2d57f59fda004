"""Names of the columns of the engine's tables. Rows of `f` and `i` are jobs, in order of submission.

Plain integers, not enums, because compiled code folds them into constants.
"""

from __future__ import annotations

# Job table, floats. Times are seconds on the driver's clock; NaN means "not yet".
SUBMIT = 0  # when the job arrived
WORK = 1  # truth: seconds of work at speed 1
BELIEF = 2  # belief: what the estimator says WORK is
DONE = 3  # seconds of work finished when the job last stopped
ATTAINED = 4  # executed seconds that count for priority (a promotion sets it to 0)
OCCUPIED = 5  # all seconds in which it held GPUs
SINCE = 6  # when the present run, or the present wait, began
WARM = 7  # when the present run starts to make progress (after restoring)
SPEED = 8  # seconds of work per second in the present run
FIRST = 9  # first start
FINISH = 10  # end of the job
WAITED = 11  # seconds of waiting before the present run or wait
LOST = 12  # GPU-seconds spent restoring or redoing
KEY1 = 13  # order: smaller first, then KEY2, KEY3, KEY4, then the row
KEY2 = 14
KEY3 = 15
EVENT = 16  # time of the job's next own event
FAIL_AT = 17  # DONE at which the present attempt fails; inf when it will not
CPUS = 18  # cores asked for the whole gang
MEM = 19  # GiB asked for the whole gang
DRAW = 20  # one random number per job
RESTORE = 21  # seconds to save and restore it when it is stopped
DEADLINE = 22
TIER = 23  # minus the priority that its owner gave it: smaller tiers come first, whatever the policy
KEY4 = 24  # used only where jobs have different tiers
RATED = 25  # since when SPEED holds
WEIGHT = 26  # share of the job against others of its policy
STEPS = 27  # steps per second of work; 1 where not known
ALONE = 28  # what SPEED is, or would be, without anybody else on its GPUs
GPU_GIB = 29  # GiB of memory that it needs on each of its GPUs at its present sub-batch; 0 where not known
SHARE = 30  # part of the GPUs' time that it is allowed where jobs share; 1 unless throttled or sliced
CAP = 31  # part of its memory need that may lie on the GPU, the rest on the host
SAVE = 32  # seconds from the order to leave until its GPUs are free; infinity where only the world can tell
LEAVES = 33  # when it will have left the GPUs that it still holds
START_UP = 34  # seconds that a start takes before it makes progress, beside restoring
RESUME = 35  # seconds that going on takes for a suspended job
BARRED = 36  # since when a suspended job could have started, but not where it is bound; NaN while that is not so
SAVED = 37  # work that is in a checkpoint: what is left of DONE when a suspended job is ended
FLOAT_COLUMNS = 38

# Job table, integers.
GPUS = 0
CLASS = 1  # jobs of one class are alike for placement and quotas
STATE = 2
QUEUE = 3  # index of the priority queue, for policies that have queues
PREEMPTS = 4
STARTS = 5
EVENT_KIND = 6
HEAP_AT = 7  # position in the heap of its class, -1 when not waiting
EVENT_AT = 8  # position in the event heap, -1 when it has no event
SLICE = 9  # first slice of its allocation, -1 when it has none
TENANT = 10
MODEL = 11
ATTEMPT = 12  # failed attempts so far
OWES = 13  # 1 when the next start has to restore first
RANK = 14  # rank inside the class by tier and row, for backfill searches
SPEED_ROW = 15  # row of the table of speeds: one per (model, GPU count)
HOST = 16  # running job on whose GPUs it is a guest, -1 when they are its own
LEVEL = 17  # its steps are cut into 2**LEVEL sub-batches whose gradients are accumulated
TURN = 18  # jobs of different turns share their GPUs' time one after the other; 0: it runs beside whoever is there
OPPORTUNISTIC = 19  # 1 when it runs outside the quota of its tenant, on what others leave over
OLD = 20  # first slice of the GPUs that it still holds while it leaves, -1 when it holds none
LEAVING = 21  # 1 while its last run is not over yet: it saves, is being stopped, or its suspended process is ended
PROMISED = 22  # 1 while it waits for others to leave the GPUs that it was given
HOME = 23  # first slice of the GPUs to which a suspended job is bound, -1 when it is not suspended
RUNG = 24  # how it makes room for others: 0 it saves or is stopped, 1 it is suspended
INT_COLUMNS = 25

# States of a job inside the engine.
# PINNED jobs run where nobody may plan: they may not be stopped, or their node is drained.
FUTURE, WAITING, RUNNING, FINISHED, HELD, PINNED = 0, 1, 2, 3, 4, 5

# Hot rows of running jobs: what the walk needs, side by side. H_NODE is -1 for gangs of several nodes.
# H_BELOW and H_WITHIN remember where a job stands among the Gittins samples; -1 where that is not known.
(
    H_LEFT,
    H_WARM,
    H_SPEED,
    H_GPUS,
    H_ATTAINED,
    H_SINCE,
    H_QUEUE,
    H_FIRST,
    H_NODE,
    H_TENANT,
    H_BELOW,
    H_WITHIN,
) = range(12)
HOT_COLUMNS = 12

# Kinds of job events, in the order in which equal times are handled.
END, FAIL, GONE, CROSS, PROMOTE, RELAX, UNBIND = 0, 1, 2, 3, 4, 5, 6

# Kinds of transitions, as a decision reports them.
T_START, T_STOP, T_SUSPEND, T_RESUME, T_END, T_PROMISE, T_WITHDRAW, T_RESIZE, T_TERMS = range(9)

# Nodes.
NODE_CAP, NODE_FREE, NODE_POOL, NODE_SIZE, NODE_SHUT = 0, 1, 2, 3, 4
HOST_CPU_CAP, HOST_CPU_FREE, HOST_MEM_CAP, HOST_MEM_FREE = 0, 1, 2, 3

# Pools: nodes [LO, HI) of one GPU type and one partition.
POOL_LO, POOL_HI, POOL_TYPE, POOL_LARGEST, POOL_LARGEST_COUNT, POOL_PART = 0, 1, 2, 3, 4, 5

# Slices of allocations: a linked list per job in one pool of records.
# SLICE_MASK says which GPUs of the node, where several jobs may share one; 0 where nobody asks.
SLICE_NODE, SLICE_GPUS, SLICE_NEXT, SLICE_MASK = 0, 1, 2, 3
SLOTS = 4  # jobs that may share one GPU at most

# Planned starts.
START_JOB, START_HEAD, START_MOVED, START_HOST = 0, 1, 2, 3

# Classes.
(
    C_GPUS,
    C_TENANT,
    C_PART,
    C_MODE,
    C_POOLS,
    C_OFFSET,
    C_LEN,
    C_BLOCKED,
    C_TWIN,
    C_TREE,
    C_LEAVES,
    C_HEAD,  # first job of the class when C_BEHIND was counted
    C_BEHIND,  # GPUs of running jobs behind it, then
    C_STARTED,  # N_STARTED_GPUS, then
    C_EPOCH,  # EPOCH, then
    C_NODES,  # nodes that its gangs must sit on, in equal parts; 0 where that is left to the placement
    C_ROOM,  # places that it has in the heap
    C_BOUND,  # the suspended job whose class this is, -1 for ordinary ones; -2 for one that is not in use
    C_ORIGIN,  # the class to which that job belongs
) = range(19)
CLASS_COLUMNS = 19

# Placement modes.
CONSOLIDATED, ANYWHERE, SPREAD = 0, 1, 2

# Quotas.
Q_LIMIT, Q_USED, Q_CLAIMED = 0, 1, 2

# Integer scalars of the engine.
(
    N_RUN,  # entries of the running list, stale ones included
    N_RUNNING,
    N_WAITING,
    N_EVENTS,  # entries of the event heap
    FREE_SLICE,  # head of the list of unused slices
    IDLE,  # idle GPUs on nodes that are up
    STAMP,  # changes whenever capacity is freed; classes blocked at an older stamp are tried again
    NEXT_ARRIVAL,
    N_DECISIONS,
    N_HANDLED,  # events handled
    N_FINISHED,
    N_MEASURED_LEFT,
    MEASURE_FROM,
    MEASURE_TO,
    NEXT_OUTAGE,
    DIRTY,  # something but an arrival happened since the last decision
    ARRIVED,  # arrivals since the last decision
    N_SERIES,
    N_SEGMENTS,
    N_STOPS,  # planned stops
    N_PLANNED,  # planned starts
    USE_HOST,  # 1 when cores or memory can bind
    WATCH,  # job whose turn in the walk is recorded, -1 for none
    WATCH_CODE,
    WATCH_POSITION,
    WATCH_FREE,
    COMPLETIONS,
    NODE_FAILURES,
    N_BUSY,  # GPUs held by jobs
    WATCH_AHEAD,  # running jobs ahead of the watched one
    LEFT,  # GPUs not yet claimed in this walk
    N_LINES,
    N_STARTED_GPUS,  # GPUs of all starts so far
    EPOCH,  # changes whenever a running job may have fallen back in the order
    SHARING,  # 1 when GPUs have identities and several jobs may share one
    LAGS,  # 1 when leaving GPUs takes time
    LOGGING,  # 1 when transitions are written down
    N_LOG,
    N_PROMISED,
    NEWEST,  # the row that arrived last
) = range(40)
INT_SCALARS = 40

# Float scalars of the engine.
# NEXT_CALL: when a policy that sets its own times wants to be asked again.
NOW, NEXT_CALL, SERIES_GAP, BUSY_GPU_S, WINDOW_FROM, WINDOW_TO, LAST_SAMPLE, BUSY_SINCE, HEAD_START = range(9)
PATIENCE = 9  # most seconds that a suspended job waits for its own GPUs while it could have others
FLOAT_SCALARS = 10

# What became of a job at its turn in the walk (WATCH_CODE).
(
    W_NOT_REACHED,
    W_RUNS,
    W_QUOTA,
    W_CAPACITY,
    W_FRAGMENTED,
    W_BLOCKED_BY_HEAD,
    W_RESERVED,
) = range(7)

# Order columns: what a policy may sort by (see `cotenant.core.rule`).
(
    BY_NOTHING,
    BY_REMAINING,
    BY_REMAINING_GPU,
    BY_ATTAINED_GPU,
    BY_QUEUE,
    BY_FIRST_START,
    BY_GITTINS,
    BY_BELIEF,  # from here on columns that never change
    BY_BELIEF_GPU,
    BY_DRAW,
    BY_GPUS,
    BY_DEADLINE,
    BY_TIER,  # put before a policy's own columns where jobs have different tiers
) = range(13)
FIRST_FIXED_COLUMN = BY_BELIEF

# Rule flags and numbers.
# EXTERNAL: 0 compiled, 1 asks Python while somebody waits, 2 after every event, 3 at NEXT_CALL and, with WAKES, at
# every event before it.
PREEMPTIVE, STRICT, EASY, STABLE, EXTERNAL, QUANTUM, QUEUES, WAKES = range(8)
RULE_FLAGS = 8
ROUND_S, KNOB, RELAX_S, CHECKPOINT_S = range(4)
RULE_NUMBERS = 4
QUANTUM_QUEUE, QUANTUM_FIXED, QUANTUM_SUP = 0, 1, 2
