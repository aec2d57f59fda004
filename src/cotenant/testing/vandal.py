"""Whether the wall holds: a vandal at a policy's side reads and overwrites whatever it can reach from the view.

    run = Simulation(experiment)
    vandal = Vandal(run)  # watches every question to the policy
    run.advance(math.inf)
    assert vandal.questions and not vandal.found

The run must come out as without it, to the last bit, and `found` must stay empty: no table of the engine, no memory
shared with one, no number of the truth. It follows attributes, slots, properties, containers, closures, the owners of
bound methods and the bases of arrays; not the modules, which belong to the process.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from functools import cache
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, MethodWrapperType, ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cotenant.core import columns as col
from cotenant.core.state import State
from cotenant.core.view import View
from cotenant.sim.driver import Simulation

QUESTIONS = ("priority", "decide", "choose")
_PLAIN = (str, bytes, int, float, complex, bool, type(None), np.generic, np.dtype, type, ModuleType)


def reachable(root: object) -> Iterator[Any]:
    """Everything that can be reached from an object, each once, itself included."""
    seen: set[int] = set()
    kept: list[object] = []  # alive, so that no identity is given twice
    todo: list[object] = [root]
    while todo:
        thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        kept.append(thing)
        yield thing
        if not isinstance(thing, _PLAIN):
            todo += _next(thing)


def _next(thing: Any) -> list[object]:
    """One step further."""
    if isinstance(thing, np.ndarray):
        return [thing.base, *(thing.tolist() if thing.dtype == object else ())]
    if isinstance(thing, dict):
        return [*thing.keys(), *thing.values()]
    if isinstance(thing, list | set | frozenset):
        return list(thing)
    if isinstance(thing, FunctionType):
        return [*(thing.__closure__ or ()), *(thing.__defaults__ or ()), thing.__kwdefaults__, thing.__dict__]
    if isinstance(thing, MethodType | BuiltinFunctionType | MethodWrapperType):
        return [thing.__self__, getattr(thing, "__func__", None)]
    if isinstance(thing, CellType):
        return [thing.cell_contents]
    if isinstance(thing, memoryview):
        return [thing.obj]
    if isinstance(thing, weakref.ref):
        return [thing()]
    found: list[object] = list(thing) if isinstance(thing, tuple) else []
    kind: Any = type(thing)
    for name in _names(kind) + list(getattr(thing, "__dict__", ())):
        try:
            found.append(getattr(thing, name))
        except Exception:
            continue
    return found + _getters(kind)


@cache
def _names(kind: Any) -> list[str]:
    """Attributes of a class that are its own, not those which every object has."""
    return [name for name in dir(kind) if not hasattr(object, name)]


@cache
def _getters(kind: Any) -> list[object]:
    """The functions behind its properties: they may close over something."""
    values = [value for part in kind.__mro__ for value in vars(part).values()]
    return [value.fget for value in values if isinstance(value, property)]


class Vandal:
    """Stands between a simulation and its policy."""

    def __init__(self, run: Simulation) -> None:
        self.run, self.questions, self.found = run, 0, set[str]()
        self._tables = {_owner(table) for table in run.state}
        if not len(_truth(run.state)):
            raise ValueError("all durations are whole numbers, which say nothing: add parts of a second")
        for name in QUESTIONS:
            inner = getattr(run.engine.policy, name, None)
            if inner is not None:
                setattr(run.engine.policy, name, self._beside(inner))

    def _beside(self, inner: Callable[[View], Any]) -> Callable[[View], Any]:
        def ask(view: View) -> Any:
            self.questions += 1
            before = list(reachable(view))
            self._search(before)
            answer = inner(view)
            for thing in (*before, *reachable(view)):
                if isinstance(thing, np.ndarray):
                    _overwrite(thing)
            return answer

        return ask

    def _search(self, things: list[Any]) -> None:
        """Note what of the engine, or of the truth, was reached."""
        state = self.run.state
        truth = _truth(state)
        for thing in things:
            if isinstance(thing, State | Simulation) or thing is self.run.engine:
                self.found.add(f"a {type(thing).__name__}")
            elif isinstance(thing, np.ndarray):
                if _owner(thing) in self._tables:
                    self.found.add("memory of the engine's tables")
                if thing.dtype.kind == "f" and np.isin(thing, truth).any():
                    self.found.add(f"the truth, in an array of shape {thing.shape}")
            elif isinstance(thing, float) and bool(np.isin(thing, truth).any()):
                self.found.add(f"the truth, as the number {thing}")


def _owner(array: NDArray[Any]) -> int:
    """Identity of whatever holds an array's memory."""
    holder: Any = array
    while isinstance(getattr(holder, "base", None), np.ndarray):
        holder = holder.base
    return id(holder)


def _truth(state: State) -> NDArray[np.float64]:
    """Numbers that nobody may know: the work of unfinished jobs, what is left of it, where attempts fail."""
    open_ = state.i[:, col.STATE] != col.FINISHED
    work, done = state.f[open_, col.WORK], state.f[open_, col.DONE]
    numbers = np.concatenate([work, work - done, state.f[open_, col.FAIL_AT], state.attempts[:, 0]])
    return np.unique(numbers[np.isfinite(numbers) & (numbers != np.rint(numbers))])  # whole numbers say nothing


def _overwrite(array: NDArray[Any]) -> None:
    """Write nonsense, if that can be done."""
    try:
        array.setflags(write=True)
        array[...] = np.array(7).astype(array.dtype)
    except (ValueError, TypeError):
        pass
