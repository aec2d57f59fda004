"""The object a training script holds: steps, checkpoints, settings and the wish of the scheduler to stop."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from ._address import of_environment, turns_folder
from ._barrier import JOB, STEPS, Barrier, untouched
from ._checkpoint import CheckpointStore
from ._environment import number
from ._link import Link
from ._scaling import LrScale, ScalingRule
from ._sigterm import SigtermWatch
from ._stages import StageClock
from ._timing import StepTiming
from ._turns import TurnOrder
from .protocol import (
    Built,
    Checkpoint,
    Declined,
    Done,
    Go,
    Hello,
    JobMessage,
    Pause,
    Progress,
    Restored,
    ServiceMessage,
    Settings,
    Stop,
    Stopping,
    TakeTurns,
)

log = logging.getLogger("cotenant.runtime")

EXIT_PREEMPTED = 75  # EX_TEMPFAIL: stopped on request, checkpoint saved, start it again
EXIT_TERMINATED = 143  # 128 + SIGTERM: ended by the signal, nothing could be saved

_PROGRESS_INTERVAL_S = 0.2
_WELCOME_WAIT_S = 1.0
_CLOSE_WAIT_S = 1.0
_NAP_S = 0.05  # how quickly a throttled job notices that it should stop, or go on
_LEAST_PAUSE_S = 0.002
_BURST_S, _LATEST_S = 0.02, 0.1  # of work between two pauses, unless so much is owed by then
_METRICS_LIMIT = 64
_LONGEST_PAUSE_S = 10.0


class Job:
    """One attempt of a job, seen from inside. Not for other threads than the one that trains."""

    def __init__(
        self,
        settings: Settings,
        checkpoint_dir: str | os.PathLike[str] | None,
        checkpoint_interval_s: float,
        rule: ScalingRule | None = None,
    ) -> None:
        env = os.environ
        self.id = env.get("COTENANT_JOB_ID", "")
        self.attempt = int(number(env.get("COTENANT_ATTEMPT"), 0))
        self.tenant = env.get("COTENANT_TENANT", "")
        self.rank = int(number(env.get("RANK"), 0))
        """Which process of the job this is, where it has several (`torchrun`); number 0 leads: it reports and saves."""
        self.ranks = max(int(number(env.get("WORLD_SIZE"), 1)), 1)
        """How many processes the job has."""
        self.grace_s: float | None = None
        """Seconds the scheduler gives a job that should stop; None before it asks."""
        self._settings = settings
        self._rule = rule or ScalingRule()
        self._lr_scale = LrScale(self._rule.ramp_steps)
        self._lr_scale.jump(self._wanted_lr_scale())
        self._staged = Settings()
        self._staging = threading.Lock()
        self._on_change: list[Callable[[Settings], object]] = []
        self._asked = False  # by the scheduler
        self._sigterm = SigtermWatch()
        self._pause_s = self._pauses_here_s = 0.0  # asked for, and agreed on at this step boundary
        self._owed_s = 0.0  # pauses that were too short to keep, or less than nothing after one that was too long
        self._paused_at = 0.0
        self._stops_here = False  # all ranks have agreed to stop at this step boundary
        self._declined = False  # told the scheduler that this request cannot be met
        self._leads = self.rank == 0
        self._leader_says: Callable[[list[float]], list[float]] | None = None
        self._store = CheckpointStore(checkpoint_dir) if checkpoint_dir else None
        self._interval_s = checkpoint_interval_s
        self._save_fn: Callable[[Path], object] | None = None
        self._safe = 0  # finished steps that are in a checkpoint
        self._done = 0  # finished steps
        self._total: int | None = None
        self._built = self._started = False
        self._metrics: dict[str, Any] = {}
        self._timing = StepTiming()
        self._stages, self._line = StageClock(), TurnOrder()
        self._step_began = self._saved_at = time.monotonic()
        self._reported_at = 0.0
        self._link: Link | None = None
        self._barrier = Barrier()
        self._leaving = False

    def __enter__(self) -> Job:
        address = of_environment()
        if address and self._link is None:
            hello = Hello(
                os.environ.get("COTENANT_JOB_TOKEN", ""), self.id, self.attempt, os.getpid(), untouched=untouched(),
                waits=self._barrier.closed,
            )  # fmt: skip
            self._link = Link(address, hello, self._receive)
            self._link.start(_WELCOME_WAIT_S)
            self._barrier.wait(JOB, self._in_touch)
            self._take(self._told())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release_sigterm()
        if kind is None and (not self.should_stop or self._done == self._total):
            self._tell(Done(self._done))
        if self._link is not None:
            self._link.close(_CLOSE_WAIT_S)

    @property
    def connected(self) -> bool:
        """True once the service has answered this process."""
        return self._link is not None and self._link.welcomed

    @property
    def should_stop(self) -> bool:
        """True when the scheduler wants the GPUs, or SIGTERM came. `steps` acts on it; look at it in long steps."""
        return self._asked or self._sigterm.came

    @property
    def batch_size(self) -> int:
        """Samples to take per step (and per accumulation step): of the whole job, or of a GPU (see `keeps`)."""
        return self._settings.batch_size or 1

    @property
    def global_batch(self) -> int:
        """Samples that all GPUs together take per step (and per accumulation step) at the present size."""
        return self._rule.global_batch(self.batch_size, self._size())

    @property
    def local_batch(self) -> int:
        """This process's part of the global batch: all of it, unless the job has several ranks."""
        each, more = divmod(self.global_batch, self.ranks)
        return max(each + (self.rank < more), 1)

    @property
    def accumulation(self) -> int:
        """Batches whose gradients are summed before the optimizer steps."""
        return self._settings.accumulation or 1

    @property
    def workers(self) -> int:
        """Data loader workers to use."""
        return self._settings.workers or 0

    @property
    def gpus(self) -> int:
        """GPUs granted; outside Cotenant those named in CUDA_VISIBLE_DEVICES, else 0."""
        return self._settings.gpus or 0

    @property
    def throttle_s(self) -> float:
        """Pause between steps; `steps` keeps it."""
        return self._settings.throttle_s or 0.0

    @property
    def gpu_mem_gib(self) -> float:
        """Memory of each GPU that the job is granted now; 0 where nobody limits it."""
        return self._settings.gpu_mem_gib or number(os.environ.get("COTENANT_GPU_MEM_GIB"), 0.0)

    @property
    def squeezed(self) -> bool:
        """Whether that is less than it needs at its peak (`gpu_mem` of its job file)."""
        return self.gpu_mem_missing_gib > 0

    @property
    def gpu_mem_missing_gib(self) -> float:
        """How much less that is, GiB per GPU; 0 where it has all that it needs."""
        granted, peak = self.gpu_mem_gib, number(os.environ.get("COTENANT_GPU_MEM_PEAK_GIB"), 0.0)
        return peak - granted if 0 < granted < peak - 1e-6 else 0.0

    @property
    def learning_rate_scale(self) -> float:
        """What to multiply the learning rate of the base size by; `runtime.torch.attach` does so by itself.

        What the job asks for at its present size, times what the scheduler says, which mostly is nothing.
        """
        return (self._settings.learning_rate_scale or 1.0) * self._lr_scale.at(self._done)

    @property
    def step(self) -> int:
        """Steps finished, those before the restored checkpoint included."""
        return self._done

    def on_change(self, fn: Callable[[Settings], object]) -> None:
        """Call fn(settings) at the step boundary where the scheduler's new settings take hold."""
        self._on_change.append(fn)

    def follow_leader(self, leader_says: Callable[[list[float]], list[float]]) -> None:
        """Have all ranks change settings, stop and save at the same step, that of rank 0.

        Each rank calls `leader_says(values)` at every step boundary, and gets what rank 0 has put in (a broadcast).
        `runtime.torch.attach` does this by itself where PyTorch's processes know each other.
        """
        self._leader_says = leader_says

    def save(self, save_fn: Callable[[Path], object]) -> None:
        """Register save_fn(path): fill this empty directory with what restoring needs. Called at step boundaries.

        A full or failing disk (OSError) is logged and training goes on; any other error is a bug and is raised.
        """
        self._save_fn = save_fn

    def restore(self, load_fn: Callable[[Path], object]) -> int:
        """Call load_fn(path) with the newest complete checkpoint, if any. Returns the steps already done."""
        newest = self._store.newest() if self._store is not None else None
        if newest is not None:
            began = time.monotonic()
            load_fn(newest.path)
            if self._rule.scales:
                self._lr_scale.read(newest.path)
            self.resumed(newest.step, newest.path, time.monotonic() - began)
        return self._done

    def resumed(self, step: int, path: str | os.PathLike[str], seconds: float = 0.0) -> None:
        """Someone else, e.g. a trainer, has restored or will restore this checkpoint. `restore` calls it by itself."""
        self._done = self._safe = step
        self._lr_scale.aim(self._wanted_lr_scale(), step)
        self._saved_at = time.monotonic()
        self._tell(Restored(step, os.fspath(path), seconds))

    def report(self, **metrics: Any) -> None:
        """Hand over the latest metrics: anything `float` takes. They travel with the next progress message."""
        for name, value in metrics.items():
            detach = getattr(value, "detach", None)  # a tensor must not keep its graph alive until it is sent
            self._metrics[name] = detach() if callable(detach) else value

    def stage(self, name: str) -> AbstractContextManager[None]:
        """Mark a stage of a step: `with job.stage("load")`; also `preprocess`, `compute` and `synchronise`.

        In a group that interleaves on the same GPUs it waits here for its turn at the storage, the CPU, the GPU or the
        network. Alone it waits for nobody. What stages take is reported. They follow each other in a thread.
        """
        return self._stages.stage(name)

    @property
    def stage_times(self) -> tuple[dict[str, float], float]:
        """Seconds per step in each stage and outside of any (`other`), of late; and waiting for its turns."""
        return self._stages.times_s, self._stages.waited_s

    def finish_stage(self, name: str, wait: Callable[[], object]) -> None:
        """Before a stage counts as over `wait()` is called: for work that goes on by itself, such as on a GPU.

        `runtime.torch.attach` does this for `compute`.
        """
        self._stages.finish[name] = wait

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around whatever a step waits for while its GPUs are idle, e.g. input: `with job.waiting(): batch = next(it)`.

        What is left of a step is how busy the job keeps its GPUs, where no driver tells that. `runtime.torch.Loader`
        calls it by itself.
        """
        began = time.monotonic()
        try:
            yield
        finally:
            self._timing.waited(time.monotonic() - began)

    def ready(self) -> None:
        """All is built, the first step comes next: for loops that someone else writes. `steps` calls it by itself.

        A job that was started ahead of its GPUs waits here until it has them.
        """
        if not (self._built or self._started) and self._link is not None:
            self._built = True
            self._tell(Built(self._done))
            self._barrier.wait(STEPS, self._in_touch)
            self._step_began = self._saved_at = time.monotonic()

    def steps(self, total: int | None = None) -> Iterator[int]:
        """Step numbers from the first unfinished one up to total (without end when None).

        Between two steps: settings change, checkpoints are written, and a job that should stop saves and leaves with
        SystemExit(EXIT_PREEMPTED). After the last step the work is saved and a wish to stop no longer counts.
        """
        if self._started:
            raise RuntimeError("a job has one loop over steps(); put epochs and phases inside it")
        try:
            self.ready()
            self.boundary(self._done, total)
            while total is None or self._done < total:
                yield self._done
                self.boundary(self._done + 1, total)
        finally:
            self._release_sigterm()

    def boundary(self, done: int, total: int | None = None) -> None:
        """All that happens between two steps, for loops that someone else writes. `steps` calls it by itself."""
        self.tick(done, total)
        if total is not None and done >= total:
            self.checkpoint()
        elif self._stops_here:
            self._stop()
        else:
            if self.checkpoint_due:
                self.checkpoint()
            self._throttle()
        self._step_began = time.monotonic()

    def tick(self, done: int, total: int | None = None, *, saves: bool = False) -> None:
        """The part of `boundary` that never saves or stops: counting, timing, settings and progress.

        `saves` tells the scheduler that someone else, e.g. a trainer, writes the checkpoints.
        """
        self._started = True
        self._sigterm.watch()
        if done > self._done:
            step_s = (time.monotonic() - self._step_began) / (done - self._done)
            self._timing.finished(done, done - self._done, step_s * (done - self._done))
            self._stages.stepped(done, step_s)
            self._take_turns()
        self._done, self._total = done, total
        self._confer()
        now = time.monotonic()
        if now - self._reported_at >= _PROGRESS_INTERVAL_S or done == total:
            self._reported_at = now
            if self._link is not None:
                self._tell(self._progress(saves or self._can_save()))
        self._step_began = now

    @property
    def saved(self) -> bool:
        """True when all finished steps are in a checkpoint."""
        return self._safe == self._done

    @property
    def checkpoint_due(self) -> bool:
        """True when steps are unsaved and the checkpoint interval has passed."""
        return self._done > self._safe and time.monotonic() - self._saved_at >= self._interval_s

    def checkpoint(self) -> bool:
        """Save now. True when all finished steps are safe afterwards."""
        if self._done > self._safe and self._can_save():
            assert self._store is not None
            try:
                saved = self._store.save(self._done, self._write_checkpoint)
            except OSError as error:
                log.warning("checkpoint at step %d failed: %s", self._done, error)
                self._saved_at = time.monotonic()  # a full disk is asked again after the interval, not at every step
                return False
            self.checkpointed(saved.path, saved.seconds)
        return self.saved

    def _write_checkpoint(self, path: Path) -> None:
        assert self._save_fn is not None
        self._save_fn(path)
        if self._rule.scales:
            self._lr_scale.write(path)

    def checkpointed(self, path: str | os.PathLike[str], seconds: float) -> None:
        """Someone else, e.g. a trainer, has made a complete and durable checkpoint of the finished steps."""
        self._safe = self._done
        self._saved_at = time.monotonic()
        self._timing.saved(seconds)
        self._tell(Checkpoint(self._done, os.fspath(path), seconds))

    def preempted(self) -> NoReturn:
        """Leave the process as stopped on request, with the work saved."""
        self._leaving = True
        self._tell(Stopping(self._done, saved=True))
        raise SystemExit(EXIT_PREEMPTED)

    def _stop(self) -> None:
        """Save and leave. Without a way to save, SIGTERM still ends the process, but a mere wish does not."""
        saved = (self._can_save() or self._done == self._safe) and self.checkpoint()
        saved, signalled = map(bool, self._agreed([float(saved), float(self._sigterm.came)]))
        if saved:
            self._safe = self._done
            self.preempted()
        if signalled:
            self._leaving = True
            self._tell(Stopping(self._done, saved=False))
            raise SystemExit(EXIT_TERMINATED)
        self._declined = True
        reason = "the checkpoint could not be written" if self._can_save() else "the job does not save checkpoints"
        self._tell(Declined(self._done, reason))

    def _agreed(self, values: list[float]) -> list[float]:
        """What the leading rank says; in a job of one process that is this one."""
        return values if self._leader_says is None else self._leader_says(values)

    def _can_save(self) -> bool:
        return self._store is not None and self._save_fn is not None and self._leads

    def _tell(self, message: JobMessage) -> None:
        if self._link is not None and self._leads:
            self._link.send(message)

    def _receive(self, message: ServiceMessage) -> None:
        """Called by the link's thread: only note what was said; the training thread acts on it."""
        if isinstance(message, Stop):
            self.grace_s = message.grace_s
            self._declined = False
            self._asked = True
        elif isinstance(message, Pause):
            self._pause_s = min(max(message.seconds, 0.0), _LONGEST_PAUSE_S)
        elif isinstance(message, Go):
            self._barrier.open()
        elif isinstance(message, TakeTurns):
            self._line = TurnOrder(message.where, message.me, tuple(message.line))
        elif isinstance(message, Settings):
            with self._staging:
                self._staged = self._staged.updated(message)

    def _in_touch(self) -> bool:
        return self._link is not None and self._link.connected

    def _told(self) -> Settings:
        """The settings, with what the scheduler has said since they were taken over."""
        with self._staging:
            staged, self._staged = self._staged, Settings()
        return self._settings.updated(staged)

    def _confer(self) -> None:
        """At a step boundary: take over new settings and decide whether to stop here, as the leading rank does."""
        pause_s, self._pause_s = self._pause_s, 0.0
        wish = float(self.should_stop and not self._declined), pause_s
        stops, self._pauses_here_s, *settings = self._agreed([*wish, *self._told().numbers()])
        self._stops_here = bool(stops)
        self._take(Settings.from_numbers(settings))

    def _take(self, settings: Settings) -> None:
        if settings != self._settings:
            self._settings = settings
            if self._started:
                self._lr_scale.aim(self._wanted_lr_scale(), self._done)
            else:
                self._lr_scale.jump(self._wanted_lr_scale())
            for fn in self._on_change:
                fn(settings)

    def _take_turns(self) -> None:
        """At a step boundary: follow the line that was told last. A job of several ranks is led by its first."""
        if self._leads and self._line != self._stages.line:
            try:
                self._stages.follow(turns_folder(of_environment()), self._line)
            except OSError as error:
                log.warning("stages do not take turns: %s", error)
                self._line = TurnOrder()

    def _wanted_lr_scale(self) -> float:
        return self._rule.lr_scale(self.batch_size, self._size())

    def _size(self) -> int:
        return self.gpus or self.ranks

    def _progress(self, saves: bool) -> Progress:
        timing = self._timing
        return Progress(
            self._done, self._total, timing.step_time_s, self._floats(), saves,
            timing.age_s, timing.ready_s, timing.ready_step, timing.saving_s,
            *self.stage_times, timing.busy,
        )  # fmt: skip

    def _floats(self) -> dict[str, float]:
        floats = {}
        for name, value in list(self._metrics.items())[:_METRICS_LIMIT]:
            try:
                floats[name[:100]] = float(value)
            except Exception:
                log.debug("metric %s is not a number", name)
        if self.global_batch > 1:  # what policies that change sizes need to know; scripts may say it themselves
            floats.setdefault("batch", float(self.global_batch * self.accumulation))
        return floats

    def _throttle(self) -> None:
        """Pause as long as told; another length that is told meanwhile counts at once, so that a pause can be ended.

        No system sleeps for a fraction of a millisecond as long as asked: short pauses add up to one that can be kept,
        and what one takes too long is taken off the next. Nor is a step after a pause as fast as others (on an H200 it
        takes up to 2.4 ms longer), so short steps are made in bursts; several ranks pause at the same steps instead.
        """
        began, owed_s = time.monotonic(), self._owed_s
        due_s = owed_s + self.throttle_s + self._pauses_here_s
        in_burst = began - self._paused_at < _BURST_S and due_s < _LATEST_S and self.ranks == 1
        if due_s < _LEAST_PAUSE_S or (in_burst and not self._pauses_here_s):
            self._owed_s = owed_s + self.throttle_s if self.throttle_s else 0.0
            return
        left = 0.0
        while not (self.should_stop and not self._declined):
            staged = self._staged.throttle_s
            throttle_s = self.throttle_s if staged is None else staged
            left = began + owed_s + throttle_s + self._pauses_here_s - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(left, _NAP_S))
        self._owed_s, self._paused_at = max(left, -_LEAST_PAUSE_S), time.monotonic()

    def _release_sigterm(self) -> None:
        """Give the signal back, but not on the way out, where a second one would spoil the exit code."""
        if not self._leaving:
            self._sigterm.release()
