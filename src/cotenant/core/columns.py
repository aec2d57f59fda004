"""Names of the columns of the engine's tables. Rows of `f` and `i` are jobs, in order of submission.

Plain integers, not enums, because compiled code folds them into constants.
"""

from __future__ import annotations

# Job table, floats and integers: what each of them means is said in `cotenant.core.schema`.
(
    SUBMIT, WORK, BELIEF, DONE, ATTAINED, OCCUPIED, SINCE, WARM, SPEED, FIRST, FINISH, WAITED, LOST, KEY1, KEY2,
    KEY3, EVENT, FAIL_AT, CPUS, MEM, DRAW, RESTORE, DEADLINE, TIER, KEY4, RATED, WEIGHT, STEPS, ALONE, GPU_GIB,
    SHARE, CAP, SAVE, LEAVES, START_UP, RESUME, BARRED, SAVED, SAVING, GAIN, COST, LISTED, EXIT,
) = range(43)  # fmt: skip
FLOAT_COLUMNS = 43
(
    GPUS, CLASS, STATE, QUEUE, PREEMPTS, STARTS, EVENT_KIND, HEAP_AT, EVENT_AT, SLICE, TENANT, MODEL, ATTEMPT, OWES,
    RANK, SPEED_ROW, HOST, LEVEL, TURN, OPPORTUNISTIC, ARRIVAL, OLD, LEAVING, PROMISED, HOME, RUNG,
    EVICTED, YIELDS, DEMOTED, SLICED, COLUMN, LETS_IN, RUN_AT, SHIELDED,
) = range(34)  # fmt: skip
INT_COLUMNS = 34

# States of a job inside the engine.
# PINNED jobs run where nobody may plan: they may not be stopped, or their node is drained.
# ASIDE: it would wait, but no node that is up could hold it.
FUTURE, WAITING, RUNNING, FINISHED, HELD, PINNED, ASIDE = 0, 1, 2, 3, 4, 5, 6

# Hot rows of running jobs: what the walk needs, side by side. H_NODE is -1 for gangs of several nodes.
# H_BELOW and H_WITHIN remember where a job stands among the Gittins samples; -1 where that is not known.
# H_COST is what stopping it costs; H_RISK is 1 where work that it does from now on comes on top. H_BEGAN is its WARM.
# H_NOTED: for which moment its keys were written where they are kept from one decision to the next.
(
    H_LEFT, H_WARM, H_SPEED, H_GPUS, H_ATTAINED, H_SINCE, H_QUEUE, H_FIRST, H_NODE, H_TENANT, H_BELOW, H_WITHIN,
    H_COST, H_RISK, H_BEGAN, H_LISTED, H_NOTED,
) = range(17)  # fmt: skip
HOT_COLUMNS = 17

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
SLOTS = 4  # jobs that may share one GPU at most, unless GPUs are cut into more slices

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
    C_JUDGED,  # NODES when C_NOWHERE was found out
    C_NOWHERE,  # 1 when no node that is up could hold its gangs
    C_TYPE,  # the one GPU type on which its jobs run, -1 where there are several
    C_LEAF,  # row of the tree of tenants to which its jobs count
    C_ASIDE,  # 1 when it did not start though its limit would let it: others may have its GPUs
    C_COMES,  # 1 when borrowed GPUs come back for it as soon as their minimum run is over
    C_MOVED,  # 1 when its first waiting job is another since classes were lined up, 2 when it is in its place again
) = range(26)
CLASS_COLUMNS = 26

# Placement modes.
CONSOLIDATED, ANYWHERE, SPREAD = 0, 1, 2

# Tenants. Q_LIMIT is the most GPUs that one may hold now, Q_GUARANTEED what nobody may keep from it (its limit, where
# there is no tree of tenants), Q_CLAIMED what it has in this walk, Q_STARTED what of that is to start. Q_STAYS: 1 where
# nobody is displaced inside it;
# Q_CLOSED: 1 when its first job did not fit and holds back the rest; Q_RECLAIMS: stops of its jobs for others' claims.
# Q_MOST is what it may ever hold; Q_FIRST: where its first running job stands, in a chain made for one decision.
Q_LIMIT, Q_USED, Q_GUARANTEED, Q_CLAIMED, Q_STAYS, Q_CLOSED, Q_RECLAIMS, Q_STARTED, Q_MOST, Q_FIRST = range(10)
QUOTA_COLUMNS = 10
# And what they have used, up to U_SINCE: U_PAST is a mean in GPUs in which what is past counts half after a half-life,
# the others are GPU-seconds.
U_PAST, U_SINCE, U_USED, U_BORROWED = range(4)
USE_COLUMNS = 4
UNLIMITED = 2**40

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
    NODE_FAILURES,
    N_BUSY,  # GPUs held by jobs
    WATCH_AHEAD,  # running jobs ahead of the watched one
    LEFT,  # GPUs not yet claimed in this walk
    N_LINES,
    IN_LINE,  # 1 when `State.lines` holds all classes that have waiting jobs
    N_MOVED,  # classes in `State.moved`
    N_KEPT,  # entries of the running list that were taken into the line of running jobs
    N_LINED,  # places in that line
    N_STARTED_GPUS,  # GPUs of all starts so far
    EPOCH,  # changes whenever a running job may have fallen back in the order
    SHARING,  # 1 when GPUs have identities and several jobs may share one
    LAGS,  # 1 when leaving GPUs takes time
    LOGGING,  # 1 when transitions are written down
    N_LOG,
    N_PROMISED,
    NEWEST,  # the row that arrived last
    N_EVICTED,  # running jobs that lose their GPUs in this walk to a suspended job which is bound to them
    ROTATES,  # 1 when jobs of different turns are never on a GPU together; else they share its time as a fluid
    N_WEIGHED,  # stops by an order, of which gain and cost are known and finite
    FULL,  # 1 while as many jobs are suspended as may be: whoever has to leave begins anew
    NODES,  # changes whenever a node is shut or open again
    N_SHUT,  # nodes that are shut
    N_ASIDE,
    UNSURE,  # 1 when somebody may have to be set aside, 2 when others may come back too
    N_BACK,  # jobs that came back so far
    TENANTS,  # 0: quotas never move; 1: limits follow from the tree of tenants; 2: the policy shares between tenants
    NEW_TREE,  # 1 when the tree has changed since the last decision
    RECLAIMING,  # 1 when a guaranteed claim waits until borrowed GPUs may be taken back
    RESERVED,  # the job for which GPUs are kept from borrowers, -1 for none
    STACKS,  # 1 when the policy lets several jobs share a GPU
    N_LISTED,  # how often somebody was put at the end of a list (LISTED)
    LIST_BASE,  # the same before the first stop of the present moment
    N_DEMOTED,  # jobs that were demoted since the last decision
    PINS,  # 1 when jobs may be pinned though leaving takes no time
    QUOTAS,  # 1 when some tenant may not hold all GPUs
    SEATED,  # 1 when `State.seat` says who sits on each node
    LINED,  # 1 when the line of running jobs is in the order of the keys that are noted for them
    LINE_END,  # places of that line at which nobody has looked in this walk
    TAIL_FIRST,  # where those that were looked at begin, in `State.order`
    N_STALE,  # nodes of which `State.top` no longer holds
    N_CHANGED,  # entries of `State.changed` so far, older ones overwritten
    ONE_KEY,  # 1 when the order goes by one key alone
    N_SHIELDED,  # entries of `State.shield`
    ROUND,  # number of the round for which line and `State.top` hold
    MOST_IDLE,  # no node has more idle GPUs in this walk
    MOST_OPEN,  # no node has more unclaimed GPUs in a walk from the end of the line
    N_GIVEN,  # entries of `State.given`
    N_AROUND,  # entries of `State.around`, in which all rows before AROUND_SEEN have been listed
    AROUND_SEEN,
    HANDLED_THEN,  # N_HANDLED at the last plan
) = range(77)
INT_SCALARS = 77

# Float scalars of the engine.
# NEXT_CALL: when a policy that sets its own times wants to be asked again.
NOW, NEXT_CALL, SERIES_GAP, BUSY_GPU_S, WINDOW_FROM, WINDOW_TO, LAST_SAMPLE, BUSY_SINCE, HEAD_START = range(9)
PATIENCE = 9  # most seconds that a suspended job waits for its own GPUs while it could have others
NEXT_TURN = 10  # when the first turn is over for which somebody waits
NEXT_LOOSE = 11  # when the first minimum run is over that holds somebody back
NEXT_WARM = 12  # when the first of those that have company begins to use its GPUs, or has made its last step
GAINED_S, PAID_S = 13, 14  # sums over N_WEIGHED
NEXT_CLAIM = 15  # when a minimum run on borrowed GPUs is over, or a reservation begins to hold
HALF_LIFE_S, LOAN_S, RESERVE_S = 16, 17, 18  # of the tree: past use, minimum run when borrowing, reservations
STOPPED_AT = 19  # when somebody was stopped last
NEXT_BARE = 20  # no minimum run of `State.shield` is over before that
GIVES_UNTIL = 21  # up to then a plan lets idle GPUs be given away without asking (`Plan.idle_until_s`)
REPEATS_UNTIL = 22  # up to then a plan would be the same again, while nobody comes or goes (`Plan.same_until_s`)
PACE_S = 23  # length of rounds in which jobs make whole steps; 0 where they do not (`cotenant.engine.whole_steps`)
LAST_KEY = 24  # no running job has a larger first key, while the line of running jobs is kept
FLOAT_SCALARS = 25

# What became of a job at its turn in the walk (WATCH_CODE).
(
    W_NOT_REACHED, W_RUNS, W_QUOTA, W_CAPACITY, W_FRAGMENTED, W_BLOCKED_BY_HEAD,
) = range(6)  # fmt: skip

# Order columns: what a policy may sort by.
(
    BY_NOTHING,
    BY_REMAINING,
    BY_REMAINING_GPU,
    BY_ATTAINED_GPU,
    BY_QUEUE,
    BY_FIRST_START,
    BY_GITTINS,
    BY_LISTED,
    BY_BELIEF,  # from here on columns that never change
    BY_BELIEF_GPU,
    BY_DRAW,
    BY_GPUS,
    BY_DEADLINE,
    BY_TIER,  # put before a policy's own columns where jobs have different tiers
) = range(14)
FIRST_FIXED_COLUMN = BY_BELIEF

# Rule flags and numbers.
# EXTERNAL: 0 compiled, 1 asks Python while somebody waits, 2 after every event, 3 at NEXT_CALL and, with WAKES, at
# every event before it.
# WEIGHS: nobody is stopped unless that gains more than it costs; MIN_RUN_S is the most that a minimum run lasts.
PREEMPTIVE, STRICT, EASY, STABLE, EXTERNAL, QUANTUM, QUEUES, WAKES, WEIGHS = range(9)
RULE_FLAGS = 9
ROUND_S, KNOB, RELAX_S, CHECKPOINT_S, MIN_RUN_S = range(5)
RULE_NUMBERS = 5
QUANTUM_QUEUE, QUANTUM_FIXED, QUANTUM_SUP = 0, 1, 2
