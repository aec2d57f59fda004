"""What a batch script of Slurm finds when it runs here: its variables, where its output goes, signals, and `srun`.

On several nodes the script runs on each of them, not on the first alone; `srun` in it starts that node's tasks. So
`srun python train.py` runs as many copies as in Slurm, each with its `SLURM_PROCID`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

_SHELLS = re.compile(r"#!\s*(?:/usr/bin/env\s+bash|\S*/(?:ba)?sh)\s*")
_END = "COTENANT_END_OF_SCRIPT"
_NAMES = {
    "%": "%", "A": "$SLURM_ARRAY_JOB_ID", "a": "$SLURM_ARRAY_TASK_ID", "j": "$SLURM_JOB_ID", "J": "$SLURM_JOB_ID",
    "x": "$SLURM_JOB_NAME", "N": "$(hostname -s)", "n": "$SLURM_NODEID", "u": "$(id -un)", "t": "$SLURM_NODEID",
}  # fmt: skip
_SRUN = r"""srun() {
    local tasks="" arg
    while [[ "${1-}" == -* ]]; do
        arg=$1; shift
        case $arg in
            --) break;;
            --ntasks-per-node=*) tasks=${arg#*=};;
            -n?*) [[ $SLURM_NNODES == 1 ]] && tasks=${arg#-n};;
            --ntasks=*) [[ $SLURM_NNODES == 1 ]] && tasks=${arg#*=};;
            -n|--ntasks) [[ $SLURM_NNODES == 1 ]] && tasks=$1; shift;;
            --*=*|--exclusive|--overlap|--exact|--unbuffered|--label|--kill-on-bad-exit|--pty|-l|-u|-K|-O|-v|-Q) ;;
            --*|-?) shift;;
        esac
    done
    tasks=${tasks:-$SLURM_NTASKS_PER_NODE}
    if [[ $tasks == 1 ]]; then
        SLURM_PROCID=$SLURM_NODEID SLURM_LOCALID=0 "$@"
        return
    fi
    local pids=() code=0 k pid one
    for ((k = 0; k < tasks; k++)); do
        SLURM_PROCID=$((SLURM_NODEID * tasks + k)) SLURM_LOCALID=$k "$@" &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do
        wait "$pid"; one=$?
        if ((one > code)); then code=$one; fi
    done
    return $code
}
export -f srun
"""


@dataclass(frozen=True, slots=True)
class ScriptFacts:
    """What the options of a script say of its surroundings."""

    tasks: int
    tasks_per_node: int
    nodes: int
    cpus_per_task: int
    output: str
    error: str
    input: str
    append: bool
    signal: str
    name: str
    array: bool


def whole_script(text: str, facts: ScriptFacts, arguments: Sequence[str] = ()) -> str:
    """The text to run: surroundings first, then the script, by its own interpreter where that is not plain bash."""
    first, _, rest = text.partition("\n")
    words = shlex.join(arguments)
    lines = [*_variables(facts), *_files(facts), *_signal(facts.signal), _SRUN.rstrip()]
    if _SHELLS.fullmatch(first):
        return "\n".join([*lines, *([f"set -- {words}"] if words else []), rest])
    interpreter = first.removeprefix("#!").strip()
    return "\n".join([*lines, f"exec {interpreter} /dev/fd/3 {words} 3<<'{_END}'", text.rstrip("\n"), _END, ""])


def _variables(facts: ScriptFacts) -> list[str]:
    fixed = {
        "SLURM_JOB_NAME": facts.name, "SLURM_NTASKS": facts.tasks, "SLURM_NPROCS": facts.tasks,
        "SLURM_NTASKS_PER_NODE": facts.tasks_per_node, "SLURM_NNODES": facts.nodes, "SLURM_JOB_NUM_NODES": facts.nodes,
        **({"SLURM_CPUS_PER_TASK": facts.cpus_per_task} if facts.cpus_per_task else {}),
    }  # fmt: skip
    lines = ["export " + " ".join(f"{name}={shlex.quote(str(value))}" for name, value in fixed.items())]
    lines += [
        'export SLURM_JOB_ID="${SLURM_JOB_ID:-$COTENANT_JOB_ID}" SLURM_NODEID="${COTENANT_NODE_RANK:-0}"',
        'export SLURM_JOBID="$SLURM_JOB_ID" SLURM_PROCID="$SLURM_NODEID" SLURM_LOCALID=0 SLURM_SUBMIT_DIR="$PWD"',
        'export SLURM_JOB_GPUS="${SLURM_JOB_GPUS:-$CUDA_VISIBLE_DEVICES}"',
        'export SLURM_RESTART_COUNT="$((${COTENANT_ATTEMPT:-1} - 1))"',
    ]
    if facts.array:
        lines.append(
            'export SLURM_ARRAY_TASK_ID="$COTENANT_ARRAY_INDEX" SLURM_ARRAY_JOB_ID="${COTENANT_JOB_ID%%[._]*}"'
        )
    return lines


def _files(facts: ScriptFacts) -> list[str]:
    """Where output goes, as in Slurm: emptied by the first attempt on its first node, unless it is appended to."""
    lines = [f"exec < {_path(facts.input)}"] if facts.input else []
    if facts.output or facts.error:
        first = '[ "${COTENANT_ATTEMPT:-1}" = 1 ] && [ "$SLURM_NODEID" = 0 ] && append="" || append=1'
        again = "append=1" if facts.append else first
        lines.append(again)
        for number, path in ((1, facts.output), (2, facts.error)):
            if path:
                lines.append(f'[ -n "$append" ] || : > {_path(path)}; exec {number}>> {_path(path)}')
        if facts.output and not facts.error:
            lines.append("exec 2>&1")
    return lines


def _path(pattern: str) -> str:
    """A file name with Slurm's patterns (`%j`, `%x`, `%4a`) as a word of the shell."""
    parts = re.split(r"%(\d*)([%AaJjxNnut])", pattern)
    found = [shlex.quote(parts[0]) if parts[0] else ""]
    for at in range(1, len(parts), 3):
        width, letter, text = parts[at : at + 3]
        value = _NAMES[letter]
        padded = f'"$(printf %0{width}d "{value}")"' if width and letter != "%" else f'"{value}"'
        found += [padded, shlex.quote(text) if text else ""]
    return "".join(found) or "/dev/null"


def _signal(asked: str) -> list[str]:
    """`--signal=[B:]NAME[@seconds]`: jobs are told to end by SIGTERM here, which is passed on as what they wait for."""
    if not asked:
        return []
    batch, _, name = asked.rpartition(":")
    name = name.partition("@")[0].upper().removeprefix("SIG")
    if name in ("TERM", "15", "KILL", "9"):
        return []
    whom = "$$" if "B" in batch.upper() else "-- -$$"
    return [f"trap 'kill -s {shlex.quote(name)} {whom}' TERM"]
