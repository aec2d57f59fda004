"""Cores, CPU time and memory: as asked at launch, and as changed while the job runs."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

import pytest
from local_world import LocalWorld, pid_of

from cotenant.backends.local import cgroups, gpus
from cotenant.core.errors import InputError

EAT = "x = b'x' * (400 << 20)"


def _group(world: LocalWorld, key: str, role: str) -> Path:
    return Path(world.backend._cgroups.paths(f"cotenant.{world.backend.label}.{key}")[role])


def test_affinity_at_launch_and_later(world: LocalWorld) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("one core only")
    with world.pipe() as pipe:
        script = (
            "import os, sys, threading\n"
            "t = threading.Thread(target=lambda: open(sys.argv[2]).read(), daemon=True); t.start()\n"
            "print(sorted(os.sched_getaffinity(0)), file=open(sys.argv[1], 'w'))\n"
            "t.join()\n"
        )
        (world.work / "threads.py").write_text(script)
        os.mkfifo(world.work / "go")
        command = f"{sys.executable} threads.py {pipe.path} {world.work}/go; exit"
        world.launch("aff-1", command, cpus=(cores[1],))
        assert pipe.line() == str([cores[1]])
    assert world.backend.set_limits("aff-1", cpus=[cores[0]])
    tasks = [int(t) for pid in world.marked("aff-1") for t in os.listdir(f"/proc/{pid}/task")]
    assert len(tasks) >= 3
    assert all(os.sched_getaffinity(task) == {cores[0]} for task in tasks)


def test_foreign_cores_are_refused(world: LocalWorld) -> None:
    with pytest.raises(InputError, match="not ours"):
        world.launch("core-1", "exit 0", cpus=(100000,))
    with pytest.raises(InputError, match="ours to give"):
        world.backend.set_limits("core-1", cpus=[100000])


def test_memory_limit_kills_and_is_reported(fenced: LocalWorld) -> None:
    fenced.launch("eat-1", "", argv=(sys.executable, "-S", "-c", EAT), mem_gib=0.1)
    end = fenced.until("eat-1", "exited")
    assert (end.signal, end.oom) == (9, True)
    fenced.launch("eat-2", "", argv=(sys.executable, "-S", "-c", EAT), mem_gib=1.0)
    end = fenced.until("eat-2", "exited")
    assert (end.exit_code, end.oom) == (0, False)


def test_memory_of_children_counts(fenced: LocalWorld) -> None:
    """The first process survives to report 137; the kernel's count still tells that it was memory."""
    fenced.launch("eat-3", f'{sys.executable} -S -c "{EAT}"; exit $?', mem_gib=0.1)
    end = fenced.until("eat-3", "exited")
    assert (end.exit_code or end.signal) in (137, 9)
    assert end.oom


def test_limits_change_while_it_runs(fenced: LocalWorld) -> None:
    fenced.launch("lim-1", "sleep infinity", mem_gib=1.0, cpu_share=0.5)
    pid = pid_of(fenced.until("lim-1", "running"))
    memory, cpu = _group(fenced, "lim-1", "memory"), _group(fenced, "lim-1", "cpu")
    assert pid in cgroups.members(str(memory))
    assert pid in cgroups.members(str(cpu))
    shown = memory / ("memory.max" if cgroups.is_v2(str(memory)) else "memory.limit_in_bytes")
    quota = cpu / ("cpu.max" if cgroups.is_v2(str(cpu)) else "cpu.cfs_quota_us")
    assert int(shown.read_text()) == 1 << 30
    assert quota.read_text().split()[0] == "50000"
    for gib in (0.5, 2.0):
        assert fenced.backend.set_limits("lim-1", mem_gib=gib, cpu_share=1.5)
        assert int(shown.read_text()) == int(gib * (1 << 30))
        assert quota.read_text().split()[0] == "150000"
    assert fenced.backend.set_limits("lim-1", mem_gib=math.inf, cpu_share=math.inf)
    assert quota.read_text().split()[0] in ("-1", "max")


def test_without_cgroups_limits_are_refused_not_ignored(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, cgroups=False)
    world.launch("plain-1", "sleep infinity")
    world.until("plain-1", "running")
    assert not world.backend.capabilities().memory_limit
    assert not world.backend.set_limits("plain-1", mem_gib=1.0)
    assert not world.backend.set_limits("plain-1", cpu_share=1.0)
    world.end_all()
    world.backend.close()
    world.assert_nothing_left()


def test_address_space_limit_where_asked(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, cgroups=False, rlimit_as=True)
    world.launch("as-1", "", argv=(sys.executable, "-S", "-c", EAT), mem_gib=0.2)
    assert world.until("as-1", "exited").exit_code == 1
    assert "MemoryError" in world.log("as-1", "stderr")
    world.end_all()
    world.backend.close()
    world.assert_nothing_left()


def test_own_groups_in_both_versions(tmp_path: Path) -> None:
    for path in ("v1/memory/a", "v2/user/b"):
        (tmp_path / path).mkdir(parents=True)
    mounts, own = tmp_path / "mounts", tmp_path / "own"
    lines = (f"cgroup {tmp_path}/v1/memory cgroup rw,memory 0 0", f"cgroup2 {tmp_path}/v2 cgroup2 rw 0 0")
    mounts.write_text("\n".join((*lines, "proc /proc proc rw 0 0", "")))
    own.write_text("4:memory:/a\n2:cpu,cpuacct:/\n0::/user/b\n")
    assert cgroups.own_groups(str(mounts), str(own)) == {
        "memory": tmp_path / "v1/memory/a",
        "": tmp_path / "v2/user/b",
    }


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA H200", "h200"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("", "gpu"),
    ],
)
def test_gpu_types_are_short(name: str, short: str) -> None:
    assert gpus.short_type(name) == short


def test_we_give_only_the_gpus_we_may_see() -> None:
    found = [gpus.Gpu(n, "h200", f"GPU-{n}{n}") for n in range(4)]
    assert [g.index for g in gpus._confine(found, None)] == [0, 1, 2, 3]
    assert [g.index for g in gpus._confine(found, "2,0")] == [2, 0]
    assert [g.index for g in gpus._confine(found, "GPU-33,7,1")] == [3]
    assert gpus._confine(found, "") == []
