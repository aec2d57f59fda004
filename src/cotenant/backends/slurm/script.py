"""The batch script of one gang: options for `sbatch`, a shell that a keeper runs under, ranks by node name.

The shell takes the record for itself (a second job of the same key ends there), notes the GPUs, starts the keeper,
which hands on what Slurm says of the allocation, and passes SIGTERM, and SIGUSR2 as SIGKILL, on to the job's process
group, whatever Slurm tracks processes by.
A gang is one `srun` below the keeper, with one task per node: its output comes together there, and a rank that fails
ends the others.
"""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cotenant.backends.base import LaunchSpec, NodeInfo
from cotenant.backends.gangs import Rank, ranks
from cotenant.backends.local import keeper, orders
from cotenant.backends.slurm import rank

_SHELL = """#!/bin/bash
cd {record} || exit 1
set -C; {{ echo "$SLURM_JOB_ID" > claimed; }} 2> /dev/null || exit 0; set +C
{gpus}
who() {{ job=$(sed -n 's/.*"pid": \\([0-9]*\\), "ticks".*/\\1/p' child.json 2> /dev/null); }}
told() {{
    who
    if [ -n "$job" ]; then : > heard; {forward}; else exit 0; fi
}}
ended() {{
    who
    if [ -n "$job" ]; then {end}; else exit 0; fi
}}
trap told TERM
trap ended USR2
{python} -I -S -c {boot} {here} {record} 3<> lock 4< /dev/null &
keeper=$!
while kill -0 $keeper 2> /dev/null; do wait $keeper; done
[ -e exit.json ] || ended  # a keeper that died leaves nobody behind: the job starts again elsewhere
"""
_MINUTE_S = 60.0
_OF_SLURM = ("SLURM", "CUDA_VISIBLE", "ROCR_VISIBLE", "ZE_AFFINITY")  # how names begin of what Slurm says to a job


def options(spec: LaunchSpec, nodes: Mapping[str, NodeInfo], partition: str, record: Path) -> list[str]:
    """What `sbatch` is told: exact nodes, and how many GPUs on each."""
    found = ranks(spec, nodes)
    names = [name for name, _ in spec.gpus]
    counts = [len(indexes) for _, indexes in spec.gpus]
    words = [
        f"--job-name={spec.job or spec.key}", f"--partition={partition}", f"--output={record / 'slurm.log'}",
        "--chdir=/",
    ]  # fmt: skip
    size = nodes[names[0]] if names else next(iter(nodes.values()))
    cpus = math.ceil(spec.cpu_share) if spec.cpu_share is not None else 1
    share = max(max(counts, default=0) / max(size.gpus, 1), cpus / size.cpus)
    mem_gib = spec.mem_gib if spec.mem_gib is not None else share * size.mem_gib * 0.98
    words += [f"--mem={max(1, math.floor(mem_gib * 1024))}M"]
    if spec.max_runtime_s:
        words.append(f"--time={math.ceil((spec.max_runtime_s + 2 * spec.grace_s) / _MINUTE_S) + 1}")
    if not names:
        return [*words, "--nodes=1", "--ntasks=1", f"--cpus-per-task={cpus}"]
    if uneven(spec):
        each = math.ceil(cpus / max(counts))
        return [
            *words, "--distribution=arbitrary", f"--ntasks={sum(counts)}", "--gpus-per-task=1",
            f"--cpus-per-task={each}",
        ]  # fmt: skip
    return [
        *words, f"--nodelist={','.join(names)}", f"--nodes={len(found)}", f"--ntasks={len(found)}",
        "--ntasks-per-node=1", f"--gres=gpu:{counts[0]}", f"--cpus-per-task={cpus}",
    ]  # fmt: skip


def hosts(spec: LaunchSpec) -> str:
    """A line for every GPU, where nodes give different numbers of them: Slurm takes such a file."""
    return "".join(f"{name}\n" * len(indexes) for name, indexes in spec.gpus)


def uneven(spec: LaunchSpec) -> bool:
    """Whether its nodes give it different numbers of GPUs."""
    return len({len(indexes) for _, indexes in spec.gpus}) > 1


def text(spec: LaunchSpec, record: Path) -> str:
    """The script."""
    solo = len(spec.gpus) <= 1
    return _SHELL.format(
        record=shlex.quote(str(record)),
        gpus='echo "$SLURM_JOB_GPUS" > "gpus.$SLURMD_NODENAME"' if solo else "",
        forward='kill -TERM -- "-$job" || kill -TERM "$job"' if solo else 'scancel --signal=TERM "$SLURM_JOB_ID"',
        end='kill -KILL -- "-$job" || kill -KILL "$job"' if solo else 'scancel --signal=KILL "$SLURM_JOB_ID.0"',
        python=shlex.quote(sys.executable),
        boot=shlex.quote(orders.BOOT),
        here=shlex.quote(str(Path(keeper.__file__).resolve().parent)),
    )


def order(spec: LaunchSpec, nodes: Mapping[str, NodeInfo], label: str, record: Path, news: Path, home: Path) -> bytes:
    """What the keeper is told; see `local.orders`. Which GPUs there are is said by Slurm, on the node."""
    found = ranks(spec, nodes)
    env = {"COTENANT_MARK": f"{label}/{spec.key}", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if spec.gpus:
        env["COTENANT_GPU_TYPE"] = nodes[spec.gpus[0][0]].gpu_type
    else:
        env["CUDA_VISIBLE_DEVICES"] = ""
    if spec.gpus and spec.gpu_mem_gib is not None:
        env["COTENANT_GPU_MEM_GIB"] = f"{spec.gpu_mem_gib:g}"
    inner = replace(spec, max_runtime_s=0.0, cpus=None)
    if len(found) > 1:
        inner = replace(inner, argv=_srun(spec, found, record), script="", setup="")
    more = [("notify", str(news)), ("workdir", spec.workdir or str(home)), *(("own_env", name) for name in _OF_SLURM)]
    return orders.written(inner, {}, env, more)


def _srun(spec: LaunchSpec, found: Sequence[Rank], record: Path) -> tuple[str, ...]:
    total = sum(len(indexes) for _, indexes in spec.gpus)
    return (
        *("env", "-u", "SLURM_NTASKS", "-u", "SLURM_NPROCS", "-u", "SLURM_DISTRIBUTION", "-u", "SLURM_GPUS_PER_TASK"),
        *("-u", "SLURM_ARBITRARY_NODELIST", "-u", "SLURM_HOSTFILE", "-u", "SLURM_EXPORT_ENV"),
        *("srun", "--unbuffered", "--kill-on-bad-exit=1", "--export=ALL", "--ntasks-per-node=1", "--mpi=none"),
        *(f"--nodes={len(found)}", f"--ntasks={len(found)}", f"--gpus={total}"),
        *("bash", "-c", rank_script(found), "cotenant", sys.executable, "-I", "-S", str(Path(rank.__file__).resolve())),
        *(str(record), *orders.command(spec)),
    )


def rank_script(found: Sequence[Rank]) -> str:
    """What every task runs first: who it is, by the name of its node; then the command."""
    cases = []
    for one in found:
        names = "|".join(shlex.quote(name) for name, _ in one.gpus)
        words = " ".join(f"{name}={shlex.quote(value)}" for name, value in one.environment().items())
        cases.append(f"{names}) export {words};;")
    lines = ["case $SLURMD_NODENAME in", *cases, "esac"]
    return "\n".join([*lines, 'exec "$@"'])
