"""Where jobs stood when a round began: what each is due, had and is owed, and when its next round comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cotenant.core.reasons import moment
from cotenant.core.state import IntMatrix, Matrix
from cotenant.core.workload import Floats, Ints

_LEAST_SHOWN = 0.005


def no_more(row: int) -> str:
    """Nothing to add."""
    return ""


@dataclass(frozen=True, slots=True)
class Standing:
    """Jobs, then pairs of them (`members`: places in `ids`), against pools; never changed once it is made.

    `known` says who took part in the last solve, at `solved_s`. `more` is what the policy adds of a job.
    """

    ids: Ints
    known: NDArray[np.bool_]
    members: IntMatrix
    target: Matrix  # fractions of the time
    received_s: Matrix
    deficit_s: Matrix  # from before the last solve
    solved_s: float
    began_s: float
    next_s: float
    pool_types: tuple[str, ...]
    more: Callable[[int], str] = no_more

    def written(self) -> dict[tuple[int, ...], Any]:
        """As plain data by rows: what concerns all under nobody's, then jobs that took part, then pairs."""
        when = {"solved_s": self.solved_s, "began_s": self.began_s, "next_s": self.next_s}
        found: dict[tuple[int, ...], Any] = {(): {**when, "types": list(self.pool_types)}}
        for number, (one, two) in enumerate(self.members.tolist()):
            if self.known[one]:
                who = (int(self.ids[one]),) if two < 0 else (int(self.ids[one]), int(self.ids[two]))
                parts = (self.target[number], self.received_s[number], self.deficit_s[number])
                found[who] = [np.round(part, 6).tolist() for part in parts]
        return found

    @classmethod
    def read(cls, kept: Mapping[tuple[int, ...], Any]) -> Standing:
        """The inverse; pairs one of whom is gone are left out."""
        head = kept[()]
        alone = sorted(who[0] for who in kept if len(who) == 1)
        at = {row: place for place, row in enumerate(alone)}
        pairs = [who for who in kept if len(who) == 2 and who[0] in at and who[1] in at]
        who = [*((row,) for row in alone), *pairs]
        members = [(at[one[0]], at[one[1]] if len(one) == 2 else -1) for one in who]
        parts = np.array([kept[one][:3] for one in who], np.float64).reshape(len(who), 3, len(head["types"]))
        return cls(
            np.array(alone, np.int64), np.ones(len(alone), bool), np.array(members, np.int64).reshape(-1, 2),
            parts[:, 0], parts[:, 1], parts[:, 2],
            head["solved_s"], head["began_s"], head["next_s"], tuple(head["types"]),
        )  # fmt: skip

    def of(self, row: int) -> tuple[Floats, Floats, float]:
        """By pool what a job is due and had, as fractions since the last solve, and the seconds that it is owed."""
        mine = (self.members == np.flatnonzero(self.ids == row)[0]).any(axis=1)
        elapsed_s = self.began_s - self.solved_s
        due: Any = self.target[mine].sum(axis=0)
        had_s: Any = self.received_s[mine].sum(axis=0)
        owed_s = float((due * elapsed_s - had_s + self.deficit_s[mine].sum(axis=0)).sum())
        return due, had_s / max(elapsed_s, 1e-6), owed_s

    def why(self, row: int) -> str:
        """Why a job does not run in this round."""
        if not (self.ids == row).any() or not self.known[np.flatnonzero(self.ids == row)[0]]:
            came = f"it came after the last round began, at {moment(self.began_s)}, and no GPUs are idle for it"
            return "; ".join([came, self._soon()])
        due, had, owed_s = self.of(row)
        shown = [k for k in range(len(due)) if due[k] >= _LEAST_SHOWN or had[k] >= _LEAST_SHOWN]
        if not shown:
            parts = ["it is due no time while the present jobs are there"]
        else:
            wanted = ", ".join(f"{due[k]:.2f} of {self.pool_types[k] or 'the GPUs'}" for k in shown)
            parts = [f"target {wanted}; received {', '.join(f'{had[k]:.2f}' for k in shown)}"]
            parts[0] += f" since {moment(self.solved_s)}"
            parts.append(f"owed {owed_s:.0f} s" if owed_s >= 0 else f"{-owed_s:.0f} s ahead of its share")
            parts.append("others were further behind")
        return "; ".join(part for part in (*parts, self.more(row), self._soon()) if part)

    def _soon(self) -> str:
        return f"next round at {moment(self.next_s)}" if np.isfinite(self.next_s) else "next round when jobs come or go"
