"""What `bench.crash` submits, how it must end, and where the service is killed: all of it follows from the seed."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cotenant
from cotenant.core.columns import SLOTS
from cotenant.core.jobspec import JobSpec
from cotenant.policies import make_policy

LINES = 40
STEPS = 25  # of the elastic job
MODELS = ("lstm", "recsys", "bert", "gpt2", "resnet50", "mlp_rl")
KINDS = [
    *(f"{side}:{kind}" for side in ("before", "after")
      for kind in ("submit", "launch", "started", "exit", "stop", "snapshot", "kill", "terminate", "launched",
                   "rung", "suspend", "suspended", "continue", "wake", "continued", "set", "resize")),
    *("before:reject", "after:reject", "before:forget", "after:forget", "after:reconcile"),
    *("before:hold", "after:hold", "before:resume", "after:resume", "before:policy", "before:token", "after:token"),
]  # fmt: skip
AHEAD_KINDS = [
    f"{side}:{kind}"
    for side in ("before", "after")
    for kind in ("ahead", "prefetched", "launch", "go", "barrier", "kill")
]
CLOCKS = {"gandiva": "quantum=0.1,watch_s=0.1,trial_s=0.2,residence_s=0.5,idle_s=0.2"}  # or nobody takes turns
End = tuple[str, int | None]
ENDS: dict[str, End] = {  # of all others: ("succeeded", 0)
    "fails": ("failed", 3), "orphan": ("cancelled", None), "limit": ("failed", None), "bad": ("failed", None),
    "cancelled": ("cancelled", None), "stubborn": ("cancelled", None), "waits": ("cancelled", None),
}  # fmt: skip
_LOOKING = """
say() { read -r up _ </proc/uptime; echo "$1 $COTENANT_KEY $$ $up $2" >&8; }
runs() {  # whether a process may do anything yet: not one that stands still, is being killed or is gone
    local line field path
    { read -r line <"/proc/$1/stat" && [[ ${line##*) } != T* ]]; } 2>&8 || return 1
    { while read -r line; do
        [[ $line == 0::* || $line == *:freezer:* ]] && path=${line##*:} && grep -qs -e 'frozen 1' -e FROZEN \\
            /sys/fs/cgroup{,/unified,/freezer}"$path"/{cgroup.events,freezer.state} && return 1
    done <"/proc/$1/cgroup"; } 2>&8
    grep -qsE '^S(ig|hd)Pnd:.*[13579bdf]..$' "/proc/$1/status" && return 1  # SIGKILL is on its way
    { read -r line <"/proc/$1/stat"; } 2>&8 || return 1
    field=(${line##*) })
    [[ ${field[0]} != [ZX] ]] && ! ((field[6] & 4))  # PF_EXITING
}
busy() {  # whether any process runs of the attempt whose file this is: its first one, or one with its mark
    local key=${1#"$TRAIL"/gpu.*.} us=${COTENANT_MARK%/*} pid
    for pid in "${1##*.}" $(grep -lsxzF "COTENANT_MARK=$us/${key%.*}" /proc/[0-9]*/environ | cut -d/ -f3); do
        runs "$pid" && return 0
    done
    return 1
}
gone() { flock -sn "$1" rm -f "$1"; }  # shared: whoever is suspended in here must not look like the one gone
alone() {  # or with no more than may be there at once, where the policy shares GPUs
    local there
    for gpu in ${CUDA_VISIBLE_DEVICES//,/ }; do there=1; for other in "$TRAIL/gpu.$gpu".*; do
        [[ $other == *.$COTENANT_KEY.* ]] || gone "$other" || ! busy "$other" || gone "$other" || beside "${other##*/}"
    done; done
}
beside() { ((++there > ${MOST_ON_GPU:-1})) && say clash "$1" || say company "$1"; }
"""
PRELUDE = f"""
exec 8>>"$TRAIL/trail" 7>>"$TRAIL/job.$COTENANT_JOB"
{_LOOKING}
me=$$
if [[ $ASK ]]; then  # in a sandbox nobody sees others: somebody outside looks
    me=0
    alone() {{
        local answer="$TRAIL/answer.$COTENANT_KEY.$((++asked))"
        echo "$COTENANT_MARK $CUDA_VISIBLE_DEVICES $answer" >"$TRAIL/ask"
        until [[ -e $answer ]]; do sleep 0.01; done
    }}
fi
flock -n 7 || say double
for gpu in ${{CUDA_VISIBLE_DEVICES//,/ }}; do
    exec {{fd}}>>"$TRAIL/gpu.$gpu.$COTENANT_KEY.$me"; flock $fd
done
alone
say start
for ((i = 0; i < {LINES}; i++)); do echo "$COTENANT_KEY line $i"; done
end() {{ alone; echo "$COTENANT_KEY ends with $1"; say end; exit $1; }}
"""
LOOKER = f"""
exec 8>>"$TRAIL/trail" 9<>"$TRAIL/ask"
{_LOOKING}
say() {{ read -r up _ </proc/uptime; seen+=("$1 $COTENANT_KEY 0 $up $2"); }}
while read -r COTENANT_MARK CUDA_VISIBLE_DEVICES answer <&9; do
    COTENANT_KEY=${{COTENANT_MARK##*/}} seen=()
    alone
    # who asked may have been suspended meanwhile: then others may be there
    busy "$TRAIL/gpu.0.$COTENANT_KEY.0" && for line in "${{seen[@]}}"; do echo "$line" >&8; done
    : >"$answer"
done
"""
TRAIN = """
import os, sys, time
from cotenant import runtime

with runtime.job() as job, open(sys.argv[1], "a", buffering=1) as told:
    job.save(lambda path: (path / "saved").write_text(""))
    job.restore(lambda path: None)
    for step in job.steps(STEPS):
        job.report(batch=32)
        told.write(f"{os.environ['COTENANT_KEY']} {step} {job.gpus}\\n")
        time.sleep(0.03 / max(job.gpus, 1))
""".replace("STEPS", str(STEPS))

AHEAD = """
import os, signal, subprocess, sys, time
from cotenant import runtime

def ends(number, frame):
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)

signal.signal(signal.SIGTERM, ends)
time.sleep(0.05)
with runtime.job() as job:
    for step in job.steps(1):  # whoever is at work here must be alone, as all others
        code = subprocess.run(["bash", "-c", f'. "$TRAIL/prelude"; sleep {sys.argv[1]}; end 0']).returncode
sys.exit(code)
"""


@dataclass(frozen=True)
class Step:
    """What the client does next, once `when` (a job's name) has started; `name` is the job it is about."""

    verb: str
    name: str = ""
    specs: tuple[JobSpec, ...] = ()
    when: str = ""
    changes: dict[str, Any] | None = None


def most_on_gpu(policy: str) -> int:
    """How many jobs a policy may have on one GPU at the same time."""
    made = make_policy(policy)
    if not made.shares or (policy.startswith("gandiva:") and made.params.get("packing") is False):
        return 1  # turns are not at the same time
    return SLOTS if made.traits.names_gpus else int(made.params.get("group", 2))


def quick(policy: str) -> str:
    """A policy whose own clocks are short enough for jobs that live for less than a second, unless it says its own."""
    return f"{policy}:{CLOCKS[policy]}" if policy in CLOCKS else policy


def in_parts(policy: str) -> bool:
    """Whether jobs on one GPU may have other GPUs of their own."""
    return not make_policy(policy).traits.names_pools


def workload(
    count: int,
    chance: random.Random,
    trail: Path,
    most_users: int = 1,
    models: tuple[str, ...] = ("",),
    python: str = "",
    ahead: bool = False,
) -> list[Step]:
    """At least 21 jobs of every kind that the service treats differently; the rest are short ones.

    Where GPUs are shared (`most_users`) and pairs are known of, jobs name the models that they stand for. `python`:
    jobs are other users', who can run that one, and have somebody outside look who else is there. `ahead`: there are
    some that can be started ahead of their GPUs.
    """
    ours = {"TRAIL": str(trail), "MOST_ON_GPU": str(most_users), "ASK": "1" if python else ""}
    workdir, python = str(trail) if python else "", python or sys.executable
    ours["PYTHONPATH"] = str(Path(cotenant.__file__).parents[1])

    def job(name: str, text: str, expected_s: float = 1.0, **more: Any) -> JobSpec:
        run, model = f'. "$TRAIL/prelude"; {text}', chance.choice(models)
        return JobSpec(run=run, name=name, env=ours, expected_s=expected_s, model=model, workdir=workdir, **more)

    def short(number: int) -> JobSpec:
        text = f"sleep {chance.uniform(0.02, 0.15):.3f}; end 0"
        more = {"priority": -1} if models != ("",) and number % 3 == 0 else {}  # AntMan: beside others, or not at all
        return job(f"short-{number}", text, chance.uniform(0.5, 2), gpus=chance.choice((1, 1, 1, 2)), **more)

    def early(number: int) -> JobSpec:
        text, chosen = f'{python} "$TRAIL/ahead.py" {chance.uniform(0.4, 1.2):.3f}', chance.choice((0.0, 10.0))
        return JobSpec(run=text, name=f"early-{number}", env=ours, expected_s=0.4, workdir=workdir, gpu_mem_gib=chosen)

    shorts = [short(number) for number in range(max(2, count - 21))]
    half = len(shorts) // 2
    steps = [
        Step("submit", specs=(
            job("long-0", "sleep 0.5; end 0", 900, gpus=2), job("long-1", "sleep 0.6; end 0", 800),
            job("deaf", "trap '' TERM; sleep 0.8; end 0", 700))),
        Step("submit", specs=(
            job("grows", f'{python} "$TRAIL/train.py" "$TRAIL/steps" >&8 2>&8; end $?', 600, min_gpus=1,
                max_gpus=2),), when="long-0"),
        Step("submit", specs=tuple(shorts[:half]), when="long-0"),
        Step("submit", specs=(
            job("fails", "sleep 0.02; end 3", retries=2), job("orphan", "end 0", after=("fails",)),
            job("flaky", 'mkdir "$TRAIL/flaky" 2>&8 && end 4; end 0', retries=1))),
        Step("submit", specs=(
            job("row", "sleep 0.05; end 0", array=(0, 1, 2, 3)), job("first", "sleep 0.05; end 0"),
            job("second", "end 0", after=("first",)), job("third", "end 0", after=("second", "row")))),
        Step("submit", specs=(
            job("cancelled", "sleep 300; end 0"), job("stubborn", "trap '' TERM; while :; do sleep 9; done"),
            job("limit", "sleep 300; end 0", max_runtime_s=0.3))),
        Step("submit", specs=(
            job("waits", "sleep 300; end 0", 9000, gpus=4), job("held", "sleep 0.3; end 0", 2),
            job("daemon", "(trap '' TERM; setsid sleep 300 & ) ; end 0"), job("bad", "kill -SEGV $$; sleep 9"))),
        Step("cancel", "waits"),
        Step("cancel", "cancelled", when="cancelled"),
        Step("hold", "held", when="held"),
        Step("set", "grows", when="grows", changes={"gpus": 2}),
        Step("submit", specs=tuple(shorts[half:])),
        Step("cancel", "stubborn", when="stubborn"),
        Step("resume", "held"),
    ]  # fmt: skip
    for at in (7, 3, 1) if ahead else ():
        steps.insert(at, Step("submit", specs=tuple(early(10 * at + number) for number in range(4))))
    return steps


def plan(chance: random.Random, kinds: Sequence[str] = KINDS) -> Iterator[tuple[str, Any]]:
    """Where to kill, in order and without end: all of it follows from the seed."""
    draws = [
        lambda: ("step", chance.randint(1, 20)),
        lambda: ("kind", chance.choice(kinds)),
        lambda: ("instant", chance.uniform(0.0, 0.4)),
    ]
    while True:
        yield chance.choices(draws, (45, 30, 25))[0]()
