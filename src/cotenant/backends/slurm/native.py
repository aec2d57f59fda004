"""Every gang is a Slurm job of its own, on the nodes that were chosen for it.

Slurm chooses the GPUs on a node and says which they are. A job's record is on the home, which all nodes see: its keeper
writes there when it began and how it ended, so an end is known however long ago Slurm forgot the job. Slurm's own word
is asked for where no keeper can speak: jobs that wait, stand still, were killed or lost with their node.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from cotenant.backends.base import (
    BackendError,
    Capabilities,
    LaunchSpec,
    NodeGone,
    NodeInfo,
    Observed,
    Stream,
    Unreachable,
    check_key,
    check_spec,
)
from cotenant.backends.channels import Channel, ChannelSpec
from cotenant.backends.checkpoints import checkpoint_folder, drop_checkpoint_folder
from cotenant.backends.local import logs
from cotenant.backends.slurm import script
from cotenant.backends.slurm.backend import label_of
from cotenant.backends.slurm.bell import Bell
from cotenant.backends.slurm.commands import Slurm, SlurmJob
from cotenant.backends.slurm.nodes import NodeList
from cotenant.backends.slurm.poll import Poll
from cotenant.backends.slurm.records import SlurmRecord
from cotenant.backends.slurm.submitter import Submitter
from cotenant.core.errors import InputError

_SOON_S = 0.2  # between two polls while something that was asked for has not happened yet
_AGAIN_S = 1.0  # until a job that has not heard SIGTERM, for it was just about to stand still, is told again
_FALLS_STILL_S = 2.5  # Slurm stops a job two seconds after it was asked to, and forgets whoever resumes it before
_KILL_S = 5.0  # until Slurm itself is asked to end what its own shell did not
_SETTLE_S = 10.0  # for which a shared folder may lag behind


class NativeBackend:
    """Records under `home/slurm/jobs`. `poll_s`: how old Slurm's word may be; `most`: our jobs in its controller."""

    def __init__(
        self, home: Path, partition: str = "", *, listen: str = "", poll_s: float = 2.0, most: int = 0,
        answer_s: float = 8.0,
    ) -> None:  # fmt: skip
        self._home = home.absolute()
        root = self._home / "slurm"
        self._jobs, self._trash = root / "jobs", root / "trash"
        for path in (root, self._jobs, self._trash):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.label = label_of(self._home)
        self.slurm = Slurm(self.label, answer_s)
        self._poll_s, self._poll = poll_s, Poll(self.slurm)
        self._nodes = NodeList(self.slurm, partition, 5.0)
        self._config = self.slurm.config()
        self._listen = listen or f"tcp:{socket.gethostname()}:0"
        self._bell = Bell(root / "news")
        self._known: dict[str, SlurmRecord] = {}
        most = most or max(1, int(self._config.get("MaxJobCount", "10000").split()[0]) // 2)
        self._submitter = Submitter(self.slurm, self._poll, most, self._bell.wake)
        self._unsettled: set[str] = set()  # keys of which something was asked that has not been seen yet
        for record in self._records():
            if not record.has("job") and not record.has("exit.json") and not record.has("lost"):
                self._submitter.put(record)

    def close(self) -> None:
        """Jobs run on, and Slurm's queue stays as it is."""
        self._submitter.close()

    # -- what is there ---------------------------------------------------------------------------------------------

    def nodes(self) -> list[NodeInfo]:
        """Those of the partition; as last known while Slurm does not answer."""
        try:
            found = self._nodes.all()
        except Unreachable:
            if not (found := self._nodes.known()):
                raise
        return [node.info for node in found.values()]

    def capabilities(self) -> Capabilities:
        """What Slurm does here. A suspended job keeps its GPUs, in Slurm's books and in the driver's."""
        fenced = "cgroup" in self._config.get("TaskPlugin", "")
        return Capabilities(
            gpu="nvml", memory_limit=fenced, cpu_quota=False, cpu_affinity=False, suspend="sigstop", gpu_suspend="none",
            kill_scope="cgroup" if "cgroup" in self._config.get("ProctrackType", "") else "descendants",
            outlives_service=True, exact_gpus=False,
            notes=(f"slurm: native, partition {self._nodes.partition.name}",),
        )  # fmt: skip

    def _records(self) -> list[SlurmRecord]:
        """Every record, ordered by key."""
        names = sorted(os.listdir(self._jobs))
        for gone in self._known.keys() - set(names):
            del self._known[gone]
        return [self._known.setdefault(name, SlurmRecord(self._jobs, name)) for name in names]

    def observe(self) -> list[Observed]:
        """Records first, then Slurm's word, then the records of those again that Slurm says are over."""
        records = [record for record in self._records() if record.spec()]
        if self.slurm.away:
            self._poll.stale()
        if not all(record.end() for record in records) or self._unsettled or self.slurm.away:
            self._poll.latest(_SOON_S if self._unsettled else self._poll_s)
        seen = [self._observe(record) for record in records]
        return [one for one in seen if one is not None]

    def _observe(self, record: SlurmRecord) -> Observed | None:
        child, number = record.child(), record.number()
        began_s = child.started_s if child is not None else None
        end = record.end()
        if end is not None and self._sure(record, end):
            self._unsettled.discard(record.key)
            return self._with_gpus(record, record.end() or end)
        if end is not None:
            self._unsettled.add(record.key)
            return self._with_gpus(record, Observed(record.key, "running", True, started_s=began_s))
        if number is None:
            return Observed(record.key, "starting", True)
        hint = f"slurm job {number}"
        job = self._poll.latest(1e9).get(record.key)
        if job is None or job.id != number:
            if self._poll.asked_s < record.submitted_s():
                return Observed(record.key, "starting", True, hint=hint)
            return self._over(record, None)
        if job.over:
            return self._over(record, job)
        gpus = record.gpus(record.nodes)
        if job.waits or child is None or gpus is None:
            self._give_up(record, job)
            return Observed(record.key, "starting", True, hint=hint)
        state = "suspended" if job.state == "SUSPENDED" or record.has("stopped") else "running"
        if (state == "suspended") == (record.text("wish") == "suspended") and not record.unheard_s():
            self._unsettled.discard(record.key)
        self._press(record, number, state == "running")
        found = Observed(record.key, state, True, started_s=began_s, hint=hint)  # type: ignore[arg-type]
        return self._with_gpus(record, found)

    def _press(self, record: SlurmRecord, number: int, running: bool) -> None:
        """What was asked of it and has not come about: ask again."""
        if record.age_s("killed") > _KILL_S:
            record.write("killed", b"")
            self.slurm.cancel(number)
        elif running and record.unheard_s() > _AGAIN_S:
            record.write("term", b"")
            self.slurm.signal(number, "TERM", batch=True)

    def _sure(self, record: SlurmRecord, end: Observed) -> bool:
        """Whether it ended that way: a gang that fails by itself may have lost a node, and Slurm is to say so."""
        if (
            not record.gang
            or end.state == "lost"
            or end.exit_code == 0
            or any(map(record.has, ("term", "killed", "sure")))
        ):
            return True
        job = self._poll.latest(1e9).get(record.key)
        if job is not None and not job.over:
            return False
        if job is not None and job.state == "NODE_FAIL":
            record.lose(self._why_lost(record, job))
        else:
            record.write("sure", b"")
        return True

    def _why_lost(self, record: SlurmRecord, job: SlurmJob | None) -> str:
        self._nodes.stale()
        where = ", ".join(record.nodes) or (job.nodes if job is not None else "")
        return f"Slurm says {job.state if job else 'nothing'} (node {where}): nobody saw how it ended"

    def _with_gpus(self, record: SlurmRecord, found: Observed) -> Observed:
        return dataclasses.replace(found, gpus=record.gpus(record.nodes) or ())

    def _give_up(self, record: SlurmRecord, job: SlurmJob) -> None:
        """A job whose nodes went away before it began will not begin."""
        if job.waits and ("ReqNodeNotAvail" in job.reason or "DOWN" in job.reason or job.reason == "BadConstraints"):
            down = [name for name in record.nodes if self._down(name)]
            if down:
                record.write("why", f"node {', '.join(down)} is down".encode())
                self.slurm.cancel(job.id)
                self._poll.stale()

    def _down(self, name: str, fresh: bool = False) -> bool:
        node = self._nodes.all(fresh).get(name)
        return node is None or node.info.state != "up"

    def _over(self, record: SlurmRecord, job: SlurmJob | None) -> Observed | None:
        """Slurm is done with it. Its keeper's last word may come late through a shared folder; else ours is last."""
        since = record.over_for_s()
        if (end := record.end()) is not None:
            return self._with_gpus(record, end)
        state = job.state if job is not None else "nothing"
        told = 9 if record.has("killed") else 15 if record.has("term") else 0
        ours = told and state in ("CANCELLED", "FAILED", "COMPLETED", "nothing")
        if ours and record.text("why"):
            record.lose(record.text("why"))
        elif ours:
            record.settle(told)
        elif state in ("NODE_FAIL", "BOOT_FAIL", "TIMEOUT", "PREEMPTED", "DEADLINE") or since > _SETTLE_S:
            record.lose(record.text("why") or self._why_lost(record, job))
        elif record.text("why"):
            record.lose(record.text("why"))
        else:
            child = record.child()
            self._unsettled.add(record.key)
            if child is None:
                return Observed(record.key, "starting", True)
            return Observed(record.key, "running", True, started_s=child.started_s)
        return self._observe(record)

    def listen_at(self) -> tuple[str, ...]:
        """A TCP address, which jobs on all nodes can reach."""
        return (self._listen,)

    def wait_change(self, timeout_s: float | None) -> bool:
        """Sleep until a keeper writes, or Slurm is to be asked again."""
        look_s = _SOON_S if self._unsettled else self._poll_s if self._known else None
        if look_s is not None and (timeout_s is None or look_s < timeout_s):
            self._bell.wait(look_s)
            return True
        return self._bell.wait(timeout_s)

    def wake(self) -> None:
        """End a wait."""
        self._bell.wake()

    # -- starting and ending ---------------------------------------------------------------------------------------

    def launch(self, spec: LaunchSpec) -> None:
        """Write down what is to run; it is submitted as soon as the controller has room."""
        nodes = {node.name: node for node in self.nodes()}
        check_spec(spec, nodes)
        if spec.image:
            raise InputError(f"job {spec.key}: slurm's native mode does not run images: call apptainer in `run`")
        if self.slurm.away:
            raise Unreachable(f"Slurm cannot be reached: {self.slurm.away}")
        for name, _ in spec.gpus:
            if nodes[name].state != "up" and self._down(name, fresh=True):
                raise NodeGone(f"job {spec.key}: nothing was started: node {name} is down")
        record = SlurmRecord(self._jobs, spec.key)
        lock = record.lock()
        if lock is None:
            return
        try:
            if record.spec():
                return
            order = {
                "options": script.options(spec, nodes, self._nodes.partition.name, record.path),
                "script": script.text(spec, record.path),
                "env": {},
            }
            if script.uneven(spec):
                record.write("hosts", script.hosts(spec).encode())
                order["env"] = {"SLURM_HOSTFILE": str(record.path / "hosts")}
            record.write("order.json", json.dumps(order).encode())
            record.write("keeper.in", script.order(spec, nodes, self.label, record.path, self._bell.path, self._home))
            facts = {f.name: getattr(spec, f.name) for f in dataclasses.fields(spec) if f.name != "calls_home"}
            record.write("spec.json", json.dumps({**facts, "env": sorted(spec.env)}).encode())
        except OSError as error:
            raise BackendError(f"job {spec.key}: nothing was started: {error}") from error
        finally:
            os.close(lock)
        self._submitter.put(record)

    def kill(self, key: str) -> bool:
        """Its shell kills all of it, and Slurm whatever does not run or is not gone soon; others never begin."""
        record = self._record(key)
        if not self._lives(record):
            return False
        record.write("killed", b"")
        number = self._number(record)
        if number is None:
            record.settle(9)
            return True
        self._poll.stale()
        job = self._poll.latest(0.0).get(key)
        if job is not None and job.state == "RUNNING" and record.child() is not None and not record.has("stopped"):
            self.slurm.signal(number, "USR2", batch=True)
        else:
            self.slurm.cancel(number)
        self._act(record)
        return True

    def terminate(self, key: str) -> bool:
        """SIGTERM to the job; one that has not begun is taken away, and counts as having heard it."""
        record = self._record(key)
        if not self._lives(record):
            return False
        record.write("term", b"")
        number = self._number(record)
        if number is None:
            record.settle(15)
            return True
        self._poll.stale()
        job = self._poll.latest(0.0).get(key)
        if job is not None and job.waits:
            self.slurm.cancel(number)
        else:
            if job is not None and (job.state == "SUSPENDED" or record.has("stopped")):
                self.resume(key)
            self.slurm.signal(number, "TERM", batch=True)
        self._act(record)
        return True

    def suspend(self, key: str) -> bool:
        """By the controller where we may, else by SIGSTOP."""
        record = self._record(key)
        number = record.number() if self._lives(record) else None
        if number is None or record.child() is None:
            return False
        if record.text("wish") != "suspended":
            record.write("wish", b"suspended")
            try:
                self.slurm.control("suspend", str(number))
            except Unreachable:
                raise
            except BackendError:
                self.slurm.signal(number, "STOP", batch=False)
                record.write("stopped", b"")
        self._act(record)
        return True

    def resume(self, key: str) -> bool:
        """Undo it, the way it was done, once it is done."""
        record = self._record(key)
        number = record.number() if self._lives(record) else None
        if number is None:
            return False
        if record.text("wish") == "suspended":
            if record.has("stopped"):
                self.slurm.signal(number, "CONT", batch=False)
                (record.path / "stopped").unlink(missing_ok=True)
            else:
                time.sleep(max(0.0, _FALLS_STILL_S - record.age_s("wish")))
                self.slurm.control("resume", str(number))
            record.write("wish", b"")
        self._act(record)
        return True

    def set_limits(
        self,
        key: str,
        cpus: Sequence[int] | None = None,
        cpu_share: float | None = None,
        mem_gib: float | None = None,
    ) -> bool:
        """Slurm sets limits at the start only: True where nothing is to change."""
        return self._lives(self._record(key)) and cpus is None and cpu_share is None and mem_gib is None

    def _act(self, record: SlurmRecord) -> None:
        """Something was asked of Slurm: look soon."""
        self._unsettled.add(record.key)
        self._poll.stale()
        self._bell.wake()

    def _record(self, key: str) -> SlurmRecord:
        return self._known.get(check_key(key)) or SlurmRecord(self._jobs, key)

    def _lives(self, record: SlurmRecord) -> bool:
        return bool(record.spec()) and record.end() is None

    def _number(self, record: SlurmRecord) -> int | None:
        """Its number, once a submission that is under way is done; None where there will be none."""
        give_up = time.monotonic() + _SETTLE_S
        while (number := record.number()) is None:
            lock = record.lock()
            if lock is not None:
                os.close(lock)
                if record.number() is None and not record.has("tried"):
                    return None
                if record.has("exit.json") or record.has("lost"):
                    return None
            if time.monotonic() > give_up:
                raise Unreachable(f"job {record.key}: nobody knows whether Slurm has it")
            self._bell.wait(0.05)
        return number

    def forget(self, key: str, keep_log: bool = False) -> None:
        """Remove the record of a job that is over, its output aside if asked."""
        record = self._record(key)
        if not record.exists():
            return
        if record.spec() and (end := record.end()) is None:
            raise BackendError(f"job {key} still runs: kill it before forgetting it")
        number = record.number()
        if number is not None and end is not None and end.state == "lost":
            self.slurm.cancel(number)
        if keep_log:
            logs.keep(record.path, self._kept(key))
            record.keep_end(self._kept(key))
        record.remove(self._trash)
        self._known.pop(key, None)

    # -- what is left of it ----------------------------------------------------------------------------------------

    def launched(self, key: str) -> LaunchSpec | None:
        """From its record; values of the environment are not kept."""
        return self._record(key).launched()

    def ended(self, key: str) -> Observed | None:
        """From what was kept with its log."""
        return SlurmRecord(self._home / "logs", key).end()

    def open_log(self, key: str, stream: Stream) -> logs.LocalLog:
        """Files of the record, then those that were kept of it."""
        record = self._record(key)
        return logs.LocalLog(key, stream, (record.path, self._kept(key)), lambda: self._lives(self._record(key)))

    def open_times(self, key: str) -> logs.LocalTimes:
        """The marks beside them."""
        folders = (self._record(key).path, self._kept(key))
        return logs.LocalTimes(logs.LocalLog(key, "times", folders, lambda: False))

    def open_channel(self, key: str, asked: ChannelSpec) -> Channel:
        """There is none: Slurm has `srun --overlap --jobid`."""
        raise BackendError("slurm's native mode offers no way into a job but `srun --jobid`")

    def drop_log(self, key: str) -> None:
        """Delete the files that were kept."""
        shutil.rmtree(self._kept(check_key(key)), ignore_errors=True)

    def _kept(self, key: str) -> Path:
        return self._home / "logs" / key

    def checkpoint_dir(self, job: str, asked: str = "") -> str:
        """A folder at home, which all nodes see, or the one asked for."""
        return checkpoint_folder(self._home, job, asked)

    def drop_checkpoints(self, job: str) -> None:
        """Delete the folder at home."""
        drop_checkpoint_folder(self._home, job)
