"""Several commands, alone and in pairs, into one profile file. What is in the file already is not measured again, and
every result is written at once, so a call that was cut short can be repeated to go on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from cotenant.backends.base import Backend, NodeInfo
from cotenant.core.errors import InputError, unknown
from cotenant.profiler.pairs import Company, measure_pairs
from cotenant.profiler.runs import CommandError, ProfiledCommand, Station
from cotenant.profiler.single import Measurement, Wanted
from cotenant.workload.profiles.base import normal
from cotenant.workload.profiles.profile_file import (
    MeasuredModel,
    MeasuredPair,
    ProfileFile,
    is_profile_file,
    load_profile_file,
)

_AT_ONCE = (4, 8)  # starts side by side when pairs are measured, at least and at most: one for two cores
OpenBackend = Callable[[str], AbstractContextManager[Backend]]
"""A backend on which jobs share GPUs in this way."""


@dataclass(frozen=True, slots=True)
class MixOptions:
    """What to measure. `beside`: the partners of pairs, all that the file knows if empty; `again`: known things, too.

    `twins`: pairs of a command with itself, too. After `within_s` seconds nothing more is begun.
    """

    wanted: Wanted = field(default_factory=Wanted)
    pairs: bool = False
    beside: Sequence[str] = ()
    shares: Sequence[str] = ("time",)
    twins: bool = True
    again: bool = False
    window_s: float = 2.0
    within_s: float = math.inf


@dataclass(slots=True)
class MixReport:
    """How it went: seconds and notes by model, pairs measured, errors, and how much was left for another call."""

    seconds: dict[str, float] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    pairs: int = 0
    errors: list[str] = field(default_factory=list)
    left: int = 0


class Mix:
    """The profiling of several commands; `told` hears of every figure, `progress` of (done, all)."""

    def __init__(
        self, path: Path, file: ProfileFile, commands: Sequence[ProfiledCommand], options: MixOptions,
        told: Callable[[str], object], progress: Callable[[int, int], object] | None = None,
    ) -> None:  # fmt: skip
        self.path, self.file, self.options, self.told = path, file, options, told
        self.commands = {normal(command.name): command for command in commands}
        self.report = MixReport()
        self._progress = progress or (lambda done, total: None)
        self._ends_s = time.time() + options.within_s
        self._done = self._all = 0

    @property
    def late(self) -> bool:
        """Whether nothing more is to be begun."""
        return time.time() >= self._ends_s

    def run(self, open_backend: OpenBackend) -> MixReport:
        """Measure what is not known yet."""
        for name in self.options.beside:
            if normal(name) not in self.commands and self.file.model(name) is None:
                raise unknown("model to measure pairs with", name, (*self.commands, *self.file.models))
        with open_backend("time") as backend:
            node = _node(backend)
            todo = [
                command for name, command in self.commands.items() if self.options.again or not self._has(name, node)
            ]
            self._all = len(todo)
            if todo:
                with Station(backend) as station:
                    self._alone(station, todo, node)
        for share in self.options.shares if self.options.pairs else ():
            partners = self._partners(node)
            todo_pairs = self._open_pairs(partners, node, share)
            self._all += len(todo_pairs)
            if todo_pairs and not self.late:
                with open_backend(share) as backend, Station(backend) as station:
                    self._pairs(station, partners, todo_pairs, node, share)
        self.report.left = self._all - self._done
        return self.report

    def _has(self, name: str, node: NodeInfo) -> bool:
        known = self.file.model(name)
        return known is not None and node.gpu_type in known.on and known.on[node.gpu_type].steps_per_s > 0

    def _alone(self, station: Station, todo: Sequence[ProfiledCommand], node: NodeInfo) -> None:
        for command in todo:
            if self.late:
                return
            self.told(f"{command.name}:")
            try:
                found = Measurement(station, command, self.options.wanted, lambda text: self.told(f"  {text}")).run()
            except CommandError as error:
                self._fail(str(error), alone=len(self.commands) == 1)
                continue
            entry = MeasuredModel(command.argv, command.workdir, command.gpus, {node.gpu_type: found.measured})
            self.file = self.file.with_model(command.name, entry, {node.gpu_type: node.gpu_mem_gib})
            self.file.save(self.path)
            self.report.seconds[command.name], self.report.notes[command.name] = found.seconds, found.notes
            for note in found.notes:
                self.told(f"  not measured: {note}")
            self._step()

    def _fail(self, text: str, alone: bool = False) -> None:
        """One command of several that cannot be profiled is told, and the others go on."""
        if alone:
            raise CommandError(text)
        self.report.errors.append(text)
        self.told(f"  error: {text}")
        self._step()

    def _step(self) -> None:
        self._done += 1
        self._progress(self._done, self._all)

    def _partners(self, node: NodeInfo) -> dict[str, ProfiledCommand]:
        """All commands that take part in pairs, by name: those given, and those of the file for this GPU type."""
        found = {name: command for name, command in self.commands.items() if self._has(name, node)}
        for name, model in self.file.models.items():
            if model.command and normal(name) not in found and node.gpu_type in model.on:
                env = next((command.env for command in self.commands.values()), {})
                found[normal(name)] = ProfiledCommand(name, model.command, model.workdir, env, model.gpus)
        return found

    def _open_pairs(self, partners: Mapping[str, ProfiledCommand], node: NodeInfo, share: str) -> list[tuple[str, str]]:
        """Pairs of equal GPU count to measure, those of a command with itself last."""
        others = [name for name in map(normal, self.options.beside or partners) if name in partners]
        mine = [name for name in self.commands if name in partners]
        pairs = {tuple(sorted((a, b))) for a in mine for b in others if partners[a].gpus == partners[b].gpus}
        known = self.file.pair
        chosen = [
            (a, b)
            for a, b in sorted(pairs)
            if (a != b or self.options.twins) and (self.options.again or known(node.gpu_type, share, a, b) is None)
        ]
        return sorted(chosen, key=lambda pair: pair[0] == pair[1])

    def _pairs(
        self, station: Station, partners: Mapping[str, ProfiledCommand], todo: Sequence[tuple[str, str]],
        node: NodeInfo, share: str,
    ) -> None:  # fmt: skip
        self.told(f"{len(todo)} pairs, {'under MPS' if share == 'mps' else 'time-sliced'}:")
        measured = {name: self.file.model(name) for name in partners}
        need_gib = {name: model.on[node.gpu_type].gpu_gib for name, model in measured.items() if model is not None}
        at_once = min(max(node.cpus // 2, _AT_ONCE[0]), _AT_ONCE[1])
        company = Company(
            self.options.window_s, need_gib=need_gib, gpu_gib=node.gpu_mem_gib or math.inf, at_once=at_once
        )
        say = lambda text: self.told(f"  {text}")  # noqa: E731
        found = measure_pairs(station, partners, todo, company, node.gpu_type, share, say, lambda: self.late)
        for one in found:
            if isinstance(one, CommandError):
                self._fail(str(one))
            else:
                self._keep(one)

    def _keep(self, pair: MeasuredPair | None) -> None:
        if pair is not None:
            self.file = self.file.with_pair(pair)
            self.file.save(self.path)
            self.report.pairs += 1
        self._step()


def _node(backend: Backend) -> NodeInfo:
    """The node that has GPUs, or the machine itself."""
    return max(backend.nodes(), key=lambda node: node.gpus)


def open_file(path: Path) -> ProfileFile:
    """The file to add to, or an empty one."""
    if not path.exists():
        return ProfileFile()
    if not is_profile_file(path):
        raise InputError(f"{path} is there and is not a profile file: name another one with --out")
    return load_profile_file(path)
